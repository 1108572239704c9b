"""A database with a few pods and jobs on it, and the means to watch two connections meet."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import asyncpg

from rota.settings import DatabaseSettings
from rota.storage.jobs import Jobs
from rota.storage.leases import Leases
from rota.storage.pods import Pods
from rota.storage.pool import Database
from rota.storage.queues import Queues
from rota.storage.rows import (
    NO_HINT,
    BeatAnswer,
    Boot,
    Ending,
    Hint,
    JobRow,
    Report,
    Request,
    Shape,
    Tenure,
)
from rota.words import BatchNo, Incarnation, PodId

T = TypeVar("T")

PATIENCE = 30.0
QUEUE = "emails"
KIND = "send"
RESCUES = 3
MACHINE = "here"
LONG = 1_000_000.0
"""Seconds no test moves its clock by."""
NOTHING = Report()


@dataclass(frozen=True, slots=True)
class Pod:
    """One boot of a pod."""

    id: PodId
    incarnation: Incarnation


class Stage:
    """What a test plays on: storage's own classes, and connections beside them."""

    def __init__(self, database: Database, connection: asyncpg.Connection, leaving: AsyncExitStack) -> None:
        self.database = database
        self.connection = connection
        self.jobs = Jobs(database)
        self.pods = Pods(database)
        self.queues = Queues(database)
        self.leases = Leases(database)
        self.clock = Clock(connection)
        self._leaving = leaving
        self._batch = 0
        self._tenure: Tenure | None = None

    @classmethod
    @asynccontextmanager
    async def on(cls, dsn: str, *, schema: str = "rota") -> AsyncIterator[Self]:
        async with AsyncExitStack() as leaving:
            database = Database(DatabaseSettings(url=dsn, schema=schema))
            await database.open()
            leaving.push_async_callback(database.close)
            connection = await database.connect()
            leaving.push_async_callback(connection.close)
            yield cls(database, connection, leaving)

    async def connect(self) -> asyncpg.Connection:
        """A connection of one's own, closed with the stage."""
        connection = await self.database.connect()
        self._leaving.push_async_callback(connection.close)
        return connection

    async def add(
        self, count: int = 1, *, dedupe: str | None = None, payload: str = "{}", **shape: Any
    ) -> list[int]:
        """Enqueue jobs of one shape."""
        request = Request(Shape(**{"queue": QUEUE, "kind": KIND, **shape}), payload, dedupe)
        return [id for id, _ in await self.jobs.enqueue_jobs([request] * count)]

    async def add_one(self, **shape: Any) -> int:
        (job,) = await self.add(**shape)
        return job

    async def boot(self, id: UUID | None = None, **terms: Any) -> Pod:
        """A boot of a pod, in place of the one that is registered now, on the same machine."""
        pod = PodId(id or uuid4())
        while True:
            found = await self.pods.read_incarnation(pod)
            boot = await self.register(pod, replaces=found, **terms)
            if boot.incarnation is not None:
                return Pod(pod, boot.incarnation)
            assert boot.wait_in is None, f"another machine has it for {boot.wait_in:.1f} s more"

    async def register(
        self,
        pod: PodId,
        *,
        replaces: int = 0,
        machine: str = MACHINE,
        queues: Sequence[str] = (QUEUE,),
        kinds: Sequence[str] = (KIND,),
        capacity: int = 100,
        capacities: Mapping[str, int] | None = None,
        ttl: float = 10.0,
        max_rescues: int = RESCUES,
    ) -> Boot:
        """Ask once for a boot."""
        return await self.pods.register_pod(
            pod,
            replaces=Incarnation(replaces),
            machine=machine,
            name="a pod",
            queues=queues,
            kinds=kinds,
            capacity=capacity,
            capacities=capacities or {},
            zone="",
            version="",
            ttl=ttl,
            max_rescues=max_rescues,
        )

    async def boot_on(self, connection: asyncpg.Connection, id: UUID, replaces: int = 0) -> int:
        """A boot in the transaction of that connection; its incarnation."""
        terms = (MACHINE, "a pod", [QUEUE], [KIND], 1, "{}", "", "", 10.0, RESCUES)
        register = self.database.queries["register_pod"]
        incarnation: int = await connection.fetchval(register, id, replaces, *terms)
        return incarnation

    async def beat(
        self, pod: Pod, report: Report = NOTHING, *, on: asyncpg.Connection | None = None
    ) -> BeatAnswer | None:
        """A beat of a pod that has heard nothing and uses nothing, unless told otherwise."""
        return await self.pods.beat(pod.id, pod.incarnation, report, on=on)

    async def lead(self) -> Tenure:
        """The lease, taken when it is first needed and given up with the stage."""
        if self._tenure is None:
            self._tenure = (await self.leases.take_lease(PodId(uuid4()), LONG)).tenure
            assert self._tenure is not None, "another holds the lease"
            self._leaving.push_async_callback(self.leases.resign_lease, self._tenure)
        return self._tenure

    async def promote(self, most: int) -> tuple[int, float | None]:
        """Make due jobs ready, as the leader does."""
        promoted = await self.jobs.promote_jobs(await self.lead(), most)
        assert promoted is not None
        return promoted

    async def claim(
        self,
        pod: Pod,
        most: int = 100,
        *,
        queue: str = QUEUE,
        kinds: Sequence[str] = (KIND,),
        hints: Sequence[Hint] | None = None,
        batch: int | None = None,
        on: asyncpg.Connection | None = None,
    ) -> list[asyncpg.Record]:
        """Claim and finalize nothing; with no batch given, a new one."""
        self._batch = batch if batch is not None else self._batch + 1
        places = hints or [NO_HINT] * len(kinds)
        rows = await (on or self.connection).fetch(
            self.database.queries["work_jobs"],
            pod.id,
            pod.incarnation,
            self._batch,
            queue,
            most,
            kinds,
            [hint.rank for hint in places],
            [hint.id for hint in places],
            [],
            [],
            None,
            None,
        )
        assert all(row["kind"] is not None for row in rows)
        return rows

    async def claim_alone(self, pod: Pod, job: int, *, queue: str = QUEUE) -> list[asyncpg.Record]:
        """Claim a job that is on its last chance."""
        self._batch += 1
        return await self.jobs.claim_alone(pod.id, pod.incarnation, BatchNo(self._batch), queue, job)

    async def run_one(self, pod: Pod, **shape: Any) -> asyncpg.Record:
        """Enqueue a job and claim it."""
        job = await self.add_one(**shape)
        claimed = await self.claim(pod, queue=shape.get("queue", QUEUE), kinds=[shape.get("kind", KIND)])
        (run,) = [row for row in claimed if row["id"] == job]
        return run

    async def end(self, pod: Pod, *endings: Ending) -> list[int]:
        """Finalize runs that did not end done; the ids that were not this pod's to end."""
        return await self.jobs.finalize_jobs(pod.id, pod.incarnation, [], [], None, endings)

    async def done(
        self, pod: Pod, *runs: asyncpg.Record, results: Sequence[str | None] | None = None
    ) -> list[int]:
        return await self.jobs.finalize_jobs(
            pod.id, pod.incarnation, [run["id"] for run in runs], [run["claim"] for run in runs], results, []
        )

    async def settle(
        self, pod: Pod, next_batch: int, known: Sequence[int] = (), *, on: asyncpg.Connection | None = None
    ) -> int:
        released: int = await self.database.fetchval(
            "settle_batches", pod.id, pod.incarnation, next_batch, known, on=on or self.connection
        )
        return released

    async def job(self, id: int) -> JobRow:
        row = await self.jobs.read_job(id)
        assert row is not None
        return row

    async def running(self) -> list[int]:
        rows = await self.connection.fetch(
            "SELECT id FROM rota.job WHERE state = 'running' ORDER BY id",
        )
        return [row["id"] for row in rows]

    async def until_blocked(self, connection: asyncpg.Connection) -> None:
        """Return once that connection waits for a lock."""
        pid = connection.get_server_pid()
        waits = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1"
        async with asyncio.timeout(PATIENCE):
            while not await self.connection.fetchval(waits, pid):
                pass

    async def until_in_the_way(self, connection: asyncpg.Connection) -> None:
        """Return once another waits for a lock that this connection holds."""
        pid = connection.get_server_pid()
        waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"
        async with asyncio.timeout(PATIENCE):
            while not await self.connection.fetchval(waits, pid):
                pass

    @asynccontextmanager
    async def blocked(
        self, work: Awaitable[T], *, on: asyncpg.Connection
    ) -> AsyncIterator[asyncio.Future[T]]:
        """Start work that has to wait for a lock, and go on while it waits; it ends with the block."""
        async with asyncio.timeout(PATIENCE):
            task = asyncio.ensure_future(work)
            try:
                await self.until_blocked(on)
                yield task
                await task
            finally:
                task.cancel()

    @asynccontextmanager
    async def lock_pod(self, pod: Pod, *, by: asyncpg.Connection) -> AsyncIterator[None]:
        """Hold the pod's row, so that whoever wants it queues up."""
        async with by.transaction():
            await by.execute("SELECT FROM rota.pod WHERE id = $1 FOR UPDATE", pod.id)
            yield

    async def listen(self) -> Ear:
        connection = await self.connect()
        ear = Ear(connection, f"{self.database.schema}.notice")
        await ear.open()
        return ear


