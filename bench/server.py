"""The one Postgres of a run, and the databases made on it: one for each contender and case."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from rota.storage.embedded import start_embedded
from rota.storage.place import default_directory


@contextmanager
def postgres(dsn: str | None) -> Iterator[str]:
    """The DSN of the given server, or of an embedded one that is gone afterwards.

    An embedded one runs with the defaults of Postgres: fsync and synchronous_commit are on.
    """
    if dsn:
        yield dsn
        return
    home = default_directory().parent
    _remove_remains(home)
    directory = home / f"bench-{os.getpid()}"
    try:
        with start_embedded(directory=directory) as server:
            yield server.dsn
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_remains(home: Path) -> None:
    """What runs that were killed have left; a server does not outlive its bench."""
    for directory in home.glob("bench-*"):
        if not _alive(int(directory.name.removeprefix("bench-"))):
            shutil.rmtree(directory, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Server:
    """Where all contenders work."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._prefix = f"rota_bench_{os.getpid()}_"
        self._made: set[str] = set()

    def dsn(self, database: str) -> str:
        """How to reach one of our databases."""
        return urlsplit(self._dsn)._replace(path=f"/{self._prefix}{database}").geturl()

    async def connect(self, database: str) -> asyncpg.Connection:
        """A connection to one of our databases; big seeds take their time."""
        return await asyncpg.connect(self.dsn(database), command_timeout=600)

    async def create(self, database: str, template: str | None = None) -> bool:
        """Make a database, if need be as a copy; False when it is there already."""
        if database in self._made:
            return False
        source = f'TEMPLATE "{self._prefix}{template}"' if template else ""
        await self._execute(f'CREATE DATABASE "{self._prefix}{database}" {source}')
        self._made.add(database)
        return True

    async def drop(self, database: str) -> None:
        """Remove a database and whoever is still connected to it."""
        if database in self._made:
            self._made.discard(database)
            await self._execute(f'DROP DATABASE "{self._prefix}{database}" WITH (FORCE)')

    async def drop_all(self) -> None:
        """Leave nothing behind."""
        for database in list(self._made):
            await self.drop(database)

    async def describe(self) -> dict[str, str]:
        """What a figure depends on."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        connection = await asyncpg.connect(self._dsn)
        try:
            return {name: await connection.fetchval(f"SHOW {name}") for name in names}
        finally:
            await connection.close()

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
