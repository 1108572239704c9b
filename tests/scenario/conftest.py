"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.support.crash_app import Notebook
from tests.support.crash_scene import Scene
from tests.support.cutter import Cutter


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
