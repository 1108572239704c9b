"""What contenders keep in Postgres: their schema, and jobs put there by plain SQL.

Seeds go past every contender's own enqueue: they are not what is measured, and a million jobs
should not take minutes.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Protocol

import asyncpg

from bench.process import run_to_end
from rota.settings import DatabaseSettings
from rota.storage.migrate import migrate
from rota.storage.pool import Database

KIND, OTHER_KIND = "noop", "other"
NOW, TOMORROW = timedelta(), timedelta(days=1)


class Store(Protocol):
    """The tables of a contender."""

    name: str

    async def install(self, dsn: str) -> None:
        """Make the schema in an empty database."""

    async def clear(self, connection: asyncpg.Connection) -> None:
        """Remove all jobs, waiting and ended."""

    async def vacuum(self, connection: asyncpg.Connection) -> None:
        """Clean tables and fresh statistics, so that no run pays for the one before."""

    async def add_ready(self, connection: asyncpg.Connection, jobs: int) -> None:
        """Jobs that a pod runs."""

    async def notify(self, connection: asyncpg.Connection) -> None:
        """Tell pods of jobs that plain SQL put there."""

    async def add_future(self, connection: asyncpg.Connection, jobs: int) -> None:
        """Jobs that are due tomorrow."""

    async def add_ended(self, connection: asyncpg.Connection, jobs: int) -> None:
        """Jobs that are done and kept."""

    async def add_foreign(self, connection: asyncpg.Connection, jobs: int) -> None:
        """Ready jobs of a kind the pod does not run, of a higher priority than any that it does."""


class RotaStore:
    """Rota's own tables; the ceiling works on the same."""

    name = "rota"
    _WAITING = """
        INSERT INTO rota.job (created_at, scheduled_at, state, priority, queue, kind, payload)
        SELECT rota.clock(), rota.clock() + $2::interval, $3::text::rota.job_state, $4::smallint,
               'bench', $5::text, json_build_object('n', n)
        FROM generate_series(1, $1::bigint) AS n
    """
    _ENDED = """
        INSERT INTO rota.history (id, created_at, scheduled_at, claimed_at, ended_at, claim,
                                  incarnation, state, priority, attempt, max_attempts, rescues,
                                  pod, queue, kind, payload)
        SELECT nextval(pg_get_serial_sequence('rota.job', 'id')), at, at, at, at, 1, 1, 'done',
               0, 1, 5, 0, gen_random_uuid(), 'bench', 'noop', json_build_object('n', n)
        FROM generate_series(1, $1::bigint) AS n, (SELECT rota.clock()) AS clock (at)
    """

    async def install(self, dsn: str) -> None:
        database = Database(DatabaseSettings(url=dsn))
        await database.open()
        try:
            await migrate(database)
        finally:
            await database.close()

    async def clear(self, connection: asyncpg.Connection) -> None:
        await connection.execute("TRUNCATE rota.job, rota.history")

    async def vacuum(self, connection: asyncpg.Connection) -> None:
        await connection.execute("VACUUM (ANALYZE) rota.job, rota.history, rota.pod, rota.queue")

    async def add_ready(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._WAITING, jobs, NOW, "ready", 0, KIND)

    async def notify(self, connection: asyncpg.Connection) -> None:
        await connection.execute("SELECT rota.notice('ready', 'bench')")

    async def add_future(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._WAITING, jobs, TOMORROW, "scheduled", 0, KIND)

    async def add_ended(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._ENDED, jobs)

    async def add_foreign(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._WAITING, jobs, NOW, "ready", 1, OTHER_KIND)


class PgQueuerStore:
    """PgQueuer's tables as it installs them, at its default durability."""

    name = "pgqueuer"
    _WAITING = """
        WITH queued AS (
            INSERT INTO pgqueuer (priority, entrypoint, payload, execute_after, headers, status)
            SELECT $3::int, $4::text, convert_to(json_build_object('n', n)::text, 'UTF8'),
                   now() + $2::interval, 'null', 'queued'
            FROM generate_series(1, $1::bigint) AS n
            RETURNING id, entrypoint, priority
        )
        INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)
        SELECT id, 'queued', entrypoint, priority FROM queued
    """
    _ENDED = """
        INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)
        SELECT nextval(pg_get_serial_sequence('pgqueuer', 'id')), 'successful', 'noop', 0
        FROM generate_series(1, $1::bigint)
    """

    def __init__(self, python: Path) -> None:
        self._python = python

    async def install(self, dsn: str) -> None:
        await run_to_end(self._python, "bench.pods.pgqueuer_pod", {"role": "install", "dsn": dsn})

    async def clear(self, connection: asyncpg.Connection) -> None:
        await connection.execute("TRUNCATE pgqueuer, pgqueuer_log")

    async def vacuum(self, connection: asyncpg.Connection) -> None:
        await connection.execute("VACUUM (ANALYZE) pgqueuer, pgqueuer_log")

    async def add_ready(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._WAITING, jobs, NOW, 0, KIND)

    async def notify(self, connection: asyncpg.Connection) -> None:
        """Nothing to do: its trigger notifies of every insert."""

    async def add_future(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._WAITING, jobs, TOMORROW, 0, KIND)

    async def add_ended(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._ENDED, jobs)

    async def add_foreign(self, connection: asyncpg.Connection, jobs: int) -> None:
        await connection.execute(self._WAITING, jobs, NOW, 1, OTHER_KIND)
