"""Every named query is one that the migrated schema can answer."""

from __future__ import annotations

import asyncpg
import pytest

from rota.storage.queries import queries
from tests.integration.storage.stage import Stage

BEFORE_PREPARING = {"create_schema", "create_migration_table", "add_digest_column", "lock_migrations"}
"""Commands that Postgres prepares only as far as it parses them; the migration tests run them."""


@pytest.mark.parametrize("name", sorted(set(queries("rota")) - BEFORE_PREPARING))
async def test_a_query_prepares(shared_stage: Stage, name: str) -> None:
    statement = await shared_stage.connection.prepare(queries("rota")[name])
    assert [parameter.name for parameter in statement.get_parameters() if parameter.name == "unknown"] == []


async def test_a_query_that_names_what_is_not_there_does_not_prepare(shared_stage: Stage) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await shared_stage.connection.prepare("SELECT FROM rota.jobs")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await shared_stage.connection.prepare("SELECT rota.beat()")
