"""Waiting for the end of a job: told by a notice where LISTEN works, else by looking."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.clock import Clock
from rota.errors import DatabaseUnavailable, JobFailed, JobNotFound, ResultTimeout
from rota.events import Tell
from rota.words import JobState

from ..storage.jobs import Jobs
from ..storage.pool import Database
from ..storage.rows import JobRow
from .listener import Listener

_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
_LOOK_WHEN_TOLD = 10.0


class Results:
    """One per open app; listens only from the first wait on."""

    def __init__(self, database: Database, jobs: Jobs, clock: Clock, tell: Tell) -> None:
        self._jobs = jobs
        self._clock = clock
        self._listener = Listener(database, self._receive, self._changed, tell)
        self._listening: asyncio.Task[None] | None = None
        self._works = False
        self._waiting: dict[int, set[asyncio.Event]] = {}

    async def wait(self, job: int, timeout: float | None) -> Any:
        """The result of a job once it has ended."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listener.run())
        told = asyncio.Event()
        self._waiting.setdefault(job, set()).add(told)
        try:
            async with asyncio.timeout(timeout):
                return await self._until_ended(job, told)
        except TimeoutError:
            raise ResultTimeout(job, timeout or 0.0) from None
        finally:
            self._waiting[job].discard(told)
            if not self._waiting[job]:
                del self._waiting[job]

    async def close(self) -> None:
        """Stop listening."""
        task, self._listening = self._listening, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _until_ended(self, job: int, told: asyncio.Event) -> Any:
        look_in = _FIRST_LOOK
        while True:
            try:
                # Each time: a job that comes back to life is a new row, and must be asked anew.
                await self._jobs.await_job(job)
                row = await self._jobs.read_job(job)
            except DatabaseUnavailable:
                # The job goes on without us; whoever waits with a timeout need not hear of it.
                await asyncio.sleep(look_in)
                look_in = min(look_in * 1.5, _LONGEST_LOOK)
                continue
            if row is None:
                raise JobNotFound(job)
            if row.state.ended:
                return outcome_of(row)
            try:
                async with asyncio.timeout(_LOOK_WHEN_TOLD if self._works else look_in):
                    await told.wait()
                    told.clear()
            except TimeoutError:
                look_in = min(look_in * 1.5, _LONGEST_LOOK)

    def _receive(self, word: str, subject: str) -> None:
        if word == "ended":
            for told in self._waiting.get(int(subject), ()):
                told.set()

    def _changed(self, works: bool) -> None:
        self._works = works
        for waiting in self._waiting.values():
            for told in waiting:
                told.set()


def outcome_of(row: JobRow) -> Any:
    """What an ended job gives to whoever waited for it."""
    if row.state is JobState.DONE:
        return row.result
    raise JobFailed(row.id, row.state, row.errors[-1]["message"] if row.errors else None)
