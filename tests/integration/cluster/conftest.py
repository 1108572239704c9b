"""The stage of the rota, on a database of the test's own, with the clock stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.cluster.stage import Stage


@pytest.fixture
async def stage(dsn: str) -> AsyncIterator[Stage]:
    async with Stage.on(dsn) as stage:
        await stage.time.stop()
        yield stage
