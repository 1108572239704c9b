"""A pod that drains hands its jobs back, and the connection is cut over it."""

from __future__ import annotations

import pytest

from rota.events import PodLeft
from tests.support.crash_scene import SLOTS, UNHARMED, Crew, Scene, costs, other_session
from tests.support.cutter import At, Cutter, ends_runs, named
from tests.support.until import until

JOBS = 2 * SLOTS
SHORT = 0.1
"""Seconds of grace: no handler here ends by itself."""


async def fill(scene: Scene) -> None:
    await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)


async def finish_elsewhere(scene: Scene, jobs: list[int]) -> None:
    """Another pod ends what was handed back; no attempt was burned."""
    scene.notebook.open_door()
    async with scene.crew() as crew:
        ended = await scene.all_end(jobs)
        assert {(row["state"], row["attempt"]) for row in ended.values()} == {("done", 1)}
        await scene.fills_every_slot(crew)


def left_clean(crew: Crew) -> list[bool]:
    return [event.clean for event in crew.told.all(PodLeft)]


@pytest.mark.parametrize("at", [At.ANSWER, At.REQUEST], ids=["after the commit", "before the server"])
async def test_a_release_whose_answer_is_lost_hands_every_job_back(
    scene: Scene, cutter: Cutter, at: At
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    async with scene.crew(cutter.dsn, grace=SHORT) as crew:
        await fill(scene)
        snare = cutter.snare(ends_runs, at)
        leaving = crew.leave()
        await (snare.answered() if at is At.ANSWER else snare.caught())
        snare.drop()
        await leaving
        assert left_clean(crew) == [True]
        assert await scene.running() == []
        assert await scene.database.fetchval("SELECT count(*) FROM rota.pod") == 0
        costs_so_far = await scene.database.fetch("SELECT DISTINCT state, attempt, rescues FROM rota.job")
        assert [tuple(row) for row in costs_so_far] == [("ready", 0, 0)]
    await finish_elsewhere(scene, jobs)


async def test_a_release_that_arrives_late_gives_the_attempt_back_only_once(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", SLOTS)
    async with scene.crew(cutter.dsn, grace=SHORT) as crew:
        await fill(scene)
        snare = cutter.snare(ends_runs, At.REQUEST)
        leaving = crew.leave()
        await snare.caught()
        snare.cut()
        await leaving
        before = [await scene.job(job) for job in jobs]
        assert {(row["state"], row["attempt"]) for row in before} == {("ready", 0)}
        snare.deliver()
        await snare.answered()
        assert [await scene.job(job) for job in jobs] == before
    await finish_elsewhere(scene, jobs)


async def test_a_release_that_arrives_late_takes_no_job_from_whoever_has_it_now(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", SLOTS)
    async with scene.crew(cutter.dsn, grace=SHORT) as crew:
        await fill(scene)
        snare = cutter.snare(ends_runs, At.REQUEST)
        leaving = crew.leave()
        await snare.caught()
        snare.cut()
        await leaving
        async with scene.crew() as other:
            await until("another runs them", lambda: len(scene.notebook.runs()) == 2 * SLOTS)
            snare.deliver()
            await snare.answered()
            assert await scene.running() == jobs
            scene.notebook.open_door()
            assert costs(await scene.all_end(jobs)) == UNHARMED
            await scene.fills_every_slot(other)


async def test_a_release_held_on_a_lock_until_after_its_retry_hands_back_once(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    async with scene.crew(cutter.dsn, grace=SHORT) as crew, other_session(scene.dsn) as other:
        await fill(scene)
        snare = cutter.snare(ends_runs, At.ANSWER)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM rota.job WHERE state = 'running' FOR UPDATE")
        leaving = crew.leave()
        await snare.caught()
        await until("the release waits", lambda: scene.waits_on_a_lock("finalize_jobs"))
        snare.cut()

        async def both_wait() -> bool:
            return await scene.waits_on_a_lock("finalize_jobs") >= 2

        await until("its retry waits beside it", both_wait)
        await transaction.rollback()
        await leaving
        assert left_clean(crew) == [True]
        attempts = await scene.database.fetch("SELECT DISTINCT attempt FROM rota.job")
        assert [row["attempt"] for row in attempts] == [0]
    await finish_elsewhere(scene, jobs)


async def test_a_release_held_on_a_lock_until_after_its_pod_has_gone_burns_no_attempt(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    async with scene.crew(cutter.dsn, grace=SHORT) as crew, other_session(scene.dsn) as other:
        await fill(scene)
        snare = cutter.snare(ends_runs, At.ANSWER)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM rota.job WHERE state = 'running' FOR UPDATE")
        leaving = crew.leave()
        await until("the release waits", lambda: scene.waits_on_a_lock("finalize_jobs"))
        snare.cut()
        await leaving
        assert left_clean(crew) == [False]
        assert len(await scene.running()) == SLOTS
        await transaction.rollback()
    await scene.let_pods_expire()
    await finish_elsewhere(scene, jobs)


async def test_a_pod_that_leaves_a_handler_behind_burns_no_attempt_though_saying_so_was_cut_off(
    scene: Scene, cutter: Cutter
) -> None:
    """The pod could not say that it drains; its row must not expire as that of a pod that died."""
    [job] = await scene.enqueue("deaf_at_first")
    async with scene.crew(cutter.dsn, grace=0.5) as crew:
        await until("it runs", scene.notebook.runs)
        snare = cutter.snare(named("drain_pod"), At.REQUEST)
        leaving = crew.leave()
        await snare.caught()
        snare.drop()
        await leaving
        assert left_clean(crew) == [False]
        await scene.let_pods_expire()
        async with scene.crew():
            ended = await scene.all_end([job])
            assert (ended[job]["state"], ended[job]["attempt"]) == ("done", 1)
        scene.notebook.open_door()


async def test_a_leave_whose_answer_is_lost_leaves_nothing_behind(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    async with scene.crew(cutter.dsn, grace=SHORT) as crew:
        await fill(scene)
        snare = cutter.snare(named("leave_pod"), At.ANSWER)
        leaving = crew.leave()
        await snare.answered()
        snare.cut()
        await leaving
        assert await scene.database.fetchval("SELECT count(*) FROM rota.pod") == 0
    await finish_elsewhere(scene, jobs)
