"""How a run ended is written once, by the pod that still owns it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rota.errors import RefusedData
from rota.storage.rows import NO_HINT, Ending
from rota.words import Incarnation, JobState, PodId
from tests.integration.storage.stage import KIND, QUEUE, Pod, Stage, batch_no, ending, ids

ERROR = {"type": "ValueError", "message": "no"}
BACK = ["retry", "release", "throttle"]


async def test_a_done_job_moves_to_history_with_its_result(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(
        pod, payload='{"a": 1}', priority=4, note="n", tags=("t",), dedupe="k", timeout=9.0, trace="00-1"
    )
    waiting = await stage.job(run["id"])
    assert await stage.done(pod, run, results=['{"b": 2}']) == []
    ended = await stage.job(run["id"])
    assert (ended.state, ended.result, ended.cancelling) == (JobState.DONE, {"b": 2}, False)
    assert ended.ended_at is not None
    kept = [
        "queue",
        "kind",
        "payload",
        "priority",
        "attempt",
        "max_attempts",
        "claim",
        "rescues",
        "created_at",
    ]
    kept += ["scheduled_at", "claimed_at", "pod", "timeout", "dedupe", "trace", "note", "tags", "progress"]
    assert {name: getattr(ended, name) for name in kept} == {name: getattr(waiting, name) for name in kept}
    assert await stage.connection.fetchval("SELECT count(*) FROM rota.job") == 0


async def test_each_of_many_gets_its_own_result(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(1_000)
    runs = sorted(await stage.claim(pod, 1_000), key=lambda run: int(run["id"]))
    results = [None if place % 3 == 0 else str(place) for place in range(1_000)]
    assert await stage.done(pod, *runs, results=results) == []
    rows = await stage.connection.fetch("SELECT result FROM rota.history WHERE state = 'done' ORDER BY id")
    assert [row["result"] for row in rows] == results


async def test_of_many_only_the_stale_ones_come_back(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(1_000)
    runs = sorted(await stage.claim(pod, 1_000), key=lambda run: int(run["id"]))
    claims = [run["claim"] + (place % 10 == 0) for place, run in enumerate(runs)]
    lost = await stage.jobs.finalize_jobs(pod.id, pod.incarnation, ids(runs), claims, None, [])
    assert sorted(lost) == ids(runs)[::10]
    assert await stage.running() == ids(runs)[::10]


@pytest.mark.parametrize("outcome", ["dead", "cancelled"])
async def test_an_end_other_than_done_keeps_its_error(stage: Stage, outcome: str) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    assert await stage.end(pod, ending(run, outcome, error=ERROR, result="7")) == []
    job = await stage.job(run["id"])
    assert (job.state.value, job.attempt, job.result) == (outcome, 1, 7)
    (error,) = job.errors
    assert error.items() >= {**ERROR, "attempt": 1}.items()


async def test_a_retry_with_a_delay_is_scheduled_and_without_one_is_ready(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=1_000.0)
    later, at_once = await stage.run_one(pod), await stage.run_one(pod)
    endings = [ending(later, "retry", delay=2.5, error=ERROR), ending(at_once, "retry", error=ERROR)]
    assert await stage.end(pod, *endings) == []
    waiting, ready = await stage.job(later["id"]), await stage.job(at_once["id"])
    assert (waiting.state, ready.state) == (JobState.SCHEDULED, JobState.READY)
    now = await stage.connection.fetchval("SELECT rota.clock()")
    assert (waiting.scheduled_at, ready.scheduled_at) == (now + timedelta(seconds=2.5), now)
    for job in (waiting, ready):
        assert (job.attempt, job.claim, job.pod, job.claimed_at) == (1, 1, None, None)
        assert len(job.errors) == 1


@pytest.mark.parametrize("outcome", ["release", "throttle"])
async def test_release_and_throttle_give_the_attempt_back(stage: Stage, outcome: str) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.end(pod, ending(run, outcome, delay=1.0))
    job = await stage.job(run["id"])
    assert (job.state, job.attempt, job.claim, job.errors) == (JobState.SCHEDULED, 0, 1, ())


async def test_a_throttle_cools_its_queue_for_the_longest_delay(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=1_000.0)
    await stage.queues.declare_queues({QUEUE: (10, None), "reports": (10, None)})
    runs = [await stage.run_one(pod) for _ in range(3)]
    await stage.end(
        pod,
        ending(runs[0], "throttle", delay=5.0),
        ending(runs[1], "throttle", delay=60.0),
        ending(runs[2], "retry", delay=90.0),
    )
    assert await cooling(stage) == {QUEUE: 60.0, "reports": None}
    assert [queue.cooling for queue in await stage.queues.list_queues()] == [True, False]
    await stage.add()
    assert await stage.claim(pod) == []


async def test_a_throttle_never_shortens_a_longer_one(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=1_000.0)
    await stage.queues.declare_queues({QUEUE: (10, None)})
    runs = [await stage.run_one(pod) for _ in range(2)]
    await stage.end(pod, ending(runs[0], "throttle", delay=60.0))
    await stage.end(pod, ending(runs[1], "throttle", delay=5.0))
    assert await cooling(stage) == {QUEUE: 60.0}


async def cooling(stage: Stage) -> dict[str, float | None]:
    rows = await stage.connection.fetch(
        "SELECT name, extract(epoch FROM cool_until - rota.clock())::float8 AS left FROM rota.queue"
    )
    return {row["name"]: row["left"] for row in rows}


@pytest.mark.parametrize("outcome", BACK)
async def test_a_job_that_is_to_be_cancelled_never_goes_back(stage: Stage, outcome: str) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    assert await stage.jobs.cancel_job(run["id"]) == "requested"
    assert await stage.end(pod, ending(run, outcome, delay=5.0, error=ERROR)) == []
    job = await stage.job(run["id"])
    assert (job.state, len(job.errors)) == (JobState.CANCELLED, 1)


async def test_a_cancel_does_not_rewrite_what_was_done(stage: Stage) -> None:
    pod = await stage.boot()
    done, dead = await stage.run_one(pod), await stage.run_one(pod)
    for run in (done, dead):
        await stage.jobs.cancel_job(run["id"])
    assert await stage.done(pod, done, results=["1"]) == []
    assert await stage.end(pod, ending(dead, "dead", error=ERROR)) == []
    assert (await stage.job(done["id"])).state is JobState.DONE
    assert (await stage.job(dead["id"])).state is JobState.DEAD


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled", *BACK])
@pytest.mark.parametrize("wrong", ["claim", "pod", "incarnation"])
async def test_a_run_that_is_not_ours_is_left_alone_and_comes_back(
    stage: Stage, outcome: str, wrong: str
) -> None:
    pod, other = await stage.boot(), await stage.boot()
    run = await stage.run_one(pod)
    before = await stage.job(run["id"])
    claim = run["claim"] + (1 if wrong == "claim" else 0)
    writer = {
        "claim": pod,
        "pod": Pod(other.id, pod.incarnation),
        "incarnation": Pod(pod.id, Incarnation(pod.incarnation + 1)),
    }[wrong]
    if outcome == "done":
        lost = await stage.jobs.finalize_jobs(writer.id, writer.incarnation, [run["id"]], [claim], ["1"], [])
    else:
        lost = await stage.end(writer, Ending(run["id"], claim, outcome, error=ERROR))
    assert lost == [run["id"]]
    assert await stage.job(run["id"]) == before


async def test_a_waiting_job_cannot_be_ended_by_anyone(stage: Stage) -> None:
    pod = await stage.boot()
    job = await stage.add_one()
    assert await stage.jobs.finalize_jobs(pod.id, pod.incarnation, [job], [0], None, []) == [job]
    assert await stage.end(pod, Ending(job, 0, "dead")) == [job]
    assert (await stage.job(job)).state is JobState.READY


async def test_a_run_of_a_job_claimed_again_since_is_stale(stage: Stage) -> None:
    pod = await stage.boot()
    first = await stage.run_one(pod)
    await stage.end(pod, ending(first, "release"))
    (second,) = await stage.claim(pod)
    assert await stage.done(pod, first) == [first["id"]]
    assert await stage.running() == [first["id"]]
    assert await stage.done(pod, second) == []


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled", *BACK])
async def test_a_finalize_sent_twice_counts_once(stage: Stage, outcome: str) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)

    async def send() -> list[int]:
        if outcome == "done":
            return await stage.done(pod, run, results=["1"])
        return await stage.end(pod, ending(run, outcome, error=ERROR, delay=60.0))

    assert await send() == []
    written = await stage.job(run["id"])
    assert await send() == [run["id"]]
    assert await stage.job(run["id"]) == written


async def test_a_finalize_that_waits_for_its_own_first_sending_counts_once(stage: Stage) -> None:
    """The connection was cut, the first statement lingers in the server, and the retry arrives."""
    pod = await stage.boot()
    run = await stage.run_one(pod)
    one, two = await stage.connect(), await stage.connect()
    finalize = stage.database.queries["finalize_jobs"]
    arguments: list[Any] = [pod.id, pod.incarnation, [run["id"]], [run["claim"]], ["1"], None]
    async with one.transaction():
        assert await one.fetchval(finalize, *arguments) == []
        second = asyncio.ensure_future(two.fetchval(finalize, *arguments))
        await stage.until_blocked(two)
    assert await second == [run["id"]]
    assert (await stage.job(run["id"])).state is JobState.DONE


async def test_all_outcomes_can_be_written_in_one_call(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(9)
    runs = await stage.claim(pod)
    outcomes = ["dead", "cancelled", *BACK]
    others = [ending(run, outcome) for run, outcome in zip(runs[4:], outcomes, strict=True)]
    stale = Ending(runs[0]["id"] + 1_000_000, 1, "dead")
    lost = await stage.jobs.finalize_jobs(
        pod.id,
        pod.incarnation,
        ids(runs[:4]),
        [run["claim"] for run in runs[:3]] + [99],
        None,
        [*others, stale],
    )
    assert sorted(lost) == sorted([runs[3]["id"], stale.id])
    states = [(await stage.job(run["id"])).state.value for run in runs]
    assert states == ["done"] * 3 + ["running", "dead", "cancelled", "ready", "ready", "ready"]


async def test_the_error_history_keeps_the_last_32(stage: Stage) -> None:
    pod = await stage.boot()
    job = await stage.add_one(max_attempts=100)
    for number in range(40):
        (run,) = await stage.claim(pod)
        await stage.end(pod, ending(run, "retry", error={"type": "E", "message": str(number)}))
    errors = (await stage.job(job)).errors
    assert [error["message"] for error in errors] == [str(number) for number in range(8, 40)]
    assert [error["attempt"] for error in errors] == list(range(9, 41))


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled"])
async def test_only_the_end_of_an_awaited_job_is_told(stage: Stage, outcome: str) -> None:
    pod = await stage.boot()
    awaited, ignored = await stage.run_one(pod), await stage.run_one(pod)
    await stage.jobs.await_job(awaited["id"])
    ear = await stage.listen()
    for run in (awaited, ignored):
        if outcome == "done":
            await stage.done(pod, run)
        else:
            await stage.end(pod, ending(run, outcome))
    assert await ear.heard() == [f"ended:{awaited['id']}"]


async def test_an_awaited_job_stays_awaited_through_a_retry(stage: Stage) -> None:
    pod = await stage.boot()
    job = await stage.add_one()
    await stage.jobs.await_job(job)
    (run,) = await stage.claim(pod)
    await stage.end(pod, ending(run, "retry"))
    (run,) = await stage.claim(pod)
    ear = await stage.listen()
    await stage.done(pod, run)
    assert await ear.heard() == [f"ended:{job}"]


async def test_jobs_that_go_back_wake_their_queue_or_whoever_moves_due_jobs(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=1_000.0)
    runs = [await stage.run_one(pod) for _ in range(4)]
    ear = await stage.listen()
    delays = (0.0, 30.0, 20.0, 3600.0)
    await stage.end(
        pod, *(ending(run, "retry", delay=delay) for run, delay in zip(runs, delays, strict=True))
    )
    due, ready = sorted(await ear.heard())
    assert (due.partition(":")[0], float(due.partition(":")[2]), ready) == ("due", 20.0, f"ready:{QUEUE}")


async def test_finalize_and_claim_share_one_round_trip(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(4)
    runs = sorted(await stage.claim(pod, 2), key=lambda run: int(run["id"]))
    rows = await stage.jobs.work_jobs(
        pod.id,
        pod.incarnation,
        batch_no(9),
        QUEUE,
        2,
        [KIND],
        [NO_HINT],
        ids(runs),
        [runs[0]["claim"], 99],
        None,
        [],
    )
    lost, *claimed = rows
    assert (lost["id"], lost["kind"]) == (runs[1]["id"], None)
    assert len(claimed) == 2
    assert await stage.running() == sorted([runs[1]["id"], *ids(claimed)])


async def test_a_pod_that_may_not_claim_can_still_finalize(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    await stage.add()
    await stage.pods.drain_pod(pod.id, pod.incarnation)
    rows = await stage.jobs.work_jobs(
        pod.id,
        pod.incarnation,
        batch_no(9),
        QUEUE,
        5,
        [KIND],
        [NO_HINT],
        [run["id"]],
        [run["claim"]],
        None,
        [],
    )
    assert rows == []
    assert (await stage.job(run["id"])).state is JobState.DONE


async def test_progress_is_written_by_the_run_that_owns_the_job_only(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    told = (run["id"], run["claim"], '{"at": 1}')
    await stage.jobs.write_progress(pod.id, pod.incarnation, [told])
    await stage.jobs.write_progress(pod.id, pod.incarnation, [(run["id"], run["claim"] + 1, "2")])
    await stage.jobs.write_progress(PodId(uuid4()), pod.incarnation, [(run["id"], run["claim"], "3")])
    await stage.jobs.write_progress(pod.id, Incarnation(99), [(run["id"], run["claim"], "4")])
    assert (await stage.job(run["id"])).progress == {"at": 1}
    await stage.done(pod, run)
    assert (await stage.job(run["id"])).progress == {"at": 1}


@pytest.mark.parametrize("text", [r'"\u0000"', '{"a": '])
async def test_a_result_or_error_that_postgres_cannot_hold_is_refused_data(stage: Stage, text: str) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    with pytest.raises(RefusedData):
        await stage.end(pod, ending(run, "dead", result=text))
    assert await stage.running() == [run["id"]]
