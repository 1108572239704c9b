"""One run: what the worker makes of a thread that ends at the very moment it is asked to stop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rota import App, Context, Settings
from rota.runtime.processes import Processes
from rota.runtime.worker import Worker, stop
from rota.testing import _context


class Threads(ThreadPoolExecutor):
    """One thread that works as long as the test says."""

    def __init__(self, *, begins: bool = True) -> None:
        super().__init__(1)
        self.work: Future[Any] = Future()
        if begins:
            self.work.set_running_or_notify_cancel()

    def submit(self, function: Any, /, *given: Any, **named: Any) -> Future[Any]:
        return self.work


async def begun(threads: Threads) -> Context:
    """A run of a plain function, which waits for its thread."""
    app = App(Settings())

    @app.job(timeout=600)
    def handle() -> str:
        return "never called"

    worker = Worker(
        threads=threads,
        processes=Processes(1),
        middleware=[],
        telemetry=app.telemetry,
        max_result=1_000,
    )
    ctx = _context(app, handle.request(), attempt=1)
    run = worker.runner(app.handlers["handle"], lambda: None, lambda ctx: None)
    ctx._task = asyncio.create_task(run(ctx, "null"))
    await turns(3)
    return ctx


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("why", ["timeout", "cancel", "drain", "fence"])
@pytest.mark.parametrize("late", range(4))
async def test_a_stop_that_comes_after_the_thread_returned_does_not_rewrite_history(
    why: str, late: int
) -> None:
    threads = Threads()
    ctx = await begun(threads)
    task = ctx._task
    assert task is not None
    threads.work.set_result("returned")
    await turns(late)
    stop(ctx, why)
    await task
    assert (ctx.outcome, ctx.result) == ("done", '"returned"')


async def test_a_thread_that_runs_is_waited_for_however_often_it_is_asked_to_stop() -> None:
    threads = Threads()
    ctx = await begun(threads)
    task = ctx._task
    assert task is not None
    stop(ctx, "cancel")
    for _ in range(3):
        task.cancel()
        await turns(5)
        assert not task.done()
    threads.work.set_exception(ValueError("stopped at last"))
    await task
    assert ctx.outcome == "cancelled"


async def test_a_thread_that_has_not_begun_is_not_waited_for() -> None:
    threads = Threads(begins=False)
    ctx = await begun(threads)
    task = ctx._task
    assert task is not None
    stop(ctx, "drain")
    await task
    assert threads.work.cancelled()
    assert ctx.outcome == "release"
