"""Progress that handlers tell, written together about once a second."""

from __future__ import annotations

import asyncio

from rota.events import Tell
from rota.service import Service

from ..cluster.membership import Membership
from ..storage.jobs import Jobs
from .context import Context

_EVERY = 1.0


class ProgressWriter(Service):
    """Keeps the last word of each run and writes them all in one statement."""

    doing = "writing progress"

    def __init__(self, jobs: Jobs, membership: Membership, tell: Tell) -> None:
        super().__init__(tell)
        self._jobs = jobs
        self._membership = membership
        self._told: dict[int, tuple[Context, str]] = {}
        self._any = asyncio.Event()

    def put(self, run: Context, progress: str) -> None:
        """Take a run's progress; a later one replaces it."""
        self._told[run.id] = (run, progress)
        self._any.set()

    async def step(self) -> None:
        await self._any.wait()
        await self.flush()
        await asyncio.sleep(_EVERY)

    async def flush(self) -> None:
        """Write what was told; a run that has ended meanwhile is left alone by its claim."""
        self._any.clear()
        told, self._told = self._told, {}
        if told:
            await self._jobs.write_progress(
                self._membership.pod,
                self._membership.incarnation,
                [(run.id, run.claim, progress) for run, progress in told.values()],
            )
