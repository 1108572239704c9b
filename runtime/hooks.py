"""State-change hooks: called after a transition is in the database, never in the way of a job."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rota.events import HookFailed, Tell
from rota.service import Service
from rota.words import JobState

from .context import Context

_MOST_WAITING = 100_000
_STATES = {
    "done": JobState.DONE,
    "dead": JobState.DEAD,
    "cancelled": JobState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A job went from one state to another."""

    job: int
    queue: str
    kind: str
    attempt: int
    claim: int
    before: JobState
    after: JobState
    reason: str | None = None


Hook = Callable[[Change], Awaitable[None]]


class Hooks(Service):
    """Calls every hook with every change, in order; a slow hook drops the oldest, not the jobs."""

    doing = "calling hooks"

    def __init__(self, hooks: Sequence[Hook], tell: Tell) -> None:
        super().__init__(tell)
        self._hooks = tuple(hooks)
        self._waiting: deque[Change] = deque(maxlen=_MOST_WAITING)
        self._any = asyncio.Event()

    def started(self, queue: str, rows: Sequence[Any]) -> None:
        """Jobs were claimed."""
        if self._hooks:
            self._put(
                Change(row[0], queue, row[6], row[2], row[1], JobState.READY, JobState.RUNNING)
                for row in rows
            )

    def ended(self, queue: str, runs: Sequence[Context]) -> None:
        """Outcomes were acknowledged."""
        if self._hooks:
            self._put(
                Change(
                    run.id,
                    queue,
                    run.kind,
                    run.attempt,
                    run.claim,
                    JobState.RUNNING,
                    _after(run),
                    run.reason,
                )
                for run in runs
            )

    async def step(self) -> None:
        await self._any.wait()
        await self.flush()

    async def flush(self) -> None:
        """Call the hooks for all that waits."""
        while self._waiting:
            change = self._waiting.popleft()
            for hook in self._hooks:
                try:
                    await hook(change)
                except (Exception, asyncio.CancelledError) as error:
                    if _is_cancelled(error):
                        raise
                    self._tell(HookFailed(getattr(hook, "__qualname__", repr(hook)), repr(error)))
        self._any.clear()

    def _put(self, changes: Any) -> None:
        self._waiting.extend(changes)
        self._any.set()


def _after(run: Context) -> JobState:
    """What rota.finalize_jobs made of the job."""
    if run.verdict is None or run.verdict.outcome in _STATES:
        return _STATES[run.outcome]
    return JobState.SCHEDULED if run.verdict.delay > 0 else JobState.READY


def _is_cancelled(error: BaseException) -> bool:
    """Whether we are being cancelled, and not only the hook, by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
