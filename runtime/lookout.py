"""The leader looks out for jobs that nobody can run, so that they do not wait unnoticed."""

from __future__ import annotations

import asyncio

from rota.events import KindUnknown, Tell
from rota.service import Service

from ..storage.jobs import Jobs

_EVERY = 30.0


class Lookout(Service):
    """Tells each kind once, and again if it was known in between."""

    doing = "looking for kinds that nobody runs"

    def __init__(self, jobs: Jobs, tell: Tell) -> None:
        super().__init__(tell)
        self._jobs = jobs
        self._told: set[tuple[str, str]] = set()

    async def step(self) -> None:
        orphans = set(await self._jobs.list_orphan_kinds())
        for queue, kind in sorted(orphans - self._told):
            self._tell(KindUnknown(queue, kind))
        self._told = orphans
        await asyncio.sleep(_EVERY)
