"""The Postgres of the test run, and databases in it.

ROTA_TEST_DSN names a server (a URL; its role may create databases). ROTA_TEST_POSTGRES=docker asks
for a container, and gets the embedded server if no Docker daemon answers (ROTA_REQUIRE_ALL=1: an
error). Otherwise it is an embedded server in a directory that is thrown away. Every worker of
pytest-xdist has its own, except that they share the server of ROTA_TEST_DSN.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg
import pytest

from rota.settings import DatabaseSettings
from rota.storage.embedded import start_embedded
from rota.storage.migrate import migrate
from rota.storage.pool import Database
from tests.support.scratch import scratch_directory

T = TypeVar("T")

# Nothing of a test has to survive a crash of the machine, and autovacuum would only disturb.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "300",
    "max_wal_size": "256MB",
}
IMAGE = "postgres:18-alpine"


@contextmanager
def test_server() -> Iterator[str]:
    """The DSN of a server, for as long as the run lasts."""
    if dsn := os.environ.get("ROTA_TEST_DSN"):
        yield dsn
    elif wants_docker() and docker_answers():
        with _container() as dsn:
            yield dsn
    else:
        with (
            scratch_directory(in_memory=True) as directory,
            start_embedded(directory=directory, settings=FAST) as server,
        ):
            yield server.dsn


def wants_docker() -> bool:
    return os.environ.get("ROTA_TEST_POSTGRES") == "docker"


def docker_answers() -> bool:
    """Ask the command, which knows contexts and leaves no half-open socket when nobody answers."""
    try:
        asked = subprocess.run(["docker", "version"], capture_output=True, check=False)
        answers = asked.returncode == 0
    except OSError:
        answers = False
    if not answers and os.environ.get("ROTA_REQUIRE_ALL") == "1":
        raise pytest.UsageError("ROTA_TEST_POSTGRES=docker, but no Docker daemon answers.")
    return answers


def chosen_source() -> str:
    """Say in a few words which Postgres the run uses."""
    if os.environ.get("ROTA_TEST_DSN"):
        return "that of ROTA_TEST_DSN"
    if not wants_docker():
        return "embedded"
    return "in a container" if docker_answers() else "embedded, as no Docker daemon answers"


class Databases:
    """Makes and drops databases, on a thread and loop of its own: those of tests come and go."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="databases")
        self._runner = asyncio.Runner()
        self._names = (f"rota_test_{secrets.token_hex(4)}_{number}" for number in count())
        self._connection = self._run(asyncpg.connect(dsn))
        # The quicker way while a template is small; Postgres 14 knows no other.
        modern = self._connection.get_server_version().major >= 15
        self._strategy = "STRATEGY file_copy" if modern else ""

    @contextmanager
    def fresh(self, *, template: str | None = None) -> Iterator[str]:
        """The DSN of a new database, empty or a copy of the template's, dropped in the end."""
        name = next(self._names)
        origin = "template0" if template is None else urlsplit(template).path.removeprefix("/")
        self._execute(f"CREATE DATABASE {name} TEMPLATE {origin} {self._strategy}")
        try:
            yield urlsplit(self._dsn)._replace(path=f"/{name}").geturl()
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """The DSN of a database with Rota's schema, from which others are copied."""
        with self.fresh() as dsn:
            self._run(_migrate(dsn))
            yield dsn

    def _execute(self, statement: str) -> None:
        self._run(self._connection.execute(statement))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(self._runner.run, work).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._connection.close())
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


async def _migrate(dsn: str) -> None:
    database = Database(DatabaseSettings(url=dsn))
    await database.open()
    try:
        await migrate(database)
    finally:
        await database.close()


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415

    options = " ".join(f"-c {name}={value}" for name, value in FAST.items())
    with PostgresContainer(IMAGE, driver=None).with_command(f"postgres {options}") as container:
        yield container.get_connection_url()
