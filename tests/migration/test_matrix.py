"""The schema works, and is the same, on every PostgreSQL version that we support.

`ROTA_MATRIX=1` asks for it: each version is a download of some ten megabytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from rota.settings import DatabaseSettings
from rota.storage.embedded import EmbeddedServer, start_embedded
from rota.storage.migrate import migrate, migrations
from rota.storage.pool import Database
from tests.migration.smoke import smoke
from tests.migration.wheels import VERSIONS, binaries_of
from tests.support.postgres import FAST
from tests.support.scratch import scratch_directory
from tests.support.snapshot import SNAPSHOT, read_schema

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("ROTA_MATRIX") != "1", reason="ROTA_MATRIX=1 asks for all versions"),
]


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    binaries: Path = binaries_of(request.param)
    with (
        scratch_directory(in_memory=True) as directory,
        start_embedded(directory=directory, binaries=binaries, settings=FAST) as server,
    ):
        assert server.version == request.param
        yield server


async def test_a_jobs_life_on_each_version(server: EmbeddedServer) -> None:
    database = Database(DatabaseSettings(url=server.dsn))
    await database.open()
    assert len(await migrate(database)) == len(migrations())
    assert await migrate(database) == []
    await smoke(database)
    await smoke(database)
    await database.close()


async def test_the_schema_is_the_same_on_each_version(server: EmbeddedServer) -> None:
    database = Database(DatabaseSettings(url=server.dsn))
    await database.open()
    await migrate(database)
    await database.close()
    connection = await asyncpg.connect(server.dsn)
    schema = await read_schema(connection)
    await connection.close()
    assert schema == SNAPSHOT.read_text(encoding="utf-8")
