"""Gives a job on its last chance the pod to itself.

A job that lost its pod as often as it may but once may be what kills pods, or may only have run
beside it. Alone on its pod it dies alone, or proves its innocence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rota.events import JobAlone, Tell
from rota.service import Service

from ..cluster.slots import Slots
from .shared import Shared

_PATIENCE = 60.0
"""Seconds that a pod claims nothing while what runs ends; then it works on, and tries again later."""


class Solitude(Service):
    """One for all queues of a pod."""

    doing = "running a job alone"

    def __init__(self, shared: Shared, slots: Slots, idle: Callable[[], Awaitable[None]], tell: Tell) -> None:
        super().__init__(tell)
        self._shared = shared
        self._slots = slots
        self._idle = idle
        self._asked = asyncio.Event()
        self._job: tuple[str, int] | None = None

    def hear(self, lone: tuple[str, int]) -> None:
        """A beat says that this pod should run this job of this queue alone."""
        self._job = lone
        self._asked.set()

    async def step(self) -> None:
        await self._asked.wait()
        if self._job is not None:
            await self._run_alone(*self._job)
        self._asked.clear()
        for claimer in self._shared.claimers.values():
            claimer.wake()

    async def _run_alone(self, queue: str, job: int) -> None:
        self._tell(JobAlone(queue, job))
        self._slots.hush(True)
        try:
            if await self._idle_within(_PATIENCE):
                await self._shared.claimers[queue].claim_alone(job)
                await self._idle()
        finally:
            self._slots.hush(False)

    async def _idle_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._idle()
        except TimeoutError:
            return False
        return True
