"""Runs one job: reads its payload, calls its handler, turns what happens into an outcome.

A run ends exactly once, by `finished`, whatever the handler does: return, raise anything,
swallow its cancellation and go on. Until then it keeps its slot.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import ValidationError

from rota.errors import BadPayload
from rota.telemetry import Telemetry, current_run

from .backoff import DEFAULT, Retry
from .codec import encode_any, first_problem
from .context import Context
from .handlers import Handler
from .middleware import Call, Middleware, wrap
from .outcome import Cancelled, Dead, Failed, Outcome, Policy, Release, TimedOut, judge
from .processes import Processes

Finished = Callable[[Context], None]
Runner = Callable[[Context, str], Coroutine[Any, Any, None]]

STOPPED_BY_TIMEOUT = "timeout"
STOPPED_BY_CANCEL = "cancel"
STOPPED_BY_DRAIN = "drain"
STOPPED_BY_FENCE = "fence"


class Worker:
    """Makes runners, one per handler, with all that can be decided before a job is there."""

    def __init__(
        self,
        *,
        threads: ThreadPoolExecutor,
        processes: Processes,
        middleware: list[Middleware],
        telemetry: Telemetry,
        max_result: int,
    ) -> None:
        self._threads = threads
        self._processes = processes
        self._middleware = middleware
        self._telemetry = telemetry
        self._max_result = max_result

    def runner(
        self, handler: Handler[Any], queue_retry: Callable[[], Retry | None], finished: Finished
    ) -> Runner:
        """The coroutine function that runs jobs of this handler."""
        call = wrap(self._call(handler), self._middleware)
        decode = handler.codec.decode if handler.takes_payload else _no_payload
        kind_timeout = handler.timeout
        telemetry = self._telemetry if self._telemetry.tracing else None
        loop = asyncio.get_running_loop()
        now = loop.time

        async def run(ctx: Context, text: str) -> None:
            timer = span = None
            current_run.set(ctx)
            ctx._entered = True
            try:
                if ctx._stop is not None:
                    raise asyncio.CancelledError
                if telemetry is not None:
                    span = telemetry.start_run(ctx.trace, ctx.queue, ctx.kind, ctx.id, ctx.attempt, ctx.claim)
                if ctx._extra is not None or kind_timeout is not None:
                    timer = _timer(loop, ctx)
                try:
                    payload = decode(text)
                except ValueError as error:
                    raise Dead(_unreadable(handler.kind, error)) from None
                value = await call(ctx, payload)
                if value is not None:
                    self._conclude_value(ctx, value, handler, queue_retry)
            except BaseException as raised:
                self._conclude(ctx, raised, handler, queue_retry)
            if timer is not None:
                timer.cancel()
            if telemetry is not None and span is not None:
                telemetry.end_run(span, ctx.outcome, ctx.reason)
            ctx.ended = now()
            # The task's own context holds the run: without this the two would keep each other alive.
            ctx._task = None
            finished(ctx)

        return run

    def _call(self, handler: Handler[Any]) -> Call:
        function = handler.call()
        if handler.is_async:
            return function
        if handler.process:
            return lambda ctx, payload: self._processes.call(handler, payload)

        async def on_a_thread(ctx: Context, payload: Any) -> Any:
            scope = contextvars.copy_context()
            work = self._threads.submit(scope.run, _no_stop_iteration, function, ctx, payload)
            answer = asyncio.wrap_future(work)
            while True:
                try:
                    return await asyncio.shield(answer)
                except asyncio.CancelledError:
                    # A thread that runs cannot be stopped: it keeps its slot until it ends by itself.
                    if work.cancel():
                        raise
                    if answer.done():
                        return answer.result()

        return on_a_thread

    def _conclude_value(
        self, ctx: Context, value: Any, handler: Handler[Any], queue_retry: Callable[[], Retry | None]
    ) -> None:
        if isinstance(value, Outcome):
            self._conclude(ctx, value, handler, queue_retry)
            return
        try:
            ctx.result = encode_any(value, f"result of {handler.kind}", self._max_result)
        except BadPayload as error:
            raise Dead(str(error)) from None

    def _conclude(
        self,
        ctx: Context,
        raised: BaseException,
        handler: Handler[Any],
        queue_retry: Callable[[], Retry | None],
    ) -> None:
        """Write onto the run what becomes of its job."""
        policy = Policy(
            ctx.attempt, ctx.max_attempts, handler.retry or queue_retry() or DEFAULT, handler.fatal
        )
        ctx.verdict = judge(_meaning(ctx, raised), policy, random.random())


def stop(ctx: Context, why: str) -> None:
    """Ask a run to end; it keeps its slot until it has."""
    if ctx._stop is None and ctx._task is not None:
        ctx._stop = why
        # A task cancelled before its first step never enters its coroutine, and would never end.
        if ctx._entered:
            ctx._task.cancel()
        ctx._claimer.watch_overdue(ctx)


def _timer(loop: asyncio.AbstractEventLoop, ctx: Context) -> asyncio.TimerHandle | None:
    timeout = ctx.timeout
    return None if timeout is None else loop.call_later(timeout, stop, ctx, STOPPED_BY_TIMEOUT)


def _meaning(ctx: Context, raised: BaseException) -> BaseException:
    """What an exception says, given why the run was asked to stop."""
    if isinstance(raised, Outcome):
        return raised
    match ctx._stop:
        case "drain" | "fence":
            # Whatever a handler makes of being stopped, a deploy costs no attempt.
            return Release()
        case "cancel":
            return Cancelled("cancelled while running")
        case "timeout" if isinstance(raised, (asyncio.CancelledError, TimeoutError)):
            return TimedOut(f"stopped after {ctx.timeout:g} s")
    if isinstance(raised, asyncio.CancelledError):
        return Failed("the handler cancelled itself")
    return raised


def _no_stop_iteration(function: Callable[..., Any], ctx: Context, payload: Any) -> Any:
    """A future cannot hold a StopIteration: whoever waits for it would wait for ever."""
    try:
        return function(ctx, payload)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def _unreadable(kind: str, error: ValueError) -> str:
    problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
    return f"the payload does not fit the handler of {kind}: {problem}"


def _no_payload(text: str) -> None:
    return None
