"""WAL: bytes the server logs for a job from its enqueue to its end.

Counted for the whole server, so nothing else runs meanwhile.
"""

from __future__ import annotations

from bench.contenders import Contender
from bench.draining import pods
from bench.harness import Bench
from bench.words import BYTES, WAL_PER_JOB

CHUNK = 1_000


async def measure(bench: Bench) -> None:
    """Enqueue in bulk, then drain; each contender by its own API."""
    for _ in range(bench.runs):
        for contender in bench.contenders:
            bench.record(WAL_PER_JOB, contender, await _bytes_per_job(bench, contender), BYTES)


async def _bytes_per_job(bench: Bench, contender: Contender) -> float:
    jobs = bench.sizes.wal
    database = await bench.database(contender, "wal")
    async with bench.connected(database) as connection:
        await contender.store.clear(connection)
        await contender.store.vacuum(connection)
        await connection.execute("CHECKPOINT")
        began = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
        async with bench.producer(contender, database) as producer:
            for _ in range(jobs // CHUNK):
                await producer.ask("bulk", jobs=CHUNK, warm=0)
        async with pods(contender, bench.server.dsn(database)) as working:
            await working.go()
            await working.reach(jobs)
            ended = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
        written = await connection.fetchval("SELECT pg_wal_lsn_diff($1, $2)", ended, began)
    return float(written) / jobs
