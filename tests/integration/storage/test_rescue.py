"""Running jobs whose pod is gone become ready again, by state and not by event."""

from __future__ import annotations

import asyncio

import pytest

from rota.words import Incarnation, JobState
from tests.integration.storage.stage import QUEUE, Pod, Stage, ending, ids


async def lose(stage: Stage, *pods: Pod, max_rescues: int = 3) -> int:
    """Let pods expire that do not beat any more."""
    await stage.connection.execute(
        "UPDATE rota.pod SET expires_at = rota.clock() WHERE id = ANY ($1)", [pod.id for pod in pods]
    )
    expired, rescued = await stage.pods.sweep_pods(max_rescues)
    assert sorted(expired) == sorted(pod.id for pod in pods)
    return rescued


async def test_only_pods_whose_time_has_run_out_expire(stage: Stage) -> None:
    await stage.clock.stop()
    short, long = await stage.boot(ttl=10.0), await stage.boot(ttl=20.0)
    kept = await stage.run_one(long)
    await stage.clock.advance(9.99)
    assert await stage.pods.sweep_pods(3) == ([], 0)
    await stage.clock.advance(0.01)
    assert await stage.pods.sweep_pods(3) == ([short.id], 0)
    assert [pod.id for pod in await stage.pods.list_pods()] == [long.id]
    assert await stage.running() == [kept["id"]]


