"""Migrations: once each, all or nothing, whoever starts at the same time and with whatever rights."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota.errors import DatabaseRefused, SchemaMissing, SchemaTooNew, SchemaTooOld, StorageError
from rota.settings import DatabaseSettings
from rota.storage import migrate as module
from rota.storage.migrate import Migration, SchemaStatus, migrate, migrations, schema_status
from rota.storage.pool import Database
from tests.migration.opening import database_of, execute, opened, plain_role
from tests.migration.smoke import smoke

KNOWN = [step.version for step in migrations()]
NEXT = KNOWN[-1] + 1
BROKEN = Migration(NEXT, "broken", 1, "CREATE TABLE rota.half (id integer); SELECT 1 / 0;")
WHOLE = Migration(NEXT, "whole", 1, "CREATE TABLE rota.half (id integer);")


async def test_ten_that_start_at_once_all_succeed_and_each_migration_is_applied_once(empty_dsn: str) -> None:
    async def start() -> list[Migration]:
        async with opened(empty_dsn) as database:
            return await migrate(database)

    applied = await asyncio.gather(*(start() for _ in range(10)))
    assert sorted(step.version for steps in applied for step in steps) == KNOWN
    await assert_versions(empty_dsn, KNOWN)


async def test_ten_that_start_at_once_on_an_older_schema_apply_the_new_migration_once(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), WHOLE))

    async def start() -> list[Migration]:
        async with opened(dsn) as database:
            return await migrate(database)

    applied = await asyncio.gather(*(start() for _ in range(10)))
    assert [step for steps in applied for step in steps] == [WHOLE]


async def test_migrating_again_does_nothing(dsn: str) -> None:
    async with opened(dsn) as database:
        assert await migrate(database) == []
        assert (await schema_status(database)).pending == ()


async def test_a_migration_that_fails_leaves_nothing_behind(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(dsn) as database:
        monkeypatch.setattr(module, "migrations", lambda: (*migrations(), BROKEN))
        with pytest.raises(StorageError, match="division by zero"):
            await migrate(database)
        await assert_versions(dsn, KNOWN)
        monkeypatch.setattr(module, "migrations", lambda: (*migrations(), WHOLE))
        assert await migrate(database) == [WHOLE]
        await assert_versions(dsn, [*KNOWN, NEXT])


async def test_a_first_migration_that_fails_can_be_tried_again(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(empty_dsn) as database:
        broken = Migration(1, "broken", 1, migrations()[0].sql + "\nSELECT 1 / 0;")
        monkeypatch.setattr(module, "migrations", lambda: (broken,))
        with pytest.raises(StorageError):
            await migrate(database)
        assert (await schema_status(database)).version == 0
        monkeypatch.setattr(module, "migrations", migrations)
        assert [step.version for step in await migrate(database)] == KNOWN


async def test_migrations_are_numbered_without_gaps_and_serve_their_predecessor() -> None:
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))
    assert all(1 <= step.serves <= step.version for step in migrations())


async def test_an_empty_database_has_no_schema(empty_dsn: str) -> None:
    async with opened(empty_dsn) as database:
        status = await schema_status(database)
        assert (status.version, status.pending[0]) == (0, "0001_initial")
        with pytest.raises(SchemaMissing, match="rota db migrate"):
            status.check()


async def test_code_refuses_a_schema_that_no_longer_serves_it(dsn: str) -> None:
    newest = KNOWN[-1]
    async with opened(dsn) as database:
        (await schema_status(database)).check()
        await execute(dsn, f"INSERT INTO rota.migration VALUES ({newest + 1}, 'next', {newest})")
        (await schema_status(database)).check()
        await execute(dsn, f"INSERT INTO rota.migration VALUES ({newest + 2}, 'after', {newest + 1})")
        with pytest.raises(SchemaTooNew, match="install a newer Rota") as error:
            (await schema_status(database)).check()
        assert (error.value.found, error.value.known) == (newest + 2, newest)
        assert await migrate(database) == []


async def test_code_refuses_a_schema_that_is_older_than_it(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), WHOLE))
    async with opened(dsn) as database:
        status = await schema_status(database)
        assert status.pending == (WHOLE.title,)
        with pytest.raises(SchemaTooOld) as error:
            status.check()
        assert (error.value.found, error.value.needed) == (KNOWN[-1], NEXT)


def test_what_may_run_on_what() -> None:
    SchemaStatus("rota", version=3, serves=2, known=3, pending=()).check()
    SchemaStatus("rota", version=3, serves=2, known=2, pending=()).check()
    with pytest.raises(SchemaTooNew):
        SchemaStatus("rota", version=3, serves=2, known=1, pending=()).check()
    with pytest.raises(SchemaTooOld):
        SchemaStatus("rota", version=2, serves=1, known=3, pending=("0003_x",)).check()


async def test_no_superuser_is_needed(empty_dsn: str) -> None:
    async with plain_role(empty_dsn) as (role, as_role):
        await execute(empty_dsn, f"GRANT CREATE ON DATABASE {database_of(empty_dsn)} TO {role}")
        async with opened(as_role) as database:
            await migrate(database)
            await smoke(database)


async def test_a_schema_that_the_dba_has_made_is_enough(empty_dsn: str) -> None:
    async with plain_role(empty_dsn) as (role, as_role):
        await execute(empty_dsn, f"CREATE SCHEMA rota AUTHORIZATION {role}")
        async with opened(as_role) as database:
            await migrate(database)
            await smoke(database)


async def test_without_the_right_to_create_a_schema_the_refusal_is_plain(empty_dsn: str) -> None:
    async with plain_role(empty_dsn) as (_, as_role), opened(as_role) as database:
        with pytest.raises(DatabaseRefused, match="permission denied for database"):
            await migrate(database)


async def test_a_migration_and_those_who_wait_for_it_outlast_the_command_timeout(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Migration(NEXT, "slow", 1, "SELECT pg_sleep(1.5); CREATE TABLE rota.half (id integer);")
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), slow))

    async def start() -> list[Migration]:
        database = Database(DatabaseSettings(url=dsn, command_timeout=1.0))
        await database.open()
        try:
            return await migrate(database)
        finally:
            await database.close()

    applied = await asyncio.gather(start(), start())
    assert sorted(applied, key=len) == [[], [slow]]


async def assert_versions(dsn: str, versions: list[int]) -> None:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT version FROM rota.migration ORDER BY version")
    half = await connection.fetchval("SELECT to_regclass('rota.half') IS NOT NULL")
    await connection.close()
    assert [row["version"] for row in rows] == versions
    assert half == (NEXT in versions)
