"""Makes scheduled jobs ready when they are due: sleeps until the next one, not by the second."""

from __future__ import annotations

import asyncio

from rota.clock import Clock
from rota.events import Tell

from ..storage.jobs import Jobs
from .service import Service

_MOST = 1_000
_LONGEST_SLEEP = 60.0


class Promoter(Service):
    """Wakes at the next due time, or when told of a nearer one."""

    doing = "making due jobs ready"

    def __init__(self, jobs: Jobs, clock: Clock, tell: Tell) -> None:
        super().__init__(tell)
        self._jobs = jobs
        self._clock = clock
        self._nearer = asyncio.Event()
        self._wake_at = float("inf")
        self._longest_sleep = _LONGEST_SLEEP

    def hear(self, due_in: float) -> None:
        """A job was scheduled that is due in so many seconds."""
        if self._clock.monotonic() + due_in < self._wake_at:
            self._nearer.set()

    def listens(self, works: bool, poll: float) -> None:
        """Whether nearer ones will be told; if not, look every `poll` seconds."""
        self._longest_sleep = _LONGEST_SLEEP if works else poll
        self._nearer.set()

    async def step(self) -> None:
        self._nearer.clear()
        moved, next_in = await self._jobs.ready_due_jobs(_MOST)
        if moved == _MOST:
            return
        sleep = min(self._longest_sleep, max(0.001, next_in) if next_in is not None else self._longest_sleep)
        self._wake_at = self._clock.monotonic() + sleep
        try:
            async with asyncio.timeout(sleep):
                await self._nearer.wait()
        except TimeoutError:
            pass
