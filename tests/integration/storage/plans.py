"""Watches which plans Postgres really uses, inside functions too, and what they read.

auto_explain sends every plan to the client; the embedded server's superuser may load it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import asyncpg

from rota.storage.queries import queries

WATCH = """
    LOAD 'auto_explain';
    SET auto_explain.log_min_duration = 0;
    SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_analyze = on;
    SET auto_explain.log_timing = off;
    SET auto_explain.log_buffers = on;
    SET auto_explain.log_format = json;
    SET client_min_messages = log;
"""
QUEUE = "crowd"
MINE = "mine"
FOREIGN = "foreign"
BIG = ("job", "history")
"""The tables that grow."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One node of a plan that reads a big table, or an index of it."""

    node: str
    table: str | None
    index: str | None
    rows: float

    @property
    def big(self) -> bool:
        return self.table in BIG or (self.index or "").startswith(("job_", "history_", "ended_job_"))


@dataclass(frozen=True, slots=True)
class Plan:
    """What one statement read."""

    statement: str
    scans: tuple[Scan, ...]
    blocks: int

    @property
    def indexes(self) -> set[str]:
        return {scan.index for scan in self.scans if scan.index}

    @property
    def most_rows(self) -> float:
        """Rows that the hungriest node looked at, kept or not."""
        return max((scan.rows for scan in self.scans), default=0)

    @property
    def sequential(self) -> list[Scan]:
        return [scan for scan in self.scans if scan.node == "Seq Scan" and scan.big]


class Watched:
    """A connection that keeps the plans of the statements it ran."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._heard: list[dict[str, Any]] = []
        connection.add_log_listener(self._hear)

    async def open(self) -> None:
        await self._connection.execute(WATCH)

    async def run(self, query: str, *arguments: object) -> tuple[list[asyncpg.Record], list[Plan]]:
        """Run a named query; its rows, and the plans over big tables it was answered by."""
        self._heard.clear()
        rows = await self._connection.fetch(queries("rota")[query], *arguments)
        # A plan is sent when its statement is over, which for ours may be with the next one.
        await self._connection.execute("SELECT")
        plans = [_plan(heard) for heard in self._heard]
        return rows, [plan for plan in plans if any(scan.big for scan in plan.scans)]

    async def execute(self, statement: str, *arguments: object) -> None:
        await self._connection.execute(statement, *arguments)

    def _hear(self, connection: object, message: asyncpg.PostgresLogMessage) -> None:
        _, found, plan = str(message.message).partition("plan:\n")
        if found:
            self._heard.append(json.loads(plan))


def _plan(heard: dict[str, Any]) -> Plan:
    root = heard["Plan"]
    blocks = root.get("Shared Hit Blocks", 0) + root.get("Shared Read Blocks", 0)
    return Plan(heard["Query Text"], tuple(_scans(root)), blocks)


def _scans(node: dict[str, Any]) -> Iterator[Scan]:
    if node["Node Type"].endswith("Scan"):
        loops = node.get("Actual Loops", 1)
        rows = loops * (node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0))
        yield Scan(node["Node Type"], node.get("Relation Name"), node.get("Index Name"), rows)
    for child in node.get("Plans", ()):
        yield from _scans(child)


FILL = """
    INSERT INTO rota.job (created_at, scheduled_at, state, priority, queue, kind, payload)
    SELECT rota.clock(), rota.clock(), 'ready', 9, 'crowd', 'foreign', '{}' FROM generate_series(1, 100000);
    INSERT INTO rota.job (created_at, scheduled_at, state, priority, queue, kind, payload, dedupe)
    SELECT rota.clock(), rota.clock(), 'ready', n % 5, 'crowd', 'mine', '{}', 'key:' || n
    FROM generate_series(1, 100000) AS n;
    INSERT INTO rota.job (created_at, scheduled_at, state, queue, kind, payload)
    SELECT rota.clock(), rota.clock() + n * interval '1 minute', 'scheduled', 'crowd', 'mine', '{}'
    FROM generate_series(1, 50000) AS n;
    INSERT INTO rota.history (id, created_at, scheduled_at, ended_at, claim, state, priority, attempt,
                              max_attempts, rescues, queue, kind, payload)
    SELECT -n, rota.clock(), rota.clock(), rota.clock(), 1, 'done', 0, 1, 5, 0, 'crowd', 'mine', '{}'
    FROM generate_series(1, 100000) AS n;
