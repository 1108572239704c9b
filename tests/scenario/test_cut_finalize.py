"""An outcome whose answer never comes: the connection is cut before, in and after the server's work.

Outcomes travel with the next claim, or alone where the pod may claim nothing (its queue is paused).
"""

from __future__ import annotations

import json

import pytest

from rota.events import BatchesSettled, JobsEnded, JobsLost
from tests.support.crash_scene import SLOTS, UNHARMED, Crew, Scene, costs, once_each, other_session
from tests.support.cutter import At, Choice, Cutter, ends_runs
from tests.support.until import until
from tests.support.wire import Statement

JOBS = 3 * SLOTS


def merged(statement: Statement) -> bool:
    """Outcomes that travel with a claim."""
    return statement.is_named("work_jobs") and ends_runs(statement)


def alone(statement: Statement) -> bool:
    """Outcomes that travel alone."""
    return statement.is_named("finalize_jobs") and ends_runs(statement)


async def pause(scene: Scene, crew: Crew) -> None:
    await scene.database.execute("UPDATE rota.queue SET paused = true")
    await until("the pod knows that its queue is paused", lambda: crew.slots == 0)


async def resume(scene: Scene) -> None:
    await scene.database.execute("UPDATE rota.queue SET paused = false")


def ended_ids(crew: Crew) -> list[int]:
    return sorted(run.id for event in crew.told.all(JobsEnded) for run in event.runs)


