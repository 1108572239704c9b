"""Fixtures of every test: a Postgres for the run, and a database for the test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.support.postgres import Databases, chosen_source, test_server
from tests.support.scratch import scratch_directory


def pytest_report_header() -> str:
    return f"postgres: {chosen_source()}"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that every account can enter, which those below tmp_path are not."""
    with scratch_directory() as directory:
        yield directory


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of the run's server. Tests do their work in a database of their own."""
    with test_server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def databases(postgres: str) -> Iterator[Databases]:
    with Databases(postgres) as databases:
        yield databases


@pytest.fixture(scope="session")
def template(databases: Databases) -> Iterator[str]:
    """The DSN of a database that was migrated once; nobody may connect to it."""
    with databases.migrated() as dsn:
        yield dsn


@pytest.fixture
def dsn(databases: Databases, template: str) -> Iterator[str]:
    """A database with Rota's schema, for this test alone."""
    with databases.fresh(template=template) as dsn:
        yield dsn


@pytest.fixture
def empty_dsn(databases: Databases) -> Iterator[str]:
    """An empty database, for this test alone."""
    with databases.fresh() as dsn:
        yield dsn


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the test's own database."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
