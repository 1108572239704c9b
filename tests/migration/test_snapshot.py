"""storage/schema.sql shows the schema as the migrations leave it."""

from __future__ import annotations

import asyncpg

from tests.support.snapshot import SNAPSHOT, read_schema


async def test_the_snapshot_is_true(connection: asyncpg.Connection) -> None:
    written = SNAPSHOT.read_text(encoding="utf-8")
    assert await read_schema(connection) == written, "run python -m tests.support.snapshot"


CHANGES = [
    "ALTER TABLE rota.job ADD COLUMN extra integer",
    "ALTER TABLE rota.job ALTER COLUMN priority SET DEFAULT 1",
    "ALTER TABLE rota.job ALTER COLUMN priority DROP NOT NULL",
    "ALTER TABLE rota.job DROP CONSTRAINT running_job_has_a_pod",
    "ALTER TABLE rota.job SET (fillfactor = 90)",
    "DROP INDEX rota.job_due",
    "CREATE INDEX more ON rota.job (kind)",
    "ALTER TYPE rota.pod_state ADD VALUE 'lost'",
    "CREATE OR REPLACE FUNCTION rota.clock() RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() $$",
    "ALTER FUNCTION rota.claim_jobs SET enable_seqscan = on",
    "CREATE TABLE rota.more (id integer)",
    "CREATE SEQUENCE rota.more",
    "CREATE VIEW rota.more AS SELECT id FROM rota.job",
    "COMMENT ON COLUMN rota.job.id IS 'other'",
]


async def test_every_change_of_the_schema_shows_in_the_snapshot(connection: asyncpg.Connection) -> None:
    before = await read_schema(connection)
    for change in CHANGES:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(change)
        assert await read_schema(connection) != before, change
        await transaction.rollback()
