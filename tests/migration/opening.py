"""Ways into a test's database: as Rota opens it, as a role without rights, for one statement."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

from rota.settings import DatabaseSettings
from rota.storage.pool import Database


@asynccontextmanager
async def opened(dsn: str, *, schema: str = "rota") -> AsyncIterator[Database]:
    database = Database(DatabaseSettings(url=dsn, schema=schema))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def plain_role(dsn: str) -> AsyncIterator[tuple[str, str]]:
    """A role without any rights, and the DSN that connects as it."""
    role, password = f"rota_test_{secrets.token_hex(4)}", secrets.token_hex(8)
    await execute(dsn, f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    try:
        place = urlsplit(dsn).netloc.rpartition("@")[2]
        yield role, urlsplit(dsn)._replace(netloc=f"{role}:{password}@{place}").geturl()
    finally:
        await execute(dsn, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


def database_of(dsn: str) -> str:
    return urlsplit(dsn).path.removeprefix("/")
