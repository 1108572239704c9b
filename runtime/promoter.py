"""The leader makes scheduled jobs ready when they are due: sleeps until the next one, not by the second."""

from __future__ import annotations

import asyncio

from rota.clock import Clock
from rota.events import Tell
from rota.service import Service

from ..cluster.leader import Lead
from ..storage.jobs import Jobs

_MOST = 1_000
LONGEST_SLEEP = 60.0


class Promoter(Service):
    """Wakes at the next due time, or when told of a nearer one."""

    doing = "making due jobs ready"

    def __init__(self, lead: Lead, jobs: Jobs, *, longest_sleep: float, clock: Clock, tell: Tell) -> None:
        super().__init__(tell)
        self._lead = lead
        self._jobs = jobs
        self._clock = clock
        self._nearer = asyncio.Event()
        self._wake_at = float("inf")
        self.longest_sleep = longest_sleep

    def hear(self, due_in: float) -> None:
        """A job was scheduled that is due in so many seconds."""
        if self._clock.monotonic() + due_in < self._wake_at:
            self._nearer.set()

    async def step(self) -> None:
        self._nearer.clear()
        promoted = await self._jobs.promote_jobs(self._lead.tenure, _MOST)
        self._lead.written(promoted is not None)
        if promoted is None:
            return
        moved, next_in = promoted
        if moved == _MOST:
            return
        sleep = min(self.longest_sleep, max(0.001, next_in) if next_in is not None else self.longest_sleep)
        self._wake_at = self._clock.monotonic() + sleep
        try:
            async with asyncio.timeout(sleep):
                await self._nearer.wait()
        except TimeoutError:
            pass
