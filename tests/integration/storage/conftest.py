"""The stage, on a migrated database of the test's own or, for what leaves no trace, of the module's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.storage.stage import Stage
from tests.support.postgres import Databases


@pytest.fixture
async def stage(dsn: str) -> AsyncIterator[Stage]:
    async with Stage.on(dsn) as stage:
        yield stage


@pytest.fixture(scope="module")
def shared_dsn(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template=template) as dsn:
        yield dsn


@pytest.fixture
async def shared_stage(shared_dsn: str) -> AsyncIterator[Stage]:
    """For tests of what is refused: nothing is written, so that the next finds nothing."""
    async with Stage.on(shared_dsn) as stage:
        yield stage
        assert await stage.connection.fetchval("SELECT count(*) FROM rota.job") == 0
