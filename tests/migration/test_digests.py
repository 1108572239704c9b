"""What was applied is remembered by digest: an edited migration is noticed, here and in a database."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from rota.errors import DatabaseRefused, SchemaEdited
from rota.storage import migrate as module
from rota.storage.migrate import Migration, SchemaStatus, migrate, migrations, schema_status
from tests.integration.storage.stage import PATIENCE, Stage
from tests.migration.opening import execute, opened, plain_role
from tests.migration.smoke import smoke
from tests.support.snapshot import SNAPSHOT, read_schema

LANDED = {
    "0001_initial": "d4f9b51d892d7a675499c23b166e80ffa8912e8554a789cb64af6e1db28dd77d",
    "0002_throttle_locks_first": "eafdb5352a28de4ab7cc302c095f051bda7d88b1e077e1455a7af174f7dd413a",
}
"""Migrations that are in somebody's database: their text never changes again."""

FIRST_TABLE = """
    CREATE SCHEMA rota;
    CREATE TABLE rota.migration (
        version    integer NOT NULL,
        name       text NOT NULL,
        serves     integer NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT migration_version_is_unique PRIMARY KEY (version)
    );
"""
"""As the first version made it, which knew no digests."""


@pytest.mark.parametrize("title", LANDED)
def test_a_landed_migration_is_as_it_landed(title: str) -> None:
    digests = {step.title: step.digest for step in migrations()}
    assert digests.get(title) == LANDED[title], (
        f"{title} has landed and may be in somebody's database: put it back as it was, "
        "and write a new migration with the next number instead."
    )


def test_every_migration_but_the_newest_is_known_to_have_landed() -> None:
    assert [step.title for step in migrations()[:-1] if step.title not in LANDED] == [], (
        "a later migration follows, so these have landed: add their digests to LANDED."
    )


def test_line_ends_do_not_change_a_digest_and_a_space_does() -> None:
    step = Migration(1, "x", 1, "SELECT 1;\nSELECT 2;\n")
    assert replace(step, sql="SELECT 1;\r\nSELECT 2;\r\n").digest == step.digest
    assert replace(step, sql="SELECT  1;\nSELECT 2;\n").digest != step.digest


async def test_every_applied_migration_is_recorded_with_its_digest(dsn: str) -> None:
    assert await recorded(dsn) == {step.version: step.digest for step in migrations()}


async def test_the_digest_is_the_same_in_every_schema(empty_dsn: str) -> None:
    async with opened(empty_dsn, schema="acme") as database:
        await migrate(database)
        (await schema_status(database)).check()
    assert await recorded(empty_dsn, "acme") == {step.version: step.digest for step in migrations()}


async def test_a_schema_that_another_build_made_is_refused_and_left_alone(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = migrations()
    edited = replace(first, sql=first.sql + "-- edited\n")
    more = Migration(len(others) + 2, "more", 1, "CREATE TABLE rota.more (id integer);")
    monkeypatch.setattr(module, "migrations", lambda: (edited, *others, more))
    async with opened(dsn) as database:
        status = await schema_status(database)
        assert status.edited == ("0001_initial",)
        with pytest.raises(
            SchemaEdited, match=r"something else in 0001_initial; use the release that made it"
        ):
            status.check()
        with pytest.raises(SchemaEdited) as error:
            await migrate(database)
    assert (error.value.schema, error.value.migrations) == ("rota", ("0001_initial",))
    assert more.version not in await recorded(dsn)


def test_another_build_is_told_of_before_another_version() -> None:
    with pytest.raises(SchemaEdited, match="in 0001_a, 0002_b;"):
        SchemaStatus(
            "rota", version=2, serves=1, known=3, pending=("0003_c",), edited=("0001_a", "0002_b")
        ).check()


async def test_a_migration_of_a_later_release_is_none_of_our_business(dsn: str) -> None:
    newest = migrations()[-1].version
    await execute(dsn, f"INSERT INTO rota.migration VALUES ({newest + 1}, 'next', 1, now(), 'whatever')")
    async with opened(dsn) as database:
        (await schema_status(database)).check()
        assert await migrate(database) == []


async def test_a_schema_of_the_first_version_is_taken_as_it_is_and_brought_up(empty_dsn: str) -> None:
    first, *others = migrations()
    await make_first_version(empty_dsn)

    async def start() -> list[Migration]:
        async with opened(empty_dsn) as database:
            assert (await schema_status(database)).edited == ()
            return await migrate(database)

    applied = await asyncio.gather(*(start() for _ in range(5)))
    assert sorted(step.version for steps in applied for step in steps) == [step.version for step in others]
    assert await recorded(empty_dsn) == {first.version: None} | {step.version: step.digest for step in others}
    connection = await asyncpg.connect(empty_dsn)
    assert await read_schema(connection) == SNAPSHOT.read_text(encoding="utf-8")
    await connection.close()
    async with opened(empty_dsn) as database:
        (await schema_status(database)).check()
        await smoke(database)


async def test_who_waits_to_add_the_column_keeps_nobody_from_looking(empty_dsn: str) -> None:
    await make_first_version(empty_dsn)
    async with Stage.on(empty_dsn) as stage, opened(empty_dsn) as database:
        other = await stage.connect()
        migration = other.transaction()
        await migration.start()
        await other.execute("LOCK TABLE rota.migration IN EXCLUSIVE MODE")
        waiting = asyncio.ensure_future(migrate(database))
        await stage.until_in_the_way(other)
        async with asyncio.timeout(PATIENCE):
            assert (await schema_status(stage.database)).version == 1
        await migration.commit()
        assert await waiting == [*migrations()[1:]]


async def test_code_that_knows_no_digests_can_still_record_a_migration(dsn: str) -> None:
    newest = migrations()[-1].version
    await execute(
        dsn, f"INSERT INTO rota.migration (version, name, serves) VALUES ({newest + 1}, 'old', {newest})"
    )
    async with opened(dsn) as database:
        (await schema_status(database)).check()


async def test_a_role_that_may_not_alter_the_table_is_not_asked_to_where_all_is_up_to_date(dsn: str) -> None:
    async with plain_role(dsn) as (role, as_role):
        await grant(dsn, role)
        async with opened(as_role) as database:
            assert await migrate(database) == []


async def test_a_role_that_may_not_alter_a_table_of_the_first_version_is_told_so(empty_dsn: str) -> None:
    await make_first_version(empty_dsn)
    async with plain_role(empty_dsn) as (role, as_role):
        await grant(empty_dsn, role)
        async with opened(as_role) as database:
            assert (await schema_status(database)).version == 1
            with pytest.raises(DatabaseRefused, match="must be owner of table migration"):
                await migrate(database)


async def make_first_version(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(FIRST_TABLE)
    await connection.execute(migrations()[0].sql)
    await connection.execute("INSERT INTO rota.migration (version, name, serves) VALUES (1, 'initial', 1)")
    await connection.close()


async def grant(dsn: str, role: str) -> None:
    """What an application's role has when another one migrates."""
    await execute(dsn, f"GRANT USAGE ON SCHEMA rota TO {role}")
    await execute(dsn, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rota TO {role}")


async def recorded(dsn: str, schema: str = "rota") -> dict[int, str | None]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(f"SELECT version, digest FROM {schema}.migration")
    await connection.close()
    return {row["version"]: row["digest"] for row in rows}
