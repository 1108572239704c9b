"""What an idle cluster says: statements per second of a follower and of the leader, by number of queues."""

from __future__ import annotations

import asyncio

from bench.cluster.fleet import Fleet

_SETTLE = 6.0


async def statements(dsn: str, queues: int, seconds: float) -> tuple[float, float]:
    """Statements per second of a follower and of the leader, from pg_stat_statements."""
    alone = await _rate(dsn, queues, 1, seconds)
    three = await _rate(dsn, queues, 3, seconds)
    return (three - alone) / 2, alone


async def _rate(dsn: str, queues: int, pods: int, seconds: float) -> float:
    async with Fleet.on(dsn, queues=queues) as fleet:
        await fleet.start(pods)
        await asyncio.sleep(_SETTLE)
        await fleet.connection.execute("SELECT pg_stat_statements_reset()")
        await asyncio.sleep(seconds)
        calls = await fleet.connection.fetchval(
            "SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE '/* rota.%'"
        )
        return float(calls or 0) / seconds