class Clock:
    """rota.clock(), replaced: it stands still until moved."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def stop(self) -> None:
        # A table, because a volatile function sees what others committed while it waited for a lock.
        await self._connection.execute(
            """
            CREATE TABLE public.stopped_clock AS SELECT clock_timestamp() AS at;
            CREATE OR REPLACE FUNCTION rota.clock() RETURNS timestamptz
            LANGUAGE sql VOLATILE
            AS $$ SELECT at FROM public.stopped_clock $$;
            """
        )

    async def advance(self, seconds: float) -> None:
        await self._connection.execute(
            "UPDATE public.stopped_clock SET at = at + make_interval(secs => $1)", seconds
        )


class Ear:
    """A LISTEN connection and what it heard."""

    def __init__(self, connection: asyncpg.Connection, channel: str) -> None:
        self._connection = connection
        self._channel = channel
        self._heard: list[str] = []
        self._sentinel = ""
        self._all_heard = asyncio.Event()

    async def open(self) -> None:
        await self._connection.add_listener(self._channel, self._hear)

    async def heard(self) -> list[str]:
        """Everything that was told up to now, once: notices come in the order of their commits."""
        self._sentinel = secrets.token_hex(8)
        self._all_heard.clear()
        await self._connection.execute("SELECT pg_notify($1, $2)", self._channel, self._sentinel)
        async with asyncio.timeout(PATIENCE):
            await self._all_heard.wait()
        heard, self._heard = self._heard, []
        return heard

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        if payload == self._sentinel:
            self._all_heard.set()
        else:
            self._heard.append(str(payload))


def ids(rows: Sequence[asyncpg.Record]) -> list[int]:
    return [row["id"] for row in rows]


def batch_no(number: int) -> BatchNo:
    return BatchNo(number)


def ending(run: asyncpg.Record, outcome: str, **more: Any) -> Ending:
    return Ending(run["id"], run["claim"], outcome, **more)


def as_json(value: object) -> str:
    return json.dumps(value)