async def test_a_rescued_job_is_ready_with_its_attempt_counted(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    ear = await stage.listen()
    assert await lose(stage, pod) == 1
    job = await stage.job(run["id"])
    assert (job.state, job.attempt, job.claim, job.rescues) == (JobState.READY, 1, 1, 1)
    assert (job.pod, job.claimed_at) == (None, None)
    (error,) = job.errors
    assert (error["message"], error["attempt"], error["pod"]) == ("pod lost", 1, str(pod.id))
    assert await ear.heard() == [f"ready:{QUEUE}", "plan:a pod fell silent"]


async def test_a_rescued_job_is_claimed_again_under_a_higher_claim_number(stage: Stage) -> None:
    lost, other = await stage.boot(), await stage.boot()
    run = await stage.run_one(lost)
    await lose(stage, lost)
    (again,) = await stage.claim(other)
    assert (again["id"], again["claim"], again["attempt"]) == (run["id"], 2, 2)
    assert await stage.done(lost, run) == [run["id"]]
    assert await stage.done(other, again) == []


async def test_a_draining_pods_jobs_get_their_attempt_back(stage: Stage) -> None:
    pod = await stage.boot()
    run, last = await stage.run_one(pod), await stage.run_one(pod, max_attempts=1)
    await stage.pods.drain_pod(pod.id, pod.incarnation)
    assert await lose(stage, pod) == 2
    for id in (run["id"], last["id"]):
        job = await stage.job(id)
        assert (job.state, job.attempt, job.rescues) == (JobState.READY, 0, 1)


async def test_a_draining_boot_that_is_registered_over_costs_no_attempt_either(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.pods.drain_pod(pod.id, pod.incarnation)
    again = await stage.boot(pod.id)
    assert (await stage.job(run["id"])).attempt == 0
    assert ids(await stage.claim(again)) == [run["id"]], "the new boot is not draining"


async def test_a_job_that_loses_its_pod_on_its_last_attempt_is_dead(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, max_attempts=1)
    await stage.jobs.await_job(run["id"])
    ear = await stage.listen()
    assert await lose(stage, pod) == 1
    job = await stage.job(run["id"])
    assert (job.state, job.errors[-1]["message"]) == (JobState.DEAD, "pod lost")
    assert await ear.heard() == [f"ended:{run['id']}", "plan:a pod fell silent"]


@pytest.mark.parametrize("draining", [False, True])
async def test_a_job_that_lost_its_pod_three_times_is_dead(stage: Stage, draining: bool) -> None:
    await stage.queues.declare_queues({QUEUE: (10, None)})
    job = await stage.add_one(max_attempts=100)
    states = []
    for _ in range(3):
        pod = await stage.boot()
        assert len(await stage.claim(pod) or await stage.claim_alone(pod, job)) == 1
        if draining:
            await stage.pods.drain_pod(pod.id, pod.incarnation)
        await lose(stage, pod)
        states.append((await stage.job(job)).state.value)
    assert states == ["ready", "ready", "dead"]
    assert (await stage.job(job)).errors[-1]["message"] == "pod lost"


async def test_a_job_that_is_to_be_cancelled_ends_cancelled(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.jobs.cancel_job(run["id"])
    await lose(stage, pod)
    assert (await stage.job(run["id"])).state is JobState.CANCELLED


async def test_jobs_of_a_pod_without_a_row_are_rescued_though_nobody_expires(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.connection.execute("DELETE FROM rota.pod")
    assert await stage.pods.sweep_pods(3) == ([], 1)
    assert (await stage.job(run["id"])).state is JobState.READY


async def test_jobs_of_an_earlier_boot_are_rescued_though_the_pod_lives(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.connection.execute("UPDATE rota.pod SET incarnation = incarnation + 1")
    assert await stage.pods.sweep_pods(3) == ([], 1)
    assert (await stage.job(run["id"])).state is JobState.READY


async def test_a_rescue_does_not_wait_for_a_job_that_is_being_finalized(stage: Stage) -> None:
    pod = await stage.boot()
    first, second = await stage.run_one(pod), await stage.run_one(pod)
    finalizer = await stage.connect()
    async with finalizer.transaction():
        await finalizer.execute(
            stage.database.queries["finalize_jobs"],
            pod.id,
            pod.incarnation,
            [first["id"]],
            [first["claim"]],
            None,
            None,
        )
        assert await lose(stage, pod) == 1
    assert (await stage.job(first["id"])).state is JobState.DONE
    assert (await stage.job(second["id"])).state is JobState.READY


async def test_a_finalize_that_waits_for_a_rescue_changes_nothing(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    rescuer, finalizer = await stage.connect(), await stage.connect()
    await stage.connection.execute("UPDATE rota.pod SET expires_at = rota.clock()")
    async with rescuer.transaction():
        await stage.database.fetchrow("sweep_pods", 3, on=rescuer)
        done = asyncio.ensure_future(
            stage.database.fetchval(
                "finalize_jobs",
                pod.id,
                pod.incarnation,
                [run["id"]],
                [run["claim"]],
                None,
                None,
                on=finalizer,
            )
        )
        await stage.until_blocked(finalizer)
    assert await done == [run["id"]]
    assert (await stage.job(run["id"])).state is JobState.READY


GATE = """
    CREATE FUNCTION public.gate() RETURNS boolean LANGUAGE plpgsql VOLATILE COST 0.0001
    AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN true; END $$;
    ALTER TABLE rota.pod RENAME TO pod_behind_the_gate;
    CREATE VIEW rota.pod AS SELECT * FROM rota.pod_behind_the_gate WHERE public.gate();
"""


async def test_a_slow_rescue_does_not_take_a_job_from_a_pod_it_cannot_see_yet(stage: Stage) -> None:
    """A rescue is held up while it reads the pods; meanwhile another rescues the job, and a boot
    that was not there when the first one looked claims it."""
    lost = await stage.boot()
    run = await stage.run_one(lost)
    await stage.connection.execute("UPDATE rota.pod SET incarnation = nextval('rota.incarnation')")
    await stage.connection.execute(GATE)
    slow, quick = await stage.connect(), await stage.connect()
    async with quick.transaction():
        await quick.execute("SELECT pg_advisory_xact_lock(1)")
        rescue = asyncio.ensure_future(slow.fetch("SELECT * FROM rota.rescue_jobs(1000, 3)"))
        await stage.until_blocked(slow)
        assert len(await quick.fetch("SELECT * FROM rota.rescue_jobs(1000, 3)")) == 1
        standing = await quick.fetchval("SELECT incarnation FROM rota.pod WHERE id = $1", lost.id)
        incarnation = Incarnation(await stage.boot_on(quick, lost.id, replaces=standing))
        assert ids(await stage.claim(Pod(lost.id, incarnation), on=quick)) == [run["id"]]
    assert await rescue == []
    assert await stage.running() == [run["id"]]


async def test_a_pod_with_more_jobs_than_one_sweep_takes_is_rescued_by_several(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(1_500)
    assert len(await stage.claim(pod, 1_500)) == 1_500
    assert await lose(stage, pod) == 1_000
    assert await stage.pods.sweep_pods(3) == ([], 500)
    assert await stage.running() == []


async def test_a_draining_pod_with_more_jobs_than_one_sweep_takes_burns_no_attempt(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(1_500)
    await stage.claim(pod, 1_500)
    await stage.pods.drain_pod(pod.id, pod.incarnation)
    rescued = await lose(stage, pod)
    while rescued < 1_500:
        rescued += (await stage.pods.sweep_pods(3))[1]
    assert await stage.connection.fetchval("SELECT max(attempt) FROM rota.job") == 0


async def test_a_run_that_ended_before_its_pod_was_lost_stays_ended(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.end(pod, ending(run, "dead"))
    assert await lose(stage, pod) == 0
    assert (await stage.job(run["id"])).rescues == 0
