"""Two Rotas in one database, each in a schema of its own, do not notice each other."""

from __future__ import annotations

import asyncpg
import pytest

from rota.errors import SchemaMissing
from rota.storage.migrate import migrate, schema_status
from tests.integration.storage.stage import Stage
from tests.migration.smoke import smoke


async def test_both_work_side_by_side_with_jobs_of_their_own(dsn: str) -> None:
    async with Stage.on(dsn) as ours, Stage.on(dsn, schema="acme") as theirs:
        with pytest.raises(SchemaMissing, match='"acme"'):
            (await schema_status(theirs.database)).check()
        await migrate(theirs.database)
        kept = await ours.add(3)
        await smoke(theirs.database)
        assert [job.id for job in await ours.jobs.list_jobs()] == kept[::-1]
        added = await theirs.add(2)
        assert len(await ours.jobs.list_jobs()) == 3
        assert {job.id for job in await theirs.jobs.list_jobs(most=2)} == set(added)


async def test_a_pod_of_one_claims_no_job_of_the_other(dsn: str) -> None:
    async with Stage.on(dsn) as ours, Stage.on(dsn, schema="acme") as theirs:
        await migrate(theirs.database)
        await ours.add()
        pod = await theirs.boot()
        assert await theirs.claim(pod) == []
        await theirs.add()
        assert len(await theirs.claim(pod)) == 1
        assert await ours.pods.list_pods() == []


async def test_notices_of_one_are_not_heard_by_the_other(dsn: str) -> None:
    async with Stage.on(dsn) as ours, Stage.on(dsn, schema="acme") as theirs:
        await migrate(theirs.database)
        our_ear, their_ear = await ours.listen(), await theirs.listen()
        await theirs.add(queue="a")
        await ours.add(queue="b")
        assert await our_ear.heard() == ["ready:b"]
        assert await their_ear.heard() == ["ready:a"]


async def test_nothing_is_put_into_any_other_schema(dsn: str) -> None:
    async with Stage.on(dsn, schema="acme") as theirs:
        connection = await asyncpg.connect(dsn)
        before = await outside(connection)
        await migrate(theirs.database)
        assert await outside(connection) == before
        await connection.close()


async def outside(connection: asyncpg.Connection) -> int:
    count: int = await connection.fetchval(
        """
        SELECT (SELECT count(*) FROM pg_class WHERE relnamespace <> ALL (mine))
             + (SELECT count(*) FROM pg_proc WHERE pronamespace <> ALL (mine))
             + (SELECT count(*) FROM pg_type WHERE typnamespace <> ALL (mine))
        FROM (SELECT ARRAY(SELECT oid FROM pg_namespace WHERE nspname IN ('acme', 'pg_toast')))
            AS schemas (mine)
        """
    )
    return count
