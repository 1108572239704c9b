"""What operators ask for: cancel, retry, read, list; in every state a job can be in."""

from __future__ import annotations

import asyncio

import pytest

from rota.words import JobState
from tests.integration.storage.stage import KIND, QUEUE, Stage, ending, ids


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_a_waiting_job_is_cancelled_at_once(stage: Stage, delay: float) -> None:
    job = await stage.add_one(delay=delay)
    await stage.jobs.await_job(job)
    ear = await stage.listen()
    assert await stage.jobs.cancel_job(job, "not wanted") == "cancelled"
    row = await stage.job(job)
    assert (row.state, row.attempt, row.errors[-1]["message"]) == (JobState.CANCELLED, 0, "not wanted")
    assert row.ended_at is not None
    assert await ear.heard() == [f"ended:{job}"]


async def test_a_running_job_is_asked_to_stop(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    ear = await stage.listen()
    assert await stage.jobs.cancel_job(run["id"]) == "requested"
    row = await stage.job(run["id"])
    assert (row.state, row.cancelling) == (JobState.RUNNING, True)
    assert await ear.heard() == [f"cancel:{pod.id}:{run['id']}"]
    assert await stage.jobs.cancel_job(run["id"]) == "requested"


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled"])
async def test_an_ended_job_cannot_be_cancelled(stage: Stage, outcome: str) -> None:
    job = await ended(stage, outcome)
    before = await stage.job(job)
    assert await stage.jobs.cancel_job(job) == "ended"
    assert await stage.job(job) == before


async def test_a_job_that_is_not_there_is_missing(stage: Stage) -> None:
    assert await stage.jobs.cancel_job(99) == "missing"
    assert await stage.jobs.retry_job(99) == ("missing", None)
    assert await stage.jobs.read_job(99) is None


async def test_a_cancel_that_waits_for_a_claim_asks_the_run_to_stop(stage: Stage) -> None:
    job = await stage.add_one()
    pod, claimer, operator = await stage.boot(), await stage.connect(), await stage.connect()
    async with claimer.transaction():
        assert len(await stage.claim(pod, on=claimer)) == 1
        cancel = asyncio.ensure_future(stage.database.fetchval("cancel_job", job, None, on=operator))
        await stage.until_blocked(operator)
    assert await cancel == "requested"
    assert (await stage.job(job)).cancelling


async def test_a_claim_passes_over_a_job_that_is_being_cancelled(stage: Stage) -> None:
    job = await stage.add_one()
    pod, operator = await stage.boot(), await stage.connect()
    async with operator.transaction():
        assert await stage.database.fetchval("cancel_job", job, None, on=operator) == "cancelled"
        assert await stage.claim(pod) == []
    assert (await stage.job(job)).state is JobState.CANCELLED


async def test_a_cancel_that_waits_for_the_end_says_that_it_came_too_late(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    finalizer, operator = await stage.connect(), await stage.connect()
    finalize = stage.database.queries["finalize_jobs"]
    async with finalizer.transaction():
        await finalizer.execute(finalize, pod.id, pod.incarnation, [run["id"]], [run["claim"]], None, None)
        cancel = asyncio.ensure_future(stage.database.fetchval("cancel_job", run["id"], None, on=operator))
        await stage.until_blocked(operator)
    assert await cancel == "ended"


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled"])
async def test_an_ended_job_comes_back_with_all_its_attempts(stage: Stage, outcome: str) -> None:
    job = await ended(stage, outcome, dedupe="k", priority=3, note="n", tags=("t",), timeout=4.0)
    before = await stage.job(job)
    ear = await stage.listen()
    assert await stage.jobs.retry_job(job) == ("ready", None)
    after = await stage.job(job)
    assert (after.state, after.attempt, after.rescues, after.cancelling) == (JobState.READY, 0, 0, False)
    assert (after.ended_at, after.result, after.pod, after.claim) == (None, None, None, before.claim)
    kept = ["queue", "kind", "payload", "priority", "max_attempts", "created_at", "dedupe", "note", "tags"]
    kept += ["timeout", "trace", "errors"]
    assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}
    assert await ear.heard() == [f"ready:{QUEUE}"]
    assert await stage.connection.fetchval("SELECT count(*) FROM rota.history") == 0


async def test_a_job_that_came_back_is_claimed_under_a_higher_claim_number(stage: Stage) -> None:
    job = await ended(stage, "dead")
    await stage.jobs.retry_job(job)
    pod = await stage.boot()
    (run,) = await stage.claim(pod)
    assert (run["id"], run["claim"], run["attempt"]) == (job, 2, 1)
    assert await stage.done(pod, run) == []


async def test_a_scheduled_job_is_made_ready_now(stage: Stage) -> None:
    job = await stage.add_one(delay=3600.0)
    ear = await stage.listen()
    assert await stage.jobs.retry_job(job) == ("ready", None)
    assert (await stage.job(job)).state is JobState.READY
    assert await ear.heard() == [f"ready:{QUEUE}"]


async def test_a_ready_or_running_job_is_left_as_it_is(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    ready = await stage.add_one()
    before = [await stage.job(run["id"]), await stage.job(ready)]
    assert await stage.jobs.retry_job(run["id"]) == ("running", None)
    assert await stage.jobs.retry_job(ready) == ("ready", None)
    assert [await stage.job(run["id"]), await stage.job(ready)] == before


async def test_a_job_whose_key_is_taken_meanwhile_is_skipped_and_stays_ended(stage: Stage) -> None:
    job = await ended(stage, "dead", dedupe="k")
    other = await stage.add_one(dedupe="k")
    before = await stage.job(job)
    assert await stage.jobs.retry_job(job) == ("skipped", other)
    assert await stage.job(job) == before


async def test_two_who_retry_one_job_at_once_both_hear_that_it_is_ready(stage: Stage) -> None:
    job = await ended(stage, "dead")
    one, two = await stage.connect(), await stage.connect()
    async with one.transaction():
        first = await stage.database.fetchrow("retry_job", job, on=one)
        second = asyncio.ensure_future(stage.database.fetchrow("retry_job", job, on=two))
        await stage.until_blocked(two)
    assert first is not None
    answer = await second
    assert answer is not None
    assert (first["outcome"], answer["outcome"]) == ("ready", "ready")
    assert await stage.connection.fetchval("SELECT count(*) FROM rota.any_job") == 1


async def test_a_cancel_that_meets_a_retry_cancels_the_job(stage: Stage) -> None:
    job = await ended(stage, "dead")
    assert await stage.jobs.retry_job(job) == ("ready", None)
    assert await stage.jobs.cancel_job(job) == "cancelled"
    assert (await stage.job(job)).state is JobState.CANCELLED


async def test_the_newest_are_listed_first_wherever_they_are(stage: Stage) -> None:
    dead = await ended(stage, "dead")
    jobs = await stage.add(2, tags=("vip",))
    report = await stage.add_one(queue="reports", kind="report", delay=60.0)
    assert [job.id for job in await stage.jobs.list_jobs()] == [report, *jobs[::-1], dead]
    assert [job.id for job in await stage.jobs.list_jobs(most=2)] == [report, jobs[1]]
    assert [job.id for job in await stage.jobs.list_jobs(before=jobs[1])] == [jobs[0], dead]
    assert [job.id for job in await stage.jobs.list_jobs(states=[JobState.DEAD])] == [dead]
    assert [job.id for job in await stage.jobs.list_jobs(queue="reports")] == [report]
    assert [job.id for job in await stage.jobs.list_jobs(kind=KIND)] == [*jobs[::-1], dead]
    assert [job.id for job in await stage.jobs.list_jobs(tag="vip")] == jobs[::-1]
    assert await stage.jobs.list_jobs(tag="vip", states=[JobState.SCHEDULED]) == []


async def test_awaiting_an_ended_or_missing_job_is_harmless(stage: Stage) -> None:
    job = await ended(stage, "done")
    before = await stage.job(job)
    await stage.jobs.await_job(job)
    await stage.jobs.await_job(99)
    assert await stage.job(job) == before


async def test_due_jobs_become_ready_oldest_first_and_others_stay(stage: Stage) -> None:
    await stage.clock.stop()
    late, early, later = [await stage.add_one(delay=delay) for delay in (20.0, 10.0, 30.0)]
    await stage.add(queue="reports", delay=10.0)
    ear = await stage.listen()
    assert await stage.promote(10) == (0, 10.0)
    await stage.clock.advance(9.5)
    assert await stage.promote(10) == (0, 0.5)
    assert await ear.heard() == []
    await stage.clock.advance(11.5)
    assert await stage.promote(2) == (2, -1.0)
    assert sorted(await ear.heard()) == [f"ready:{QUEUE}", "ready:reports"]
    assert (await stage.job(early)).state is JobState.READY
    assert await stage.promote(2) == (1, 9.0)
    assert (await stage.job(late)).state is JobState.READY
    await stage.clock.advance(9.0)
    assert await stage.promote(2) == (1, None)
    assert (await stage.job(later)).state is JobState.READY


async def test_two_who_move_due_jobs_do_not_wait_for_each_other(stage: Stage) -> None:
    await stage.clock.stop()
    await stage.add(5, delay=1.0)
    await stage.clock.advance(1.0)
    one = await stage.connect()
    async with one.transaction():
        row = await stage.database.fetchrow("promote_jobs", *await stage.lead(), 3, on=one)
        assert row is not None
        assert row["moved"] == 3
        assert (await stage.promote(10))[0] == 2
    assert await stage.promote(10) == (0, None)


async def test_a_job_made_ready_keeps_the_time_it_was_due(stage: Stage) -> None:
    await stage.clock.stop()
    job = await stage.add_one(delay=10.0)
    due = (await stage.job(job)).scheduled_at
    await stage.clock.advance(25.0)
    await stage.promote(1)
    assert (await stage.job(job)).scheduled_at == due


async def ended(stage: Stage, outcome: str, **shape: object) -> int:
    """A job that was run and ended so."""
    pod = await stage.boot()
    run = await stage.run_one(pod, **shape)
    if outcome == "done":
        await stage.done(pod, run, results=["1"])
    else:
        await stage.end(pod, ending(run, outcome, error={"type": "E", "message": "m"}))
    assert ids(await stage.connection.fetch("SELECT id FROM rota.history")) == [run["id"]]
    job: int = run["id"]
    return job
