"""PgQueuer at the settings it is fastest with, one manager in batches of 1,000 (contenders.py).

Beside that nothing is changed: its own driver, its own buffers, its default durability. The queue
manager runs alone, without the scheduler that PgQueuer.run() would start beside it.
"""

# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.pods.control import options
from bench.pods.gate import Gate
from bench.pods.pod import serve_pod
from bench.pods.producer import serve_producer
from bench.pods.tally import Tally

POOL = 5
"""Connections for concurrent callers; found by a sweep: NOTIFY makes their commits queue up."""


class TalliedQueries(Queries):
    """PgQueuer's own queries, which also pass the gate and note what is acknowledged."""

    tally: Tally
    gate: Gate

    async def dequeue(self, *arguments: Any, **named: Any) -> list[Job]:
        await self.gate.passed()
        jobs: list[Job] = await super().dequeue(*arguments, **named)
        return jobs

    async def log_jobs(self, job_status: list[Any]) -> None:
        await super().log_jobs(job_status)
        self.tally.add(len(job_status))


class PgQueuerPod:
    """One queue manager, on a pool or on one connection."""

    def __init__(self, dsn: str, tally: Tally, gate: Gate, *, kind: str, batch: int, pool: int) -> None:
        self._dsn = dsn
        self._tally = tally
        self._gate = gate
        self._kind = kind
        self._batch = batch
        self._size = pool

    async def open(self) -> None:
        driver = await self._driver()
        queries = TalliedQueries(driver)
        queries.tally, queries.gate = self._tally, self._gate
        self._pgqueuer = PgQueuer(connection=driver, queries=queries)
        handler = self._stamp if self._kind == "stamp" else self._noop
        self._pgqueuer.entrypoint(self._kind)(handler)

    async def go(self) -> None:
        self._manager = asyncio.create_task(self._pgqueuer.qm.run(batch_size=self._batch))

    async def stop(self) -> None:
        self._pgqueuer.shutdown.set()
        await self._manager

    async def _driver(self) -> AsyncpgDriver | AsyncpgPoolDriver:
        if self._size == 1:
            return AsyncpgDriver(await asyncpg.connect(self._dsn))
        pool = await asyncpg.create_pool(self._dsn, min_size=self._size, max_size=self._size)
        return AsyncpgPoolDriver(pool)

    async def _noop(self, job: Job) -> None:
        pass

    async def _stamp(self, job: Job) -> None:
        self._tally.start(int(job.payload or b""))


class PgQueuerProducer:
    """Single calls and bulk on one connection, concurrent callers over a pool."""

    def __init__(self, dsn: str, callers: int) -> None:
        self._dsn = dsn
        self._callers = callers

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self._dsn)
        self._queries = Queries(AsyncpgDriver(self._connection))
        if self._callers > 1:
            pool = await asyncpg.create_pool(self._dsn, min_size=POOL, max_size=POOL)
            self._queries = Queries(AsyncpgPoolDriver(pool))

    def payload(self, number: int) -> bytes:
        return b'{"n": %d}' % number

    async def enqueue(self, payload: bytes) -> None:
        await self._queries.enqueue("noop", payload)

    async def enqueue_many(self, payloads: list[bytes]) -> None:
        jobs = len(payloads)
        await self._queries.enqueue(["noop"] * jobs, list(payloads), [0] * jobs)

    async def commit(self, number: int) -> int:
        transaction = self._connection.transaction()
        await transaction.start()
        await self._queries.enqueue("stamp", b"%d" % number)
        await transaction.commit()
        return time.monotonic_ns()

    async def stop(self) -> None:
        await self._connection.close()


async def install(dsn: str) -> None:
    """PgQueuer's schema as `pgq install` makes it."""
    connection = await asyncpg.connect(dsn)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def main() -> None:
    told = options()
    if told["role"] == "install":
        await install(told["dsn"])
    elif told["role"] == "producer":
        await serve_producer(PgQueuerProducer(told["dsn"], told["callers"]))
    else:
        tally = Tally(told["tally"], told["slot"], told["rss_every"])
        chosen = {name: told[name] for name in ("kind", "batch", "pool")}
        gate = Gate()
        await serve_pod(PgQueuerPod(told["dsn"], tally, gate, **chosen), tally, gate)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    uvloop.run(main())
