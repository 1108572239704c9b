"""The door to Postgres: connections, their options, and named queries run on them.

No session state decides anything: nothing is SET, no advisory lock is taken, so that a
transaction-mode pooler may stand in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from rota.errors import AppClosed, BadInput, BadSettings, DatabaseRefused, DatabaseUnavailable
from rota.settings import DatabaseSettings

from .failures import translated
from .queries import queries

Password = str | Callable[[], str] | Callable[[], Awaitable[str]]
Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
Record = asyncpg.Record

_KEEP = 1.0
"""Seconds without use after which a kept connection goes back."""


class Kept:
    """A connection of the pool that is kept while statements follow each other quickly.

    Taking one from the pool and giving it back costs more than a small statement. It goes back
    at once when the pool has no other to give, and after a second without use, since only the
    pool knows how to grow old.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.pool.PoolConnectionProxy | None = None
        self._busy = False
        self._used = False
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Connection:
        """The connection; one user at a time."""
        self._busy = True
        try:
            if self._connection is None or _gone(self._connection):
                await self.give_back()
                self._connection = await self._database.acquire()
                self._timer = asyncio.get_running_loop().call_later(_KEEP, self._look)
        except BaseException:
            self._busy = False
            raise
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._busy = False
        self._used = True
        if error is not None or not self._database.has_idle():
            await self.give_back()

    async def give_back(self) -> None:
        """Return it to the pool, which drops a broken one."""
        connection = self._let_go()
        if connection is not None:
            await self._database.release(connection)

    def _let_go(self) -> asyncpg.pool.PoolConnectionProxy | None:
        """At once, so that nobody takes up a connection that is on its way back."""
        connection, self._connection = self._connection, None
        if self._timer is not None:
            self._timer.cancel()
        return connection

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._busy or self._used:
            self._used = False
            self._timer = loop.call_later(_KEEP, self._look)
        elif (connection := self._let_go()) is not None:
            self._returning = loop.create_task(self._database.release(connection))


