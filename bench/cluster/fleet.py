"""A fleet of real pods on a server of its own, and eyes on their rows."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import asyncpg

from bench.cluster.app import CAP
from rota.runtime.app import App
from rota.settings import Settings
from rota.storage.embedded import start_embedded
from rota.storage.place import default_directory

POD_TTL, LEASE_TTL = 10.0, 5.0
"""The defaults, which the pods run with."""

_PATIENCE = 60.0
_LOOK = 0.001


@contextmanager
def counting_server() -> Iterator[str]:
    """A server that counts statements."""
    directory = default_directory().parent / f"bench-{os.getpid()}" / "cluster"
    settings = {"shared_preload_libraries": "pg_stat_statements", "max_connections": "200"}
    try:
        with start_embedded(directory=directory, settings=settings) as server:
            yield server.dsn
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Fleet:
    """Pods as processes; each has a UID, so that it can be started again as itself."""

    def __init__(self, dsn: str, connection: asyncpg.Connection, app: App, queues: int) -> None:
        self.dsn = dsn
        self.connection = connection
        self.app = app
        self._queues = queues
        self._processes: dict[str, Process] = {}
        self._numbers = iter(range(1_000_000))

    @classmethod
    @asynccontextmanager
    async def on(cls, dsn: str, *, queues: int = 1) -> AsyncIterator[Fleet]:
        """An empty schema and no pod yet; all pods are gone afterwards."""
        connection = await asyncpg.connect(dsn)
        await connection.execute("DROP SCHEMA IF EXISTS rota CASCADE")
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        app = App(Settings.load().with_database(url=dsn))
        fleet = cls(dsn, connection, app, queues)
        try:
            async with app:
                await app.migrate()
                yield fleet
        finally:
            await fleet.end()
            await connection.close()

    async def start(self, pods: int) -> None:
        """Start so many, and wait until the slots are divided."""
        for _ in range(pods):
            await self.boot(f"bench-{next(self._numbers)}")
        await self.until("all pods are up", lambda: self._up(len(self._processes)))
        await self.converged()

    async def boot(self, uid: str) -> None:
        """Start the pod of this UID."""
        self._processes[uid] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rota.cli", "worker", "--app", "bench.cluster.app:app"),
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={
                **os.environ,
                "ROTA_DATABASE_URL": self.dsn,
                "ROTA_POD_UID": uid,
                "ROTA_POD_ID": uid,
                "BENCH_QUEUES": str(self._queues),
                # What one pod has room for, so that every cap can be reached.
                "BENCH_CAP": str(CAP if self._queues == 1 else 2),
            },
        )

    async def signal(self, uid: str, number: signal.Signals) -> float:
        """Send a signal; when that was."""
        at = time.monotonic()
        self._processes[uid].send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process = self._processes.pop(uid)
            asyncio.get_running_loop().create_task(process.wait())
        return at

    async def end(self) -> None:
        """End every pod."""
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        self._processes.clear()

    async def leader(self) -> str:
        """The UID of the pod that leads."""
        await self.until("someone leads", self._leader)
        return str(await self._leader())

    async def follower(self) -> str:
        """The UID of one that does not."""
        leader = await self.leader()
        return next(uid for uid in self._processes if uid != leader)

    async def pod(self, uid: str) -> UUID:
        found: UUID = await self.connection.fetchval(
            "SELECT id FROM rota.pod WHERE name = $1", f"rota-worker-{uid}"
        )
        return found

    async def converged(self, queue: str = "bench") -> float:
        """Wait until all slots of a queue are granted, and nothing more is held; when that was."""
        await self.until("slots are divided", lambda: self._converged(queue))
        return time.monotonic()

    async def epoch(self) -> int:
        epoch: int = await self.connection.fetchval("SELECT epoch FROM rota.lease")
        return epoch

    async def planned_after(self, epoch: int) -> float:
        """Wait until a later leader has planned; when that was.

        A leader that leaves may have handed its slots over itself; then the next one finds nothing to do.
        """
        await self.until("the next leader has planned", lambda: self._planned(epoch))
        return time.monotonic()

    async def until(self, what: str, look: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not await look():  # noqa: ASYNC110  (rows do not set events)
                await asyncio.sleep(_LOOK)

    async def _planned(self, epoch: int) -> bool:
        if await self.connection.fetchval("SELECT EXISTS (SELECT FROM rota.plan WHERE epoch > $1)", epoch):
            return True
        led = await self.connection.fetchval("SELECT epoch > $1 FROM rota.lease", epoch)
        return bool(led) and await self._converged("bench")

    async def _leader(self) -> str | None:
        name: str | None = await self.connection.fetchval(
            """SELECT pod.name FROM rota.lease JOIN rota.pod ON pod.id = holder
               WHERE lease.expires_at > rota.clock()"""
        )
        return None if name is None else name.removeprefix("rota-worker-")

    async def _up(self, pods: int) -> bool:
        up: int = await self.connection.fetchval("SELECT count(*) FROM rota.pod WHERE state = 'up'")
        return up == pods

    async def _converged(self, queue: str) -> bool:
        done: bool = await self.connection.fetchval(
            """SELECT sum(target) = max(max_workers) AND bool_and(target = held AND target = acting)
               FROM rota.assignment JOIN rota.queue ON name = queue WHERE queue = $1""",
            queue,
        )
        return done
