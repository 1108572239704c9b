"""Marks of the migration tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "matrix: every PostgreSQL version, when ROTA_MATRIX=1")
