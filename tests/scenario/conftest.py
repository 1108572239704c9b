"""Fixtures of the crash tests and of the cluster scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from rota.storage.embedded import start_embedded
from tests.support.cluster_recorder import SERVER, install
from tests.support.cluster_scene import Cluster
from tests.support.crash_app import Notebook
from tests.support.crash_scene import Scene
from tests.support.cutter import Cutter
from tests.support.inline import Rota
from tests.support.postgres import FAST, Databases
from tests.support.scratch import scratch_directory


@pytest.fixture
async def scene(dsn: str, connection: asyncpg.Connection, tmp_path: Path) -> AsyncIterator[Scene]:
    """A database, and a notebook for the handlers that run on it."""
    notebook = Notebook(tmp_path)
    yield Scene(dsn, connection, notebook)
    notebook.open_door()
    notebook.close()


@pytest.fixture
async def cutter(dsn: str) -> AsyncIterator[Cutter]:
    """A proxy before the test's database."""
    async with Cutter(dsn) as cutter:
        yield cutter


@pytest.fixture(scope="session")
def recorded_databases() -> Iterator[Databases]:
    """A server that remembers when each transaction was committed, and shares its clock with us."""
    with (
        scratch_directory(in_memory=True) as directory,
        start_embedded(directory=directory, settings={**FAST, **SERVER}) as server,
        Databases(server.dsn) as databases,
    ):
        yield databases


@pytest.fixture(scope="session")
def recorded_template(recorded_databases: Databases) -> Iterator[str]:
    """The DSN of a migrated database with a recorder in it; nobody may connect to it."""
    with recorded_databases.migrated() as dsn, ThreadPoolExecutor(max_workers=1) as aside:
        aside.submit(asyncio.run, install(dsn)).result()
        yield dsn


@pytest.fixture
async def cluster(
    recorded_databases: Databases, recorded_template: str, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """A recorded database, and whatever workers the test starts on it; none is left in the end."""
    with recorded_databases.fresh(template=recorded_template) as dsn:
        database = await asyncpg.connect(dsn)
        cluster = Cluster(dsn, database, tmp_path)
        try:
            yield cluster
        finally:
            for worker in cluster.workers:
                worker.discard()
            await database.close()


@pytest.fixture
def here(dsn: str) -> Rota:
    """The command line on the test's database."""
    return Rota(dsn)
