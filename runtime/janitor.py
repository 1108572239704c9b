"""Notices pods that fell silent, and gives their jobs to others."""

from __future__ import annotations

import asyncio

from rota.events import PodsExpired, Tell

from ..storage.pods import Pods
from .service import Service


class Janitor(Service):
    """Looks a few times per TTL."""

    doing = "looking for silent pods"

    def __init__(self, pods: Pods, *, every: float, max_rescues: int, tell: Tell) -> None:
        super().__init__(tell)
        self._pods = pods
        self._every = every
        self._max_rescues = max_rescues

    async def step(self) -> None:
        expired, rescued = await self._pods.expire_pods(self._max_rescues)
        if expired or rescued:
            self._tell(PodsExpired(expired, rescued))
        await asyncio.sleep(self._every)