"""


async def play(watched: Watched, most: int = 100) -> dict[str, list[Plan]]:
    """Run every hot statement once, in a transaction that is rolled back; the plans of each."""
    plans: dict[str, list[Plan]] = {}
    pod, lost = uuid4(), uuid4()

    async def step(name: str, query: str, *arguments: object) -> list[asyncpg.Record]:
        rows, plans[name] = await watched.run(query, *arguments)
        return rows

    await watched.execute("BEGIN")
    await watched.execute("INSERT INTO rota.queue (name) VALUES ('crowd') ON CONFLICT DO NOTHING")
    registered = [0, "here", "a pod", [QUEUE], [FOREIGN + "?", MINE, "another"], 100, "{}", "", "", 60.0, 3]
    ((boot, _, _),) = await step("register", "register_pod", pod, *registered)
    ((old, _, _),) = await step("register", "register_pod", lost, *registered)
    ((_, epoch, timeline, _),) = await step("lead", "take_lease", pod, 60.0)
    tenure = (pod, epoch, timeline)
    await watched.execute("SELECT id FROM rota.enqueue('mine', queue => 'crowd', dedupe => 'key:77')")
    await watched.execute(ADD_SOME, most)

    async def claim(name: str, pod: object, boot: int, batch: int, *spell: object) -> list[asyncpg.Record]:
        kinds = spell[0]
        assert isinstance(kinds, list)
        hints = spell[1:] or ([-40_000] * len(kinds), [0] * len(kinds))
        return await step(name, "work_jobs", pod, boot, batch, QUEUE, most, kinds, *hints, [], [], None, None)

    one = await claim("claim one kind", pod, boot, 1, [MINE])
    several = await claim("claim several kinds", pod, boot, 2, [MINE, "another", "third"])
    await claim("claim with a hint", pod, boot, 3, [MINE], [-1], [one[-1]["id"] + 1000])
    await claim("claim what is not there", pod, boot, 4, ["another"])
    await claim("claim for a lost pod", lost, old, 1, [MINE])

    runs = sorted((run["id"], run["claim"]) for run in one)
    done, claims = [id for id, _ in runs], [claim for _, claim in runs]
    await step("write progress", "write_progress", pod, boot, done[:10], claims[:10], ["1"] * 10)
    await step("finalize done", "finalize_jobs", pod, boot, done, claims, None, None)
    await step("finalize others", "finalize_jobs", pod, boot, [], [], None, _others(several))
    await step("finalize what was lost", "finalize_jobs", pod, boot, done, claims, None, _others(several))
    await step("promote", "promote_jobs", *tenure, most)
    await step("first beat", "beat", pod, boot, 0, timeline, [], [], [], [QUEUE], "")
    await step("plan", "plan_queue", *tenure, QUEUE, [str(pod)], ["5"], "a test", "Five.", [], True)
    await step("beat", "beat", pod, boot, 1, timeline, [QUEUE], [10], [3], [], "")
    await step("settle", "settle_batches", pod, boot, 3, [2])
    await watched.execute("UPDATE rota.pod SET expires_at = rota.clock() WHERE id = $1", lost)
    await step("expire and rescue", "expire_pods", *tenure, 3)
    await step("leave", "leave_pod", pod, boot)

    waiting = several[-1]["id"]
    shape = [[QUEUE], [MINE], [0], [0.0], [None], [5], [None], [None], [None], [None]]
    await step("dedupe", "enqueue_jobs", *shape, [1, 1], ["{}"] * 2, ["key:77", None])
    await step("await", "await_job", waiting)
    await step("read", "read_job", waiting)
    await step("read what ended", "read_job", done[0])
    await step("retry", "retry_job", done[0])
    await step("cancel", "cancel_job", done[0], None)
    await step("cancel what ended", "cancel_job", done[0], None)
    await watched.execute("ROLLBACK")
    return plans


ADD_SOME = """
    INSERT INTO rota.job (created_at, scheduled_at, state, queue, kind, payload)
    SELECT rota.clock(), rota.clock() - interval '1 minute', state::rota.job_state, 'crowd', 'mine', '{}'
    FROM generate_series(1, 5 * $1), unnest('{ready,scheduled}'::text[]) AS states (state)
"""
"""So that there is something to do on an empty table too."""


def _others(runs: Sequence[asyncpg.Record]) -> str:
    outcomes = ("retry", "dead", "release", "throttle", "cancelled")
    return json.dumps(
        [
            {
                "id": run["id"],
                "claim": run["claim"],
                "outcome": outcomes[place % 5],
                "delay": float(place % 2),
                "error": {"type": "E", "message": "m"},
            }
            for place, run in enumerate(runs)
        ]
    )
