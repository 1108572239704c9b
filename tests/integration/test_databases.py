"""The databases that tests get: fresh, apart from each other, and gone afterwards."""

from __future__ import annotations

import asyncpg
import pytest

from tests.support.postgres import Databases


async def test_a_fresh_database_holds_nothing(empty_dsn: str) -> None:
    connection = await asyncpg.connect(empty_dsn)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    assert await connection.fetchval(tables) == 0
    await connection.close()


async def test_a_copy_has_what_its_template_had_and_goes_its_own_way(databases: Databases) -> None:
    with databases.fresh() as template:
        await execute(template, "CREATE TABLE seed AS SELECT 1")
        with databases.fresh(template=template) as one, databases.fresh(template=template) as two:
            await execute(one, "DROP TABLE seed")
            await execute(two, "SELECT * FROM seed")


async def test_a_database_is_dropped_though_somebody_is_connected(databases: Databases) -> None:
    with databases.fresh() as dsn:
        connection = await asyncpg.connect(dsn)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(dsn)
    connection.terminate()


async def test_the_database_of_a_test_is_migrated(connection: asyncpg.Connection) -> None:
    assert await connection.fetchval("SELECT count(*) FROM rota.migration") > 0


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()
