"""What becomes of a job for everything its handler may do, on a real pod and a real database."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel

from rota import (
    App,
    Cancelled,
    Context,
    Dead,
    Exponential,
    Failed,
    Fixed,
    JobFailed,
    JobState,
    Release,
    Throttled,
)
from rota.runtime.outcome import Outcome
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, running, soon

FAR = 600.0


class Order(BaseModel):
    number: int
    lines: list[str] = []


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("raises", [True, False], ids=["raised", "returned"])
@pytest.mark.parametrize(
    ("outcome", "state", "attempt", "reason"),
    [
        (Release(FAR), JobState.SCHEDULED, 0, None),
        (Throttled(FAR), JobState.SCHEDULED, 0, None),
        (Failed("no stock"), JobState.SCHEDULED, 1, "no stock"),
        (Dead("no such order"), JobState.DEAD, 1, "no such order"),
        (Cancelled("not wanted"), JobState.CANCELLED, 1, "not wanted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Outcome) else "",
)
async def test_an_outcome_is_the_same_returned_or_raised(
    app: App,
    told: Recorder,
    outcome: Outcome,
    raises: bool,
    state: JobState,
    attempt: int,
    reason: str | None,
) -> None:
    @app.job(queue=QUEUE, retry=Fixed(FAR))
    async def handle() -> Any:
        if raises:
            raise outcome
        return outcome

    async with running(app):
        job = await handle.enqueue()
        await ended(told, job)
        row = await job.status()
    assert (row.state, row.attempt) == (state, attempt)
    assert [error["message"] for error in row.errors] == ([reason] if reason else [])


async def test_what_a_handler_returns_is_its_result(app: App) -> None:
    @app.job(queue=QUEUE)
    async def add(order: Order) -> dict[str, Any]:
        return {"number": order.number + 1, "lines": order.lines}

    async with running(app):
        job = await add.enqueue(Order(number=1, lines=["ü", "😀", "a\\u0000b"]))
        assert await job.result(PATIENCE) == {"number": 2, "lines": ["ü", "😀", "a\\u0000b"]}


@pytest.mark.parametrize("value", [0, "", [], {}, False, "null", 1.5, None])
async def test_a_result_that_is_falsy_is_a_result(app: App, value: Any) -> None:
    @app.job(queue=QUEUE)
    async def give() -> Any:
        return value

    async with running(app):
        assert await (await give.enqueue()).result(PATIENCE) == value


async def test_a_large_number_comes_back_whole(app: App) -> None:
    @app.job(queue=QUEUE)
    async def same(number: int) -> int:
        return number

    async with running(app):
        assert await (await same.enqueue(2**70 + 1)).result(PATIENCE) == 2**70 + 1


async def test_a_typed_payload_reaches_the_handler_as_its_type(app: App) -> None:
    seen: list[Any] = []

    @app.job(queue=QUEUE)
    async def handle(ctx: Context, order: Order) -> None:
        seen.append(order)

    async with running(app):
        await (await handle.enqueue(Order(number=7, lines=["a"]))).result(PATIENCE)
        raw = await app.enqueue_raw("handle", {"number": 8})
        await raw.result(PATIENCE)
    assert seen == [Order(number=7, lines=["a"]), Order(number=8)]


async def test_a_failed_job_is_run_again_until_it_succeeds(app: App) -> None:
    attempts: list[tuple[int, int]] = []

    @app.job(queue=QUEUE, retry=Fixed(0.01))
    async def flaky(ctx: Context) -> str:
        attempts.append((ctx.attempt, ctx.claim))
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return "at last"

    async with running(app):
        job = await flaky.enqueue()
        assert await job.result(PATIENCE) == "at last"
        row = await job.status()
    assert attempts == [(1, 1), (2, 2), (3, 3)]
    assert [(error["attempt"], error["message"]) for error in row.errors] == [
        (1, "attempt 1"),
        (2, "attempt 2"),
    ]


async def test_a_job_without_attempts_left_is_dead_with_its_whole_history(app: App) -> None:
    @app.job(queue=QUEUE, retry=Fixed(0), max_attempts=3)
    async def hopeless(ctx: Context) -> None:
        raise ValueError(f"no {ctx.attempt}")

    async with running(app):
        job = await hopeless.enqueue({"kept": 1}, note="why", tags=["a"])
        with pytest.raises(JobFailed, match="ended dead: no 3") as failed:
            await job.result(PATIENCE)
        row = await job.status()
    assert (failed.value.state, failed.value.job) == (JobState.DEAD, job.id)
    assert (row.state, row.attempt, row.payload, row.note, row.tags) == (
        JobState.DEAD,
        3,
        {"kept": 1},
        "why",
        ("a",),
    )
    assert [error["message"] for error in row.errors] == ["no 1", "no 2", "no 3"]
    assert all("ValueError" in error["traceback"] and error["at"] for error in row.errors)


async def test_error_history_keeps_the_last_32(app: App) -> None:
    @app.job(queue=QUEUE, retry=Fixed(0), max_attempts=40)
    async def hopeless(ctx: Context) -> None:
        raise Failed(str(ctx.attempt))

    async with running(app):
        job = await hopeless.enqueue()
        with pytest.raises(JobFailed):
            await job.result(PATIENCE)
        row = await job.status()
    assert [error["message"] for error in row.errors] == [str(attempt) for attempt in range(9, 41)]


async def test_the_wait_before_a_retry_is_the_policys_with_jitter(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    @app.job(queue=QUEUE, retry=Exponential(base=1000, longest=1000))
    async def fails() -> None:
        raise Failed("x")

    async with running(app):
        jobs = await app.enqueue_many([fails.request() for _ in range(20)])
        for job in jobs:
            await ended(told, job)
    waits = await connection.fetch(
        "SELECT extract(epoch FROM scheduled_at - rota.clock()) AS wait FROM rota.job"
    )
    assert all(700 <= row["wait"] <= 1250 for row in waits)
    assert len({round(row["wait"]) for row in waits}) > 5


async def test_the_kinds_policy_goes_before_the_queues_before_the_default(app: App, told: Recorder) -> None:
    app.queue(QUEUE, retry=Fixed(0))
    attempts: dict[str, int] = {"by_queue": 0, "by_kind": 0}

    @app.job(queue=QUEUE, max_attempts=2)
    async def by_queue(ctx: Context) -> None:
        attempts[ctx.kind] += 1
        raise Failed("x")

    @app.job(queue=QUEUE, max_attempts=2, retry=Fixed(FAR))
    async def by_kind(ctx: Context) -> None:
        attempts[ctx.kind] += 1
        raise Failed("x")

    async with running(app):
        slow = await by_kind.enqueue()
        await ended(told, slow)
        with pytest.raises(JobFailed):
            await (await by_queue.enqueue()).result(PATIENCE)
        assert (await slow.status()).state is JobState.SCHEDULED
    assert attempts == {"by_queue": 2, "by_kind": 1}


async def test_a_fatal_error_is_dead_at_the_first_attempt(app: App) -> None:
    @app.job(queue=QUEUE, fatal=(LookupError,), retry=Fixed(0))
    async def seek() -> None:
        raise KeyError("nowhere")

    async with running(app):
        job = await seek.enqueue()
        with pytest.raises(JobFailed, match="nowhere"):
            await job.result(PATIENCE)
        assert (await job.status()).attempt == 1


async def test_a_released_job_runs_again_with_the_same_attempt_and_a_higher_claim(app: App) -> None:
    runs: list[tuple[int, int]] = []

    @app.job(queue=QUEUE, max_attempts=1)
    async def patient(ctx: Context) -> None:
        runs.append((ctx.attempt, ctx.claim))
        if len(runs) < 4:
            raise Release

    async with running(app):
        job = await patient.enqueue()
        await job.result(PATIENCE)
        assert (await job.status()).errors == ()
    assert runs == [(1, 1), (1, 2), (1, 3), (1, 4)]


async def test_a_throttle_cools_the_whole_queue_and_no_other(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    ran: list[str] = []

    @app.job(queue=QUEUE)
    async def throttled() -> None:
        raise Throttled(FAR)

    @app.job(queue=QUEUE)
    async def neighbour() -> None:
        ran.append("neighbour")

    @app.job(queue="other")
    async def elsewhere() -> None:
        ran.append("elsewhere")

    async with running(app, QUEUE, "other") as pod:
        job = await throttled.enqueue()
        await ended(told, job)
        await pod.settled()
        waits = await neighbour.enqueue()
        await (await elsewhere.enqueue()).result(PATIENCE)
        row = await job.status()
        assert (row.state, row.attempt) == (JobState.SCHEDULED, 0)
        await pod.settled()
        assert ran == ["elsewhere"]
        assert [queue.cooling for queue in await app.queues.list_queues()] == [True, False][::-1]
        await connection.execute("UPDATE rota.queue SET cool_until = rota.clock()")
        await waits.result(PATIENCE)
    assert ran == ["elsewhere", "neighbour"]


async def test_an_upstreams_short_hint_is_honoured_and_the_job_comes_back(app: App) -> None:
    runs: list[int] = []

    @app.job(queue=QUEUE, max_attempts=1)
    async def throttled(ctx: Context) -> str:
        runs.append(ctx.attempt)
        if len(runs) == 1:
            raise Throttled(0.05)
        return "done"

    async with running(app):
        assert await (await throttled.enqueue()).result(PATIENCE) == "done"
    assert runs == [1, 1]


def raiser(error: BaseException) -> Any:
    async def handle() -> None:
        raise error

    return handle


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        StopIteration(),
        BaseExceptionGroup("several", [SystemExit(), ValueError()]),
        MemoryError(),
        RecursionError(),
        Unspeakable(),
        ValueError("a\x00b\ud800" + "x" * 100_000),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_fails_only_its_own_job(app: App, error: BaseException) -> None:
    app.job(queue=QUEUE, kind="bad", max_attempts=1)(raiser(error))

    @app.job(queue=QUEUE)
    async def good() -> str:
        return "fine"

    async with running(app) as pod:
        job = await app.enqueue_raw("bad")
        with pytest.raises(JobFailed):
            await job.result(PATIENCE)
        assert (await job.status()).state is JobState.DEAD
        assert await (await good.enqueue()).result(PATIENCE) == "fine"
        assert not pod.task.done()
        assert pod.use().running == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "The result of odd cannot be written as JSON"),
        (b"\xff", "The result of odd cannot be written as JSON"),
        ("a\x00b", "The result of odd holds a NUL"),
        ("\ud800", "The result of odd cannot be written as JSON"),
        ("x" * (1024 * 1024), "The result of odd has 1,048,578 bytes"),
    ],
)
async def test_a_result_that_cannot_be_kept_is_dead_with_the_reason(app: App, value: Any, said: str) -> None:
    @app.job(queue=QUEUE, retry=Fixed(0))
    async def odd() -> Any:
        return value

    async with running(app):
        job = await odd.enqueue()
        with pytest.raises(JobFailed, match=said):
            await job.result(PATIENCE)
        row = await job.status()
    assert (row.state, row.attempt, row.result) == (JobState.DEAD, 1, None)


async def test_a_payload_that_no_longer_fits_is_dead_with_the_reason_and_kept(app: App) -> None:
    called: list[Any] = []

    @app.job(queue=QUEUE, retry=Fixed(0))
    async def handle(order: Order) -> None:
        called.append(order)

    async with running(app) as pod:
        old = handle.request(Order(number=1))._replace(payload='{"no": 1, "lines": "a"}')
        job = await app.enqueue(old)
        with pytest.raises(
            JobFailed, match=r"does not fit the handler of handle: number: Field required \(and 1 more\)"
        ):
            await job.result(PATIENCE)
        row = await job.status()
        assert not pod.task.done()
    assert (row.state, row.payload, row.attempt) == (JobState.DEAD, {"no": 1, "lines": "a"}, 1)
    assert called == []


async def test_a_hundred_jobs_that_end_in_every_way_at_once_do_not_disturb_each_other(app: App) -> None:
    ways = ["done", "dead", "failed", "cancelled", "result"]

    @app.job(queue=QUEUE, max_attempts=1)
    async def handle(way: str) -> Any:
        match way:
            case "dead":
                raise Dead(way)
            case "failed":
                raise ValueError(way)
            case "cancelled":
                return Cancelled(way)
            case "result":
                return way
        return None

    async with running(app):
        jobs = await app.enqueue_many([handle.request(ways[number % 5]) for number in range(100)])
        answers = await asyncio.gather(*(job.result(PATIENCE) for job in jobs), return_exceptions=True)
    for number, answer in enumerate(answers):
        match ways[number % 5]:
            case "done":
                assert answer is None
            case "result":
                assert answer == "result"
            case way:
                assert isinstance(answer, JobFailed)
                assert answer.reason == way


async def test_a_job_in_the_middle_of_its_run_is_running(app: App) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def hold() -> None:
        inside.set()
        await go_on.wait()

    async with running(app) as pod:
        job = await hold.enqueue()
        await soon(inside)
        row = await job.status()
        assert (row.state, row.attempt, row.claim) == (JobState.RUNNING, 1, 1)
        assert pod.use().running == 1
        go_on.set()
        await job.result(PATIENCE)
        row = await job.status()
    assert row.state is JobState.DONE
    assert row.claimed_at is not None
    assert row.ended_at is not None
    assert row.created_at <= row.claimed_at <= row.ended_at