class Database:
    """A pool on one database, and the named queries in its schema."""

    def __init__(
        self, settings: DatabaseSettings, *, name: str = "rota", password: Password | None = None
    ) -> None:
        if not settings.url:
            raise BadSettings("No database is configured; set ROTA_DATABASE_URL to a Postgres DSN.")
        self.settings = settings
        self.schema = settings.schema
        self.queries = queries(settings.schema)
        self.address = address(settings.url)
        self._name = name
        self._password = password
        self._pool: asyncpg.Pool | None = None
        self._users = 0

    async def open(self, *, at_least: int = 1, direct: bool = False) -> None:
        """Connect; DatabaseUnavailable when waiting may help, DatabaseRefused when not.

        With `at_least=0` only once there is something to ask. `direct` goes past a pooler where
        one is configured, if that way is open.
        """
        if direct and self.settings.direct_url:
            try:
                await self._open(self.settings.direct_url, max(1, at_least))
                return
            except (DatabaseUnavailable, DatabaseRefused):
                pass  # the listener, which depends on it, will tell
        await self._open(self.settings.url or "", at_least)

    async def _open(self, url: str, at_least: int) -> None:
        with translated(address(url)):
            self._pool = await asyncpg.create_pool(
                url,
                min_size=at_least,
                max_size=self.settings.pool_size,
                reset=_nothing,
                **self._options(),
            )

    async def close(self) -> None:
        """Give all connections back; one that hangs is cut."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(5.0):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def connect(self, *, direct: bool = False) -> asyncpg.Connection:
        """A connection of one's own; `direct` goes past a pooler where one is configured."""
        url = (self.settings.direct_url if direct else None) or self.settings.url
        with translated(address(url or "")):
            return await asyncpg.connect(url, **self._options())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, for more than one statement."""
        pool = self._opened()
        with _Use(self):
            async with pool.acquire() as connection:
                yield connection

    async def acquire(self) -> asyncpg.pool.PoolConnectionProxy:
        """A connection of the pool; it must be released."""
        with _Use(self):
            connection = await self._opened().acquire()
            self._users += 1
            return connection

    def has_idle(self) -> bool:
        """Whether someone else could have a connection now. Counted here: asking the pool costs more."""
        return self._users < self.settings.pool_size

    async def release(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        """Give a connection back."""
        self._users -= 1
        if self._pool is not None:
            with translated(self.address):
                await self._pool.release(connection)

    async def fetch(self, query: str, *arguments: Any, on: Connection | None = None) -> list[Record]:
        """All rows of a named query."""
        with self._using(on):
            rows: list[Record] = await (on or self._opened()).fetch(self.queries[query], *arguments)
            return rows

    async def fetchrow(self, query: str, *arguments: Any, on: Connection | None = None) -> Record | None:
        """The first row of a named query."""
        with self._using(on):
            return await (on or self._opened()).fetchrow(self.queries[query], *arguments)

    async def fetchval(self, query: str, *arguments: Any, on: Connection | None = None) -> Any:
        """The first column of the first row of a named query."""
        with self._using(on):
            return await (on or self._opened()).fetchval(self.queries[query], *arguments)

    async def execute(self, query: str, *arguments: Any, on: Connection | None = None) -> int:
        """Run a named query for its effect; the number of rows it touched."""
        with self._using(on):
            status: str = await (on or self._opened()).execute(self.queries[query], *arguments)
            rows = status.rpartition(" ")[2]
            return int(rows) if rows.isdigit() else 0

    def _using(self, on: Connection | None) -> translated:
        return translated(self.address) if on is not None else _Use(self)

    def _opened(self) -> asyncpg.Pool:
        if self._pool is None:
            raise AppClosed('The app is not open; use "async with app:" around this.')
        return self._pool

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "timeout": self.settings.connect_timeout,
            "command_timeout": self.settings.command_timeout,
            "statement_cache_size": self.settings.statement_cache,
            "server_settings": {"application_name": self._name},
        }
        if self._password is not None:
            options["password"] = self._password
        elif self.settings.password_file:
            options["password"] = self._read_password
        return options

    def _read_password(self) -> str:
        """Read anew at each connect, so that a rotated secret is taken up."""
        path = Path(self.settings.password_file or "")
        try:
            return path.read_text().strip()
        except OSError as error:
            raise DatabaseRefused(f"The password file {path} cannot be read: {error.strerror}.") from error


class _Use(translated):
    """While a connection of the pool is used or waited for."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        super().__init__(database.address)
        self._database = database

    def __enter__(self) -> None:
        self._database._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database._users -= 1
        super().__exit__(kind, error, trace)


def address(url: str) -> str:
    """Host, port and database of a DSN, without user and password."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    hosts = parts.netloc.rpartition("@")[2] or query.get("host") or os.environ.get("PGHOST") or "localhost"
    if not hosts.startswith("/") and ":" not in hosts:
        hosts = f"{hosts}:{query.get('port') or os.environ.get('PGPORT') or 5432}"
    database = (
        parts.path.lstrip("/")
        or query.get("dbname")
        or os.environ.get("PGDATABASE")
        or "the default database"
    )
    return f'Postgres at {hosts}, database "{database}",'


def check_connection(connection: object) -> None:
    """BadInput unless it is one of asyncpg's."""
    if not isinstance(connection, (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy)):
        raise BadInput(
            f"A {type(connection).__module__}.{type(connection).__qualname__} was given as connection; "
            "give one of asyncpg's, or call the SQL function rota.enqueue on yours."
        )


def _gone(connection: asyncpg.pool.PoolConnectionProxy) -> bool:
    """Whether it was closed; the pool takes a connection that broke out of its proxy."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def _nothing(connection: asyncpg.Connection) -> None:
    """In place of asyncpg's reset: we leave no session state, so its extra round trip is saved."""