@pytest.mark.parametrize("way", [merged, alone])
@pytest.mark.parametrize("at", [At.ANSWER, At.REQUEST], ids=["after the commit", "before the server"])
async def test_an_outcome_whose_answer_is_lost_is_written_once_and_counted_once(
    scene: Scene, cutter: Cutter, way: Choice, at: At
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    async with scene.crew(cutter.dsn) as crew:
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        if way is alone:
            await pause(scene, crew)
        snare = cutter.snare(way, at)
        scene.notebook.open_door()
        await (snare.answered() if at is At.ANSWER else snare.caught())
        snare.drop()
        await resume(scene)
        ended = await scene.all_end(jobs)
        assert costs(ended) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await crew.idle()
        assert ended_ids(crew) == sorted(jobs)
        assert crew.told.all(JobsLost) == []
        await scene.fills_every_slot(crew)


@pytest.mark.parametrize("way", [merged, alone])
async def test_an_outcome_held_on_a_lock_until_after_its_retry_is_written_once(
    scene: Scene, cutter: Cutter, way: Choice
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    name = "work_jobs" if way is merged else "finalize_jobs"
    async with scene.crew(cutter.dsn) as crew, other_session(scene.dsn) as other:
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        if way is alone:
            await pause(scene, crew)
        snare = cutter.snare(way, At.ANSWER)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM rota.job WHERE state = 'running' FOR UPDATE")
        scene.notebook.open_door()
        await snare.caught()
        await until("the outcome waits", lambda: scene.waits_on_a_lock(name))
        snare.cut()

        async def both_wait() -> bool:
            return await scene.waits_on_a_lock(name) >= 2

        await until("its retry waits beside it", both_wait)
        await transaction.rollback()
        await snare.answered()
        await resume(scene)
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await crew.idle()
        assert ended_ids(crew) == sorted(jobs)
        await scene.fills_every_slot(crew)


@pytest.mark.parametrize(
    ("outcome", "state", "attempt", "claim"),
    [("done", "done", 1, 1), ("dead", "dead", 1, 1), ("cancelled", "cancelled", 1, 1)],
)
async def test_an_end_is_not_written_again_by_a_request_that_arrives_late(
    scene: Scene, cutter: Cutter, outcome: str, state: str, attempt: int, claim: int
) -> None:
    snare = cutter.snare(ends_runs, At.REQUEST)
    [job] = await scene.enqueue("ends_as", payload=f'"{outcome}"')
    async with scene.crew(cutter.dsn) as crew:
        await snare.caught()
        snare.cut()
        before = await scene.all_end([job])
        await crew.idle()
        snare.deliver()
        await snare.answered()
        assert await scene.all_end([job]) == before
        row = before[job]
        assert (row["state"], row["attempt"], row["claim"]) == (state, attempt, claim)
        assert len(crew.told.all(JobsEnded)) == 1
        await scene.fills_every_slot(crew)


@pytest.mark.parametrize("outcome", ["done", "dead"])
@pytest.mark.parametrize("again", ["waits", "runs"])
async def test_a_late_request_does_not_end_a_job_that_an_operator_brought_back(
    scene: Scene, cutter: Cutter, outcome: str, again: str
) -> None:
    snare = cutter.snare(ends_runs, At.REQUEST)
    [job] = await scene.enqueue("ends_as", payload=f'"{outcome}"')
    async with scene.crew(cutter.dsn) as crew:
        await snare.caught()
        snare.cut()
        await scene.all_end([job])
        if again == "waits":
            await pause(scene, crew)
        await scene.database.execute("SELECT rota.retry_job($1)", job)
        if again == "runs":
            await until("it runs again", lambda: scene.runs_of([job]) == {job: 2})
        before = await scene.job(job)
        snare.deliver()
        await snare.answered()
        assert await scene.job(job) == before
        await resume(scene)
        scene.notebook.open_door()
        assert (await scene.all_end([job]))[job]["claim"] == 2
        await until("the pod knows its slots again", lambda: crew.slots == SLOTS)
        await scene.fills_every_slot(crew)


@pytest.mark.parametrize(("outcome", "attempt", "errors"), [("release", 1, 0), ("retry", 2, 1)])
@pytest.mark.parametrize("at", [At.ANSWER, At.REQUEST], ids=["after the commit", "before the server"])
async def test_a_job_that_goes_back_does_so_once_though_the_answer_is_lost(
    scene: Scene, cutter: Cutter, at: At, outcome: str, attempt: int, errors: int
) -> None:
    snare = cutter.snare(ends_runs, at)
    [job] = await scene.enqueue("ends_as", payload=f'"{outcome}"')
    async with scene.crew(cutter.dsn) as crew:
        await (snare.answered() if at is At.ANSWER else snare.caught())
        snare.drop()
        scene.notebook.open_door()
        row = (await scene.all_end([job]))[job]
        assert (row["state"], row["attempt"], row["rescues"]) == ("done", attempt, 0)
        assert len(json.loads(row["errors"] or "[]")) == errors
        assert scene.runs_of([job]) == {job: 2}
        await scene.fills_every_slot(crew)


@pytest.mark.parametrize(("outcome", "attempt"), [("release", 1), ("retry", 2)])
async def test_a_late_request_does_not_send_back_a_job_that_runs_again(
    scene: Scene, cutter: Cutter, outcome: str, attempt: int
) -> None:
    snare = cutter.snare(ends_runs, At.REQUEST)
    [job] = await scene.enqueue("ends_as", payload=f'"{outcome}"')
    async with scene.crew(cutter.dsn) as crew:
        await snare.caught()
        snare.cut()
        await until("it runs again", lambda: scene.runs_of([job]) == {job: 2})
        before = await scene.job(job)
        assert (before["state"], before["attempt"]) == ("running", attempt)
        snare.deliver()
        await snare.answered()
        assert await scene.job(job) == before
        scene.notebook.open_door()
        await scene.all_end([job])
        await scene.fills_every_slot(crew)


async def test_a_job_that_runs_again_is_not_confused_with_its_earlier_run_whose_outcome_is_unknown(
    scene: Scene, cutter: Cutter
) -> None:
    """The pod then knows two runs of one job: one to be written again, and one that runs."""
    snare = cutter.snare(ends_runs, At.ANSWER)
    [job] = await scene.enqueue("ends_as", payload='"retry"')
    async with scene.crew(cutter.dsn) as crew:
        await snare.answered()
        await until("it runs again", lambda: scene.runs_of([job]) == {job: 2})
        snare.cut()
        settled = await crew.tells(BatchesSettled)
        assert settled.released == 0, "a job that runs was given away"
        await until("the first outcome is acknowledged", lambda: crew.told.all(JobsEnded))
        await until("the second run alone keeps its slot", lambda: crew.in_use == 1)
        scene.notebook.open_door()
        row = (await scene.all_end([job]))[job]
        assert (row["state"], row["attempt"], row["claim"], row["rescues"]) == ("done", 2, 2, 0)
        assert scene.runs_of([job]) == {job: 2}
        await scene.fills_every_slot(crew)


async def test_a_beat_whose_answer_is_lost_costs_no_job(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    async with scene.crew(cutter.dsn) as crew:
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        beat = cutter.snare(lambda statement: statement.is_named("beat"), At.ANSWER)
        await beat.answered()
        cutter.cut_all()
        scene.notebook.open_door()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)
