"""Plain functions run on threads, and nothing else of the pod waits for them."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from rota import App, Context, Dead, Fixed, JobFailed, JobState, Release
from rota.events import JobOverdue
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, running
from tests.support.until import until


class Gate:
    """Holds a thread until it is opened; the test can await that one has come in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = threading.Event()
        self.inside = asyncio.Event()

    def pass_through(self) -> None:
        self._loop.call_soon_threadsafe(self.inside.set)
        assert self._open.wait(PATIENCE), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()


@pytest.fixture
async def gate() -> Any:
    gate = Gate()
    yield gate
    gate.open()


async def test_a_plain_function_runs_on_a_thread_and_its_result_is_kept(app: App) -> None:
    @app.job(queue=QUEUE)
    def where(ctx: Context, number: int) -> list[Any]:
        return [threading.current_thread().name.startswith("rota-handler"), number + ctx.attempt]

    async with running(app):
        assert await (await where.enqueue(1)).result(PATIENCE) == [True, 2]


async def test_a_thread_that_works_does_not_hold_up_the_pod(app: App, gate: Gate) -> None:
    @app.job(queue=QUEUE)
    def slow() -> str:
        gate.pass_through()
        return "slow"

    @app.job(queue=QUEUE)
    async def quick() -> str:
        return "quick"

    async with running(app):
        waiting = await slow.enqueue()
        await asyncio.wait_for(gate.inside.wait(), PATIENCE)
        assert await (await quick.enqueue()).result(PATIENCE) == "quick"
        gate.open()
        assert await waiting.result(PATIENCE) == "slow"


async def test_threads_work_side_by_side(app: App) -> None:
    together = threading.Barrier(8)

    @app.job(queue=QUEUE)
    def meet() -> int:
        return together.wait(PATIENCE)

    async with running(app):
        jobs = await app.enqueue_many([meet.request() for _ in range(8)])
        places = await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert sorted(places) == list(range(8))


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError("x"), JobState.DEAD),
        (Dead("x"), JobState.DEAD),
        (SystemExit(1), JobState.DEAD),
        (KeyboardInterrupt(), JobState.DEAD),
        (asyncio.CancelledError(), JobState.DEAD),
        (StopIteration(), JobState.DEAD),
        (Release(600), JobState.SCHEDULED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
async def test_whatever_a_thread_raises_ends_only_its_own_run(
    app: App, told: Recorder, error: BaseException, state: JobState
) -> None:
    @app.job(queue=QUEUE, max_attempts=1)
    def bad() -> None:
        raise error

    @app.job(queue=QUEUE)
    def good() -> str:
        return "fine"

    async with running(app):
        job = await bad.enqueue()
        async with asyncio.timeout(2):
            await ended(told, job)
        assert (await job.status()).state is state
        assert await (await good.enqueue()).result(PATIENCE) == "fine"


async def test_a_thread_past_its_timeout_is_flagged_and_keeps_its_slot_until_it_ends(
    app: App, told: Recorder, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.runtime.claimer._OVERDUE_AFTER", 0.05)
    seen: list[bool] = []

    @app.job(queue=QUEUE, timeout=0.05, max_attempts=1)
    def stubborn(ctx: Context) -> None:
        seen.append(ctx.cancelled)
        gate.pass_through()
        seen.append(ctx.cancelled)

    async with running(app) as pod:
        job = await stubborn.enqueue()
        overdue = await asyncio.wait_for(told.wait_for(JobOverdue), 2)
        assert (overdue.job, overdue.why) == (job.id, "timeout")
        assert (await job.status()).state is JobState.RUNNING
        assert pod.use().running == 1
        gate.open()
        await ended(told, job)
    assert seen == [False, True]


async def test_a_thread_may_look_whether_it_was_asked_to_stop(app: App, gate: Gate) -> None:
    contexts: list[Context] = []

    @app.job(queue=QUEUE, max_attempts=1)
    def polite(ctx: Context) -> None:
        contexts.append(ctx)
        gate.pass_through()
        ctx.raise_if_cancelled()

    async with running(app):
        job = await polite.enqueue()
        await asyncio.wait_for(gate.inside.wait(), PATIENCE)
        await job.cancel()
        await until("it is asked to stop", lambda: contexts[0].cancelled)
        gate.open()
        with pytest.raises(JobFailed, match="ended cancelled"):
            await job.result(PATIENCE)


async def test_a_thread_retries_like_any_other(app: App) -> None:
    @app.job(queue=QUEUE, retry=Fixed(0))
    def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    async with running(app):
        assert await (await flaky.enqueue()).result(PATIENCE) == 3


who: ContextVar[str] = ContextVar("who", default="nobody")


async def test_context_variables_of_a_middleware_reach_the_thread(app: App) -> None:
    @app.use
    async def named(ctx: Context, payload: Any, call: Any) -> Any:
        token = who.set(f"job {ctx.id}")
        try:
            return await call(ctx, payload)
        finally:
            who.reset(token)

    @app.job(queue=QUEUE)
    def ask() -> str:
        return who.get()

    async with running(app):
        job = await ask.enqueue()
        assert await job.result(PATIENCE) == f"job {job.id}"


async def test_progress_may_be_told_from_a_thread(app: App, gate: Gate) -> None:
    @app.job(queue=QUEUE)
    def work(ctx: Context) -> None:
        ctx.progress(0.5, "half")
        gate.pass_through()

    async with running(app):
        job = await work.enqueue()
        await asyncio.wait_for(gate.inside.wait(), PATIENCE)

        async def progress() -> Any:
            return (await job.status()).progress

        await until("progress is written", progress)
        assert await progress() == {"done": 0.5, "note": "half"}
        gate.open()
        await job.result(PATIENCE)
