"""The way in: concurrent callers of one process share one insert and one notice.

While an insert is under way, what others ask for gathers; the next insert takes it all.
One caller alone pays nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rota.errors import Conflict, RefusedData
from rota.events import JobsEnqueued, Tell

from ..storage.jobs import Enqueued, Jobs
from ..storage.pool import Kept
from ..storage.rows import Request

MOST_AT_ONCE = 10_000
_RETRY_AFTER = (0.1, 0.3, 1.0)
"""Seconds: a deadlock or serialization failure wrote nothing, so the same may be sent again."""


class Enqueuer:
    """One per open app."""

    def __init__(self, jobs: Jobs, kept: Kept, tell: Tell) -> None:
        self._jobs = jobs
        self._kept = kept
        self._tell = tell
        self._waiting: list[tuple[Sequence[Request], asyncio.Future[Enqueued]]] = []
        self._busy = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, requests: Sequence[Request]) -> Enqueued:
        """Enqueue these, all or none, perhaps in one insert with those of other callers."""
        if self._busy:
            answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
            self._waiting.append((requests, answer))
            return await answer
        self._busy = True
        try:
            return await self._insert(requests)
        finally:
            self._hand_over()

    async def close(self) -> None:
        """Give the connection back."""
        await self._kept.give_back()

    def _hand_over(self) -> None:
        """Go on with what gathered, on a task: the caller has its answer and must not wait."""
        if not self._waiting:
            self._busy = False
            return
        task = asyncio.get_running_loop().create_task(self._insert_waiting())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _insert_waiting(self) -> None:
        try:
            while self._waiting:
                await self._insert_together(self._take())
        finally:
            self._busy = False

    def _take(self) -> list[tuple[Sequence[Request], asyncio.Future[Enqueued]]]:
        jobs = 0
        for place, (requests, _) in enumerate(self._waiting):
            jobs += len(requests)
            if jobs > MOST_AT_ONCE and place:
                taken, self._waiting = self._waiting[:place], self._waiting[place:]
                return taken
        taken, self._waiting = self._waiting, []
        return taken

    async def _insert_together(
        self, callers: list[tuple[Sequence[Request], asyncio.Future[Enqueued]]]
    ) -> None:
        try:
            rows = await self._insert([request for requests, _ in callers for request in requests])
        except RefusedData as error:
            if len(callers) > 1:
                # One caller's bad data must not fail the others.
                for caller in callers:
                    await self._insert_together([caller])
            else:
                _fail(callers, error)
        except Exception as error:
            _fail(callers, error)
        else:
            start = 0
            for requests, answer in callers:
                if not answer.done():
                    answer.set_result(rows[start : start + len(requests)])
                start += len(requests)

    async def _insert(self, requests: Sequence[Request]) -> Enqueued:
        for pause in _RETRY_AFTER:
            try:
                return self.told(await self._send(requests))
            except Conflict:
                await asyncio.sleep(pause)
        return self.told(await self._send(requests))

    async def _send(self, requests: Sequence[Request]) -> Enqueued:
        async with self._kept as connection:
            return await self._jobs.enqueue_jobs(requests, on=connection)

    def told(self, rows: Enqueued) -> Enqueued:
        """Tell that these came in."""
        skipped = sum([was_skipped for _, was_skipped in rows])
        self._tell(JobsEnqueued(len(rows) - skipped, skipped))
        return rows


def _fail(callers: list[tuple[Sequence[Request], asyncio.Future[Enqueued]]], error: Exception) -> None:
    for _, answer in callers:
        if not answer.done():
            answer.set_exception(error)
