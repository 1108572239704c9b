"""Everything but LISTEN works through a pooler in transaction mode, where no session is ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rota.settings import DatabaseSettings
from rota.storage.migrate import Migration, migrate, migrations, schema_status
from rota.storage.pool import Database
from tests.integration.storage.stage import Stage, ids
from tests.migration.pooler import pooler
from tests.migration.smoke import smoke


async def test_ten_that_start_at_once_migrate_once(empty_dsn: str, scratch: Path) -> None:
    async with pooler(empty_dsn, scratch, size=5) as dsn:

        async def start() -> list[Migration]:
            database = Database(DatabaseSettings(url=dsn, statement_cache=0))
            await database.open()
            try:
                applied = await migrate(database)
                (await schema_status(database)).check()
                return applied
            finally:
                await database.close()

        applied = await asyncio.gather(*(start() for _ in range(10)))
    assert sorted(step.version for steps in applied for step in steps) == [m.version for m in migrations()]


async def test_a_jobs_life_passes_through(dsn: str, scratch: Path) -> None:
    async with pooler(dsn, scratch, size=1) as pooled:
        database = Database(DatabaseSettings(url=pooled, statement_cache=0))
        await database.open()
        await smoke(database)
        await database.close()


async def test_many_claimers_on_few_connections_take_every_job_once(dsn: str, scratch: Path) -> None:
    async with Stage.on(dsn) as stage, pooler(dsn, scratch, size=2) as pooled:
        jobs = await stage.add(300)
        pods = [await stage.boot() for _ in range(6)]
        database = Database(DatabaseSettings(url=pooled, statement_cache=0))
        taken: list[int] = []

        async def drain(place: int) -> None:
            connection = await database.connect()
            while rows := await stage.claim(pods[place], 7, on=connection):
                taken.extend(ids(rows))
            await connection.close()

        await asyncio.gather(*(drain(place) for place in range(6)))
        assert sorted(taken) == jobs
