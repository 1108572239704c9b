"""A cluster of real `rota worker` processes, a load, and the verdict on what they did."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from rota import App
from rota.chaos.history import History, runs_of
from rota.chaos.invariants import judge, most_at_once
from tests.support.cluster_app import door
from tests.support.cluster_process import PATIENCE, Worker
from tests.support.cluster_recorder import read_changes, read_facts
from tests.support.until import until

QUEUE = "work"
TTL = 3.0
QUICK = {
    "ROTA_POD_BEAT": "0.3",
    "ROTA_POD_TTL": str(TTL),
    "ROTA_POD_GRACE": "4",
    "ROTA_POD_POLL": "0.1",
    "ROTA_POD_FENCE": "cancel",
    "ROTA_LEASE_TTL": "1.5",
    "ROTA_LEASE_RENEW": "0.4",
    "ROTA_LEASE_PLAN": "1",
}
LONG = {"ROTA_POD_TTL": "600"}
"""For claims about what happens before the TTL: it never passes."""

_FEED_EVERY = 0.05
_STRETCHES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 0.9)
_ODDS = (20, 20, 20, 10, 6, 4, 2, 1)


class Cluster:
    """The workers of one test and their database, seen past them."""

    def __init__(self, dsn: str, database: asyncpg.Connection, directory: Path) -> None:
        self.dsn = dsn
        self.database = database
        self.directory = directory
        self.caps: Mapping[str, int] = {QUEUE: 4}
        self.settings: Mapping[str, str] = QUICK
        self.workers: list[Worker] = []
        self.jobs: set[int] = set()
        self._chance = random.Random(int(os.environ.get("CLUSTER_SEED", "3")))

    async def start(self, *names: str, dsn: str | None = None, **settings: str) -> list[Worker]:
        """Start workers; they join when they have come up."""
        given = {**self.settings, **settings, "ROTA_DATABASE_URL": dsn or self.dsn}
        boots = await self.boots()
        started = [Worker(name, self.directory, self.caps, given) for name in names]
        self.workers += started
        for worker in started:
            worker.replaces = boots.get(worker.pod, 0)
        return started

    async def join(self, *names: str, dsn: str | None = None, **settings: str) -> list[Worker]:
        """Start workers and wait until they are members."""
        started = await self.start(*names, dsn=dsn, **settings)
        await self.joined(started)
        return started

    async def joined(self, workers: Sequence[Worker]) -> None:
        async def all_there() -> bool:
            for worker in workers:
                assert worker.alive, f"{worker.name} has ended: {worker.said}"
            boots = await self.boots()
            return all(boots.get(worker.pod, 0) > worker.replaces for worker in workers)

        await until("all have joined", all_there, PATIENCE)

    async def boots(self) -> dict[str, int]:
        """The pods that are registered, and which boot of each."""
        rows = await self.database.fetch("SELECT id::text, incarnation FROM rota.pod")
        return {row["id"]: row["incarnation"] for row in rows}

    async def drains(self, worker: Worker) -> bool:
        """Whether everybody can know that a pod drains."""
        state = await self.database.fetchval(
            "SELECT state::text FROM rota.pod WHERE id = $1::uuid", worker.pod
        )
        return bool(state == "draining")

    async def leader(self) -> Worker:
        """Whoever leads, once somebody does."""
        found: list[Worker] = []

        async def leads() -> bool:
            holder = await self.database.fetchval(
                "SELECT holder::text FROM rota.lease WHERE expires_at > clock_timestamp()"
            )
            found[:] = [worker for worker in self.workers if worker.pod == holder and worker.alive]
            return bool(found)

        await until("somebody leads", leads, PATIENCE)
        return found[0]

    async def slots(self, queue: str = QUEUE) -> dict[str, tuple[int, int]]:
        """What each pod has of a queue: target and held."""
        rows = await self.database.fetch(
            "SELECT pod::text, target, held FROM rota.assignment WHERE queue = $1 AND held > 0", queue
        )
        return {row["pod"]: (row["target"], row["held"]) for row in rows}

    async def levels(self, workers: Sequence[Worker], cap: int, queue: str = QUEUE) -> None:
        """The slots of a queue add up to its cap, all are given to these workers, as evenly as can be."""
        share, odd = divmod(cap, len(workers))
        fair = sorted([share + 1] * odd + ([share] * (len(workers) - odd) if share else []))

        async def fairly() -> bool:
            slots = await self.slots(queue)
            return (
                slots.keys() <= {worker.pod for worker in workers}
                and sorted(target for target, _ in slots.values()) == fair
                and all(target == held for target, held in slots.values())
            )

        await until(f"{cap} slots of {queue} are dealt out to {len(workers)}", fairly, PATIENCE)

    async def enqueue(self, kind: str, *payloads: object, queue: str = QUEUE, attempts: int = 5) -> list[int]:
        """Enqueue one job for each payload; they count from when this has returned."""
        return await self._enqueue(self.database, kind, payloads or (None,), queue, attempts)

    async def _enqueue(
        self, by: asyncpg.Connection, kind: str, payloads: Sequence[object], queue: str, attempts: int = 5
    ) -> list[int]:
        texts = ["null" if payload is None else str(payload) for payload in payloads]
        rows = await by.fetch(
            """
            SELECT (rota.enqueue($1, payload::json, $2, max_attempts => $4)).id
            FROM unnest($3::text[]) AS given (payload)
            """,
            kind,
            queue,
            texts,
            attempts,
        )
        jobs = [row["id"] for row in rows]
        self.jobs.update(jobs)
        return jobs

    @asynccontextmanager
    async def load(self, *queues: str, backlog: int = 40) -> AsyncIterator[None]:
        """Keep so many jobs waiting, most of them short, some long."""
        connection = await asyncpg.connect(self.dsn)
        try:
            async with _aside(self._feed, connection, queues or (QUEUE,), backlog):
                yield
        finally:
            await connection.close()

    @asynccontextmanager
    async def resizes(self, caps: Sequence[int], queue: str = QUEUE, *, last: int) -> AsyncIterator[None]:
        """Change the cap a few times per second, now and then by pausing; in the end it is `last`."""
        async with App(database_url=self.dsn) as app:
            async with _aside(self._resize, app, queue, caps):
                yield
            await app.queues.set(queue, max_workers=last, paused=False)

    async def _feed(
        self, stop: asyncio.Event, connection: asyncpg.Connection, queues: Sequence[str], backlog: int
    ) -> None:
        while not await _within(stop, _FEED_EVERY):
            for queue in queues:
                waiting = await connection.fetchval(
                    "SELECT count(*) FROM rota.job WHERE queue = $1 AND state = 'ready'", queue
                )
                stretches = self._chance.choices(_STRETCHES, _ODDS, k=max(0, backlog - waiting))
                await self._enqueue(connection, "work", stretches, queue)

    async def _resize(self, stop: asyncio.Event, app: App, queue: str, caps: Sequence[int]) -> None:
        while not await _within(stop, self._chance.choice((0.0, 0.1, 0.2, 0.4))):
            paused = self._chance.random() < 0.1
            await app.queues.set(queue, max_workers=self._chance.choice(caps), paused=paused)

    async def run(self, jobs: Sequence[int], claim: int = 1) -> None:
        """Return once all of these jobs run, under this claim."""

        async def all_run() -> bool:
            query = "SELECT count(*) FROM rota.job WHERE id = ANY ($1) AND state = 'running' AND claim = $2"
            return bool(await self.database.fetchval(query, jobs, claim) == len(jobs))

        await until("they run", all_run, PATIENCE)

    async def running_on(self, worker: Worker, kind: str | None = None) -> list[int]:
        """The jobs that run on a pod, as the database knows."""
        rows = await self.database.fetch(
            "SELECT id FROM rota.job WHERE pod = $1::uuid AND kind = coalesce($2, kind) ORDER BY id",
            worker.pod,
            kind,
        )
        return [row["id"] for row in rows]

    def open_doors(self, *workers: Worker) -> None:
        """Let the jobs that wait at the doors of these pods end."""
        for worker in workers:
            door(self.directory, worker.name).touch()

    def shut_doors(self, *workers: Worker) -> None:
        for worker in workers:
            door(self.directory, worker.name).unlink()

    async def end(self, jobs: Collection[int]) -> None:
        """Return once all of these jobs have ended."""
        some = "SELECT id, state, kind, claim, pod FROM rota.job WHERE id = ANY ($1) LIMIT 20"

        async def ended() -> bool:
            return not await self.database.fetchrow(some, list(jobs))

        try:
            await until("they end", ended, PATIENCE)
        except AssertionError:
            left = await self.database.fetch(some, list(jobs))
            raise AssertionError(f"these jobs do not end: {left}") from None

    async def caps_hold(self) -> None:
        """Return once the last change of every cap is in force."""

        async def in_force() -> bool:
            pending = """
                SELECT EXISTS (
                    SELECT FROM rota.cap_change
                    WHERE id IN (SELECT max(id) FROM rota.cap_change GROUP BY queue) AND in_force_at IS NULL)
            """
            return not await self.database.fetchval(pending)

        await until("every cap is in force", in_force, PATIENCE)

    async def leave(self) -> None:
        """Everyone who is left drains and leaves in good order, and nothing stays behind."""
        left = [worker for worker in self.workers if worker.alive]
        for worker in left:
            worker.terminate()
        for worker in left:
            assert await worker.exits() == 0, worker.said

    async def verdict(self) -> History:
        """All jobs end, all workers leave, and no promise was broken; what happened."""
        await self.end(self.jobs)
        await self.caps_hold()
        await self.leave()
        history = await self.history()
        wrong = judge(history)
        assert not wrong, "\n".join(wrong[:20])
        return history

    async def history(self) -> History:
        return History(
            frozenset(self.jobs),
            await read_facts(self.database),
            await read_changes(self.database),
            tuple(run for worker in self.workers for run in worker.handlers()),
            frozenset(worker.pod for worker in self.workers if worker.harmed),
        )


def peak(history: History, queue: str = QUEUE) -> int:
    """The most that ran at once; a load that never filled the cap would prove nothing."""
    return most_at_once(runs_of(history.facts)).get(queue, 0)


@asynccontextmanager
async def _aside(work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> AsyncIterator[None]:
    """Do something beside, until told to stop, and never stop in the middle of a statement."""
    stop = asyncio.Event()
    task = asyncio.create_task(work(stop, *arguments))
    try:
        yield
    finally:
        stop.set()
        await task


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()
