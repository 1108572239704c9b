"""For tests of code that uses Rota: a clock moved by hand, a record of all that is told, and
handlers run on the spot, without a database.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import Any, Self, TypeVar, cast

import orjson

from rota.errors import BadInput, HandlerMissing
from rota.events import Event
from rota.runtime.app import App
from rota.runtime.claimer import Claimer
from rota.runtime.context import Context
from rota.runtime.outcome import Verdict
from rota.runtime.processes import Processes
from rota.runtime.worker import Worker
from rota.storage.rows import Request
from rota.telemetry import Telemetry

__all__ = ["ManualClock", "Recorder", "Verdict", "run_inline"]

E = TypeVar("E", bound=Event)
_ids = count(1)


class ManualClock:
    """A Clock that stands still until it is moved."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on; a clock that only ever grows cannot be moved back."""
        if not seconds >= 0:
            raise BadInput(f"The clock cannot be moved by {seconds!r} s; it only ever grows.")
        self._now += seconds


class Recorder:
    """Keeps every event it is told, and lets a test wait for one instead of sleeping.

    It is a `Tell` itself; `listen_to(app)` has it told all that an app and its pods tell.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        # Reentrant: what somebody waits for may be put in terms of what was told before.
        self._lock = threading.RLock()
        self._waiting: list[Callable[[Event], bool]] = []

    def __call__(self, event: Event) -> None:
        """Keep the event; may be called from any thread."""
        with self._lock:
            self.events.append(event)
            self._waiting = [waits for waits in self._waiting if not waits(event)]

    def listen_to(self, app: App) -> Self:
        """Keep what this app tells, from before it is opened on; it is logged and counted as ever."""
        if app._opened is not None:
            raise BadInput("The app is open already; listen to it before it is opened.")
        app.telemetry = _Recorded(app, self)
        return self

    def all(self, kind: type[E]) -> list[E]:
        """The events of one type so far, in order."""
        with self._lock:
            return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], when: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of this type of which `when` is true, be it past or still to come."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[E] = loop.create_future()

        def waits(event: Event) -> bool:
            if not isinstance(event, kind) or not when(event):
                return False
            loop.call_soon_threadsafe(_answer, answer, event)
            return True

        with self._lock:
            if not any(waits(event) for event in self.events):
                self._waiting.append(waits)
        try:
            return await answer
        finally:
            with self._lock:
                self._waiting = [other for other in self._waiting if other is not waits]


async def run_inline(app: App, request: Request, *, attempt: int = 1) -> Any:
    """Run the handler of a request here and now, as a pod would: payload, middleware, handler, outcome.

    Gives what `await job.result()` would give, or the Verdict over a run that did not simply
    return. Nothing is enqueued, and the app need not be open.
    """
    shape = request.shape
    handler = app.handlers.get(shape.kind)
    if handler is None:
        raise HandlerMissing(f'This app has no handler of kind "{shape.kind}"; register one or correct it.')
    processes = Processes(1)
    with ThreadPoolExecutor(1, thread_name_prefix="rota-inline") as thread:
        worker = Worker(
            threads=thread,
            processes=processes,
            middleware=app.middleware,
            telemetry=app.telemetry,
            max_result=app.settings.job.max_payload,
        )
        declared = app.declared_queues.get(shape.queue)
        run = worker.runner(handler, lambda: declared.retry if declared else None, lambda ctx: None)
        ctx = _context(app, request, attempt)
        try:
            async with asyncio.TaskGroup() as group:
                ctx._task = group.create_task(run(ctx, request.payload))
        finally:
            processes.close()
    if ctx.verdict is not None:
        return ctx.verdict
    return None if ctx.result is None else orjson.loads(ctx.result)


class _Recorded(Telemetry):
    """An app's telemetry with a recorder beside it."""

    def __init__(self, app: App, recorder: Recorder) -> None:
        super().__init__(app.clock)
        self._recorder = recorder

    def tell(self, event: Event) -> None:
        self._recorder(event)
        super().tell(event)


def _answer(answer: asyncio.Future[E], event: E) -> None:
    if not answer.done():
        answer.set_result(event)


def _context(app: App, request: Request, attempt: int) -> Context:
    """A context such as a claimed job has."""
    shape, now = request.shape, asyncio.get_running_loop().time
    claimer = SimpleNamespace(
        queue=shape.queue,
        app=app,
        membership=SimpleNamespace(pod=uuid.uuid4(), incarnation=1, name="inline"),
        now=now,
        tell_progress=lambda run, progress: None,
        watch_overdue=lambda run: None,
    )
    extra = {
        "timeout": shape.timeout,
        "trace": shape.trace,
        "note": shape.note,
        "dedupe": request.dedupe,
        "tags": shape.tags or None,
    }
    return Context(
        cast("Claimer", claimer),
        batch=1,
        slot=1,
        started=now(),
        id=next(_ids),
        claim=attempt,
        attempt=attempt,
        max_attempts=shape.max_attempts,
        priority=shape.priority,
        waited=0.0,
        kind=shape.kind,
        extra=orjson.dumps(extra).decode() if any(extra.values()) else None,
    )
