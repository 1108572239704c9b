"""Fixtures of tests that run pods in their own process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rota import App
from rota.testing import Recorder
from tests.support.pods import make_app, recorded


@pytest.fixture
def app(dsn: str) -> App:
    """An app on the test's own database, not yet open, that serves the queue `work`."""
    return make_app(dsn)


@pytest.fixture
def told(app: App) -> Recorder:
    """All that the app and its pods tell."""
    return recorded(app)


@pytest.fixture(autouse=True)
def no_pod_is_left_behind() -> Iterator[None]:
    """A control thread that outlives its pod would go on beating, and hold its slots for ever."""
    yield
    assert [thread for thread in threading.enumerate() if thread.name == "rota-control"] == []
