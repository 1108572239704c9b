"""The way in for callers that cannot await: an Enqueuer of its own behind the bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.events import Tell

from ..storage.jobs import Enqueued, Jobs
from ..storage.pool import Database, Kept
from ..storage.rows import Request
from .bridge import Bridge
from .enqueuer import Enqueuer


class SyncDoor:
    """Connects at the first call and closes at the end of the program."""

    def __init__(self, connect: Callable[[], Database], tell: Tell) -> None:
        self._connect = connect
        self._tell = tell
        self._bridge = Bridge(self._close)
        self._opening = asyncio.Lock()
        self._opened: tuple[Database, Enqueuer] | None = None

    def put(self, request: Request) -> tuple[int, bool]:
        """Enqueue one job; its id, and whether it was skipped."""
        # Made here and not on the bridge: an embedded server is best started by the main thread.
        database = self._connect() if self._opened is None else None
        [row] = self._bridge.call(lambda: self._put(request, database))
        return row

    async def _put(self, request: Request, database: Database | None) -> Enqueued:
        async with self._opening:
            if self._opened is None and database is not None:
                await database.open()
                self._opened = database, Enqueuer(Jobs(database), Kept(database), self._tell)
        assert self._opened is not None
        return await self._opened[1].put([request])

    async def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            database, enqueuer = opened
            await enqueuer.close()
            await database.close()
