"""The leader's eye on silent pods: removes them when their time is up, and gives their jobs to others."""

from __future__ import annotations

import asyncio

from rota.clock import Clock
from rota.events import PodsExpired, Tell
from rota.service import Service

from ..cluster.leader import Lead
from ..storage.pods import Pods


class Janitor(Service):
    """Looks when the first pod is due to expire, and every so often in any case."""

    doing = "looking for silent pods"

    def __init__(
        self, lead: Lead, pods: Pods, *, every: float, max_rescues: int, clock: Clock, tell: Tell
    ) -> None:
        super().__init__(tell)
        self._lead = lead
        self._pods = pods
        self._every = every
        self._max_rescues = max_rescues
        self._clock = clock
        self._look_at = float("-inf")

    async def step(self) -> None:
        lead, now = self._lead, self._clock.monotonic()
        wait = max(min(self._look_at, lead.expiry_at) - now, lead.may_expire_in)
        if wait > 0:
            await self._sleep(wait)
            return
        self._look_at = now + self._every
        lead.expiry_at = float("inf")
        swept = await self._pods.expire_pods(lead.tenure, self._max_rescues)
        lead.written(swept is not None)
        if swept is not None and any(swept):
            self._tell(PodsExpired(*swept))

    async def _sleep(self, seconds: float) -> None:
        """A renewal may bring news of when the next pod expires."""
        self._lead.renewed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._lead.renewed.wait()
        except TimeoutError:
            pass
