"""Schema and migrations: numbered, forward-only, one transaction each.

Safe when ten pods start at once and through a transaction-mode pooler: whoever migrates
locks the table `migration`, then reads the version again. Each migration says in its first
lines the oldest version whose code may still run on it ("-- serves: 1"; default: its own
predecessor), so that version N-1 pods live on while N rolls out.

What was applied is recorded with a digest of its text: a schema made by a build that had
something else in a migration is refused, instead of failing later in some statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

import asyncpg

from rota.errors import SchemaEdited, SchemaMissing, SchemaTooNew, SchemaTooOld, StorageError

from .pool import Database, Record
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

    @property
    def title(self) -> str:
        """Number and name, as its file is called."""
        return f"{self.version:04}_{self.name}"

    @property
    def digest(self) -> str:
        """Of the text as written, whatever schema it goes to and however its lines end."""
        return sha256(self.sql.replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What the database has against what this code knows."""

    schema: str
    version: int
    serves: int
    known: int
    pending: tuple[str, ...]
    edited: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise unless this code may run on this schema."""
        if self.version == 0:
            raise SchemaMissing(self.schema)
        if self.edited:
            raise SchemaEdited(self.schema, self.edited)
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
    await _add_digests(database)
    return [migration for migration in migrations() if await _apply(database, migration)]


async def schema_status(database: Database) -> SchemaStatus:
    """Where the schema stands; version 0 where there is none."""
    there = await database.fetchval("find_migration_table")
    return _status(database.schema, await database.fetch("read_migrations") if there else [])


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


async def _add_digests(database: Database) -> None:
    """The column that tables of the first version lack; only their owner may add it."""
    if await database.fetchval("find_digest_column"):
        return
    async with database.connection() as connection, connection.transaction():
        # Waiting with this lock keeps nobody from reading; the wait for ALTER TABLE would.
        await connection.execute(database.queries["lock_migrations"], timeout=_PATIENCE)
        await database.execute("add_digest_column", on=connection)


async def _apply(database: Database, migration: Migration) -> bool:
    """Apply one migration unless someone already has."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(database.queries["lock_migrations"], timeout=_PATIENCE)
        status = _status(database.schema, await database.fetch("read_migrations", on=connection))
        if status.edited:
            raise SchemaEdited(status.schema, status.edited)
        if status.version >= migration.version:
            return False
        await connection.execute(in_schema(migration.sql, database.schema), timeout=_PATIENCE)
        await database.execute(
            "record_migration",
            migration.version,
            migration.name,
            migration.serves,
            migration.digest,
            on=connection,
        )
        return True


def _status(schema: str, applied: Sequence[Record]) -> SchemaStatus:
    """What was applied, oldest first, against what this code knows; without a digest anything may be."""
    known = migrations()
    version, serves = (applied[-1]["version"], applied[-1]["serves"]) if applied else (0, 0)
    digests = {row["version"]: row["digest"] for row in applied}
    return SchemaStatus(
        schema,
        version,
        serves,
        known[-1].version,
        pending=tuple(step.title for step in known if step.version > version),
        edited=tuple(step.title for step in known if digests.get(step.version) not in (None, step.digest)),
    )
