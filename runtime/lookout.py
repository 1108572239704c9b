"""Looks out for jobs that nobody can run, so that they do not wait unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rota.events import KindUnknown, Tell

from ..storage.jobs import Jobs
from .service import Service

_EVERY = 30.0


class Lookout(Service):
    """Tells each kind once, and again if it was known in between."""

    doing = "looking for kinds that nobody runs"

    def __init__(self, jobs: Jobs, queues: Sequence[str], tell: Tell) -> None:
        super().__init__(tell)
        self._jobs = jobs
        self._queues = queues
        self._told: set[tuple[str, str]] = set()

    async def step(self) -> None:
        orphans = set(await self._jobs.list_orphan_kinds(self._queues))
        for queue, kind in sorted(orphans - self._told):
            self._tell(KindUnknown(queue, kind))
        self._told = orphans
        await asyncio.sleep(_EVERY)
