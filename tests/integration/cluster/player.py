"""One database that plays script after script: set back by one statement, read whole by another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import orjson

from rota.cluster.rules import Lease, PodBoot, Server
from rota.cluster.view import Assignment
from rota.settings import DatabaseSettings
from rota.storage.pool import Database
from rota.words import PodId
from tests.integration.cluster.model import Change, Model, Rows
from tests.integration.cluster.stage import Actor, Time

T = TypeVar("T")

START = 1_000_000.0
QUEUES = ("a", "b")

RESET = """
    DELETE FROM rota.pod;
    DELETE FROM rota.cap_change;
    DELETE FROM rota.plan;
    UPDATE rota.queue SET max_workers = 2, paused = false;
    UPDATE rota.lease SET epoch = 0, timeline = 0, ttl = 0, expires_at = '-infinity', holder = NULL;
    UPDATE rota.server SET timeline = 1, seen_at = '-infinity', ttl = 0;
    UPDATE public.stopped SET at = to_timestamp(1000000), timeline = 1;
    SELECT setval('rota.incarnation', 1, false),
           setval(pg_get_serial_sequence('rota.cap_change', 'id'), 1, false);
"""
ROWS = """
    SELECT json_build_array(
        (SELECT json_build_array(timeline, extract(epoch FROM seen_at)::float8, ttl) FROM rota.server),
        (SELECT json_build_array(holder, epoch, timeline, ttl, extract(epoch FROM expires_at)::float8)
         FROM rota.lease),
        (SELECT json_agg(json_build_array(name, max_workers, paused)) FROM rota.queue),
        (SELECT json_agg(json_build_array(
                    id, incarnation, extract(epoch FROM expires_at)::float8, ttl, answer, timeline, machine,
                    state = 'draining'))
         FROM rota.pod),
        (SELECT json_agg(json_build_array(queue, pod, target, held, acting)) FROM rota.assignment),
        (SELECT json_agg(json_build_array(
                    queue, cap, extract(epoch FROM asked_at)::float8, extract(epoch FROM in_force_at)::float8)
                ORDER BY id)
         FROM rota.cap_change)
    )::text
"""


class Player:
    """One database and the loop it is talked to on, for all scripts of a test."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self.run(asyncpg.connect(dsn))
        self.actor = Actor(Database(DatabaseSettings(url=dsn)), self._connection)
        self.run(Time(self._connection).stop(START))
        self.run(self.actor.queues.declare_queues(dict.fromkeys(QUEUES, (2, None))))
        self.seen: Counter[str] = Counter()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def reset(self) -> None:
        self.run(self._connection.execute(RESET))

    def close(self) -> None:
        self.run(self._connection.close())
        self._runner.close()

    def rows(self) -> Rows:
        return stored(orjson.loads(self.run(self._connection.fetchval(ROWS))))

    def move(self, model: Model) -> None:
        self.run(
            self._connection.execute(
                "UPDATE public.stopped SET at = to_timestamp($1), timeline = $2", model.now, model.timeline
            )
        )


def stored(parts: list[Any]) -> Rows:
    server, lease, queues, pods, assignments, changes = parts
    return Rows(
        Server(server[0], float(server[1]), server[2]),
        Lease(UUID(lease[0]) if lease[0] else None, lease[1], lease[2], lease[3], float(lease[4])),
        {name: (workers, paused) for name, workers, paused in queues},
        {PodId(UUID(id)): PodBoot(*row) for id, *row in pods or ()},
        {(queue, PodId(UUID(pod))): Assignment(*row) for queue, pod, *row in assignments or ()},
        [Change(*row) for row in changes or ()],
    )
