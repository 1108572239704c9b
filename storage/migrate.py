"""Schema and migrations: numbered, forward-only, one transaction each.

Safe when ten pods start at once and through a transaction-mode pooler: whoever migrates
locks the table `migration`, then reads the version again. Each migration says in its first
lines the oldest version whose code may still run on it ("-- serves: 1"; default: its own
predecessor), so that version N-1 pods live on while N rolls out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg

from rota.errors import SchemaMissing, SchemaTooNew, SchemaTooOld, StorageError

from .pool import Connection, Database
from .queries import in_schema

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_SERVES = re.compile(r"^-- serves: (\d+)$", re.MULTILINE)
_RACED = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
)
_ATTEMPTS = 5
_PATIENCE = 3600.0
"""Seconds: a migration of a large table may outlast the command timeout, and others wait for it."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    serves: int
    sql: str


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What the database has against what this code knows."""

    schema: str
    version: int
    serves: int
    known: int
    pending: tuple[str, ...]

    def check(self) -> None:
        """Raise unless this code may run on this schema."""
        if self.version == 0:
            raise SchemaMissing(self.schema)
        if self.version < self.known:
            raise SchemaTooOld(self.schema, self.version, self.known)
        if self.serves > self.known:
            raise SchemaTooNew(self.schema, self.version, self.known)


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration this code knows, in order."""
    found = []
    for file in files("rota.storage").joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            sql = file.read_text("utf-8")
            version = int(match[1])
            serves = _SERVES.search(sql)
            found.append(Migration(version, match[2], int(serves[1]) if serves else max(1, version - 1), sql))
    return tuple(sorted(found, key=lambda migration: migration.version))


async def migrate(database: Database) -> list[Migration]:
    """Bring the schema up to this code; the migrations that were applied."""
    await _lay_ground(database)
    return [migration for migration in migrations() if await _apply(database, migration)]


async def schema_status(database: Database) -> SchemaStatus:
    """Where the schema stands; version 0 where there is none."""
    known = migrations()
    version, serves = 0, 0
    if await database.fetchval("find_migration_table"):
        version, serves = await _read_version(database)
    pending = tuple(f"{m.version:04}_{m.name}" for m in known if m.version > version)
    return SchemaStatus(database.schema, version, serves, known[-1].version, pending)


async def _lay_ground(database: Database) -> None:
    """The schema and the table of migrations; IF NOT EXISTS still races, so a loser looks again."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if not await database.fetchval("find_migration_table"):
                if not await database.fetchval("find_schema", database.schema):
                    await database.execute("create_schema")
                await database.execute("create_migration_table")
            return
        except StorageError as error:
            if attempt == _ATTEMPTS or not isinstance(error.__cause__, _RACED):
                raise


async def _apply(database: Database, migration: Migration) -> bool:
    """Apply one migration unless someone already has."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(database.queries["lock_migrations"], timeout=_PATIENCE)
        version, _ = await _read_version(database, on=connection)
        if version >= migration.version:
            return False
        await connection.execute(in_schema(migration.sql, database.schema), timeout=_PATIENCE)
        await database.execute(
            "record_migration", migration.version, migration.name, migration.serves, on=connection
        )
        return True


async def _read_version(database: Database, on: Connection | None = None) -> tuple[int, int]:
    row = await database.fetchrow("read_version", on=on)
    return (row["version"], row["serves"]) if row else (0, 0)
