"""A claim whose answer never came leaves nothing running on a live pod, however late it arrives."""

from __future__ import annotations

import asyncio

import pytest

from rota.words import JobState
from tests.integration.storage.stage import QUEUE, Stage, ids


async def test_jobs_of_unknown_batches_go_back_with_their_attempt(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(3)
    (lost,) = await stage.claim(pod, 1, batch=1)
    (known,) = await stage.claim(pod, 1, batch=2)
    (later,) = await stage.claim(pod, 1, batch=3)
    ear = await stage.listen()
    assert await stage.settle(pod, 3, known=[2]) == 1
    job = await stage.job(lost["id"])
    assert (job.state, job.attempt, job.claim, job.rescues) == (JobState.READY, 0, 1, 0)
    assert (job.pod, job.claimed_at) == (None, None)
    assert await stage.running() == sorted([known["id"], later["id"]])
    assert await ear.heard() == [f"ready:{QUEUE}"]
    assert await stage.done(pod, lost) == [lost["id"]]


async def test_other_pods_and_boots_are_left_alone(stage: Stage) -> None:
    pod, other = await stage.boot(), await stage.boot()
    theirs = await stage.run_one(other)
    assert await stage.settle(pod, 100) == 0
    assert await stage.running() == [theirs["id"]]
    retired = await stage.boot(pod.id)
    ours = await stage.run_one(retired)
    assert await stage.settle(pod, 100) == 0
    assert await stage.running() == sorted([theirs["id"], ours["id"]])
    assert len(await stage.add()) == len(await stage.claim(retired, batch=50)), "and may still claim"


async def test_a_job_that_is_to_be_cancelled_ends_cancelled(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add()
    (run,) = await stage.claim(pod, batch=1)
    await stage.jobs.cancel_job(run["id"])
    await stage.jobs.await_job(run["id"])
    ear = await stage.listen()
    await stage.settle(pod, 2)
    assert (await stage.job(run["id"])).state is JobState.CANCELLED
    assert await ear.heard() == [f"ended:{run['id']}"]


async def test_a_claim_of_a_settled_batch_that_comes_late_takes_nothing(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add()
    await stage.settle(pod, 7)
    assert await stage.claim(pod, batch=6) == []
    assert await stage.running() == []


async def test_settling_again_with_a_lower_number_reopens_nothing(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add()
    await stage.settle(pod, 7)
    await stage.settle(pod, 3)
    assert await stage.claim(pod, batch=6) == []


@pytest.mark.parametrize("first", ["claim", "settle"])
async def test_a_claim_and_a_settle_that_both_wait_leave_nothing_running(stage: Stage, first: str) -> None:
    """The row is held by another; the two queue up behind it in either order."""
    pod = await stage.boot()
    jobs = await stage.add(3)
    holder, claimer, settler = [await stage.connect() for _ in range(3)]
    async with stage.lock_pod(pod, by=holder):
        if first == "claim":
            claim = asyncio.ensure_future(stage.claim(pod, batch=1, on=claimer))
            await stage.until_blocked(claimer)
        settle = asyncio.ensure_future(stage.settle(pod, 2, on=settler))
        await stage.until_blocked(settler)
        if first == "settle":
            claim = asyncio.ensure_future(stage.claim(pod, batch=1, on=claimer))
            await stage.until_blocked(claimer)
    taken, released = await asyncio.gather(claim, settle)
    assert len(taken) == released
    assert await stage.running() == []
    assert {(await stage.job(job)).attempt for job in jobs} == {0}


async def test_a_settle_waits_for_a_claim_that_is_open_and_releases_what_it_took(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(3)
    claimer, settler = await stage.connect(), await stage.connect()
    async with claimer.transaction():
        taken = ids(await stage.claim(pod, batch=1, on=claimer))
        settle = asyncio.ensure_future(stage.settle(pod, 2, on=settler))
        await stage.until_blocked(settler)
    assert (len(taken), await settle) == (3, 3)
    assert await stage.running() == []


async def test_a_claim_that_waits_for_an_open_settle_takes_nothing(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(3)
    claimer, settler = await stage.connect(), await stage.connect()
    async with settler.transaction():
        assert await stage.settle(pod, 2, on=settler) == 0
        claim = asyncio.ensure_future(stage.claim(pod, batch=1, on=claimer))
        await stage.until_blocked(claimer)
    assert await claim == []


async def test_a_settle_does_not_release_what_a_finalize_is_ending(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add()
    (run,) = await stage.claim(pod, batch=1)
    finalizer, settler = await stage.connect(), await stage.connect()
    finalize = stage.database.queries["finalize_jobs"]
    async with finalizer.transaction():
        await finalizer.execute(finalize, pod.id, pod.incarnation, [run["id"]], [run["claim"]], None, None)
        settle = asyncio.ensure_future(stage.settle(pod, 2, on=settler))
        await stage.until_blocked(settler)
    assert await settle == 0
    assert (await stage.job(run["id"])).state is JobState.DONE
