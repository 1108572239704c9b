"""The rota on a stage: pods and leaders as connections of their own, and a clock that only tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
from asyncpg.transaction import Transaction

from rota.cluster.view import Assignment
from rota.storage.assignments import Assignments, Written
from rota.storage.jobs import Jobs
from rota.storage.leases import Leases
from rota.storage.pods import Pods
from rota.storage.pool import Connection, Database, Record
from rota.storage.queues import Queues
from rota.storage.rows import NO_HINT, BeatAnswer, Boot, Report, Stand, Tenure
from rota.words import Incarnation, PodId
from tests.integration.storage import stage as storage_stage
from tests.integration.storage.stage import KIND, PATIENCE, QUEUE, RESCUES, Pod

T = TypeVar("T")

TTL = 10.0
LEASE_TTL = 5.0


class OneConnection(Database):
    """A database whose every statement runs on one connection, so that a test can hold it open."""

    def __init__(self, database: Database, connection: Connection) -> None:
        super().__init__(database.settings)
        self._connection = connection

    async def fetch(self, query: str, *arguments: Any, on: Connection | None = None) -> list[Record]:
        return await super().fetch(query, *arguments, on=on or self._connection)

    async def fetchrow(self, query: str, *arguments: Any, on: Connection | None = None) -> Record | None:
        return await super().fetchrow(query, *arguments, on=on or self._connection)

    async def fetchval(self, query: str, *arguments: Any, on: Connection | None = None) -> Any:
        return await super().fetchval(query, *arguments, on=on or self._connection)

    async def execute(self, query: str, *arguments: Any, on: Connection | None = None) -> int:
        return await super().execute(query, *arguments, on=on or self._connection)


class Actor:
    """Whoever talks to the database by one connection: storage's own doors, said shortly."""

    def __init__(self, database: Database, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.database = OneConnection(database, connection)
        self.jobs = Jobs(self.database)
        self.pods = Pods(self.database)
        self.queues = Queues(self.database)
        self.leases = Leases(self.database)
        self.assignments = Assignments(self.database)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """What is said inside is committed at the end of the block, and its locks are held till then."""
        async with self.connection.transaction():
            yield

    async def begin(self) -> Transaction:
        """The same, for a test that says itself when to commit."""
        transaction = self.connection.transaction()
        await transaction.start()
        return transaction

    async def register(
        self,
        pod: UUID,
        *,
        replaces: int = 0,
        machine: str = "here",
        queues: Sequence[str] = (QUEUE,),
        capacity: int = 100,
        capacities: Mapping[str, int] | None = None,
        ttl: float = TTL,
    ) -> Boot:
        return await self.pods.register_pod(
            PodId(pod),
            replaces=Incarnation(replaces),
            machine=machine,
            name="a pod",
            queues=queues,
            kinds=[KIND],
            capacity=capacity,
            capacities=capacities or {},
            zone="",
            version="",
            ttl=ttl,
            max_rescues=RESCUES,
        )

    async def join(self, pod: UUID | None = None, **terms: Any) -> Pod:
        """A boot that is let in."""
        id = PodId(pod or uuid4())
        boot = await self.register(id, **terms)
        assert boot.incarnation is not None, boot
        return Pod(id, boot.incarnation)

    async def beat(self, pod: Pod, report: Report) -> BeatAnswer:
        """A beat that is answered."""
        answer = await self.pods.beat(pod.id, pod.incarnation, report)
        assert answer is not None
        return answer

    async def stand(self, pod: Pod, ttl: float = LEASE_TTL) -> Stand:
        return await self.leases.take_lease(pod.id, ttl)

    async def lead(self, pod: Pod, ttl: float = LEASE_TTL) -> Tenure:
        """A stand that is won."""
        tenure = (await self.stand(pod, ttl)).tenure
        assert tenure is not None
        return tenure

    async def plan(
        self, tenure: Tenure, wanted: Mapping[Pod, int], *, queue: str = QUEUE, tell: bool = True
    ) -> Written | None:
        return await self.assignments.plan_queue(
            tenure,
            queue,
            {pod.id: slots for pod, slots in wanted.items()},
            cause="a test",
            sentence="A test wanted it so.",
            tell=tell,
        )

    async def resize(self, max_workers: int, queue: str = QUEUE) -> bool:
        """Whether the new cap is in force."""
        change = await self.queues.change_queue(queue, max_workers=max_workers)
        assert change is not None
        return change.in_force

    async def take_jobs(self, pod: Pod, most: int = 100, *, batch: int = 1, queue: str = QUEUE) -> list[int]:
        """The ids of the jobs that a claim got."""
        rows = await self.database.fetch(
            "work_jobs",
            *(pod.id, pod.incarnation, batch, queue, most),
            *([KIND], [NO_HINT.rank], [NO_HINT.id], [], [], None, None),
        )
        return [row["id"] for row in rows]


class Stage(storage_stage.Stage):
    """Storage's stage with actors on it; what is said on `self` is committed at once."""

    def __init__(self, database: Database, connection: asyncpg.Connection, leaving: AsyncExitStack) -> None:
        super().__init__(database, connection, leaving)
        self.time = Time(connection)
        self.now = Actor(database, connection)

    async def actor(self) -> Actor:
        return Actor(self.database, await self.connect())

    @asynccontextmanager
    async def blocked(
        self, work: Awaitable[T], *, on: asyncpg.Connection
    ) -> AsyncIterator[asyncio.Future[T]]:
        """As storage's, but work that does not wait fails the test at once, and with its own error."""
        async with asyncio.timeout(PATIENCE):
            task = asyncio.ensure_future(work)
            waiting = asyncio.ensure_future(self.until_blocked(on))
            try:
                await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
                assert not task.done(), f"it did not wait for a lock: {task.result()}"
                yield task
                await task
            finally:
                waiting.cancel()
                task.cancel()

    async def declare(self, **caps: int) -> None:
        await self.queues.declare_queues({name: (cap, None) for name, cap in caps.items()})

    async def granted(self, tenure: Tenure, wanted: Mapping[Pod, int], queue: str = QUEUE) -> None:
        """Plan, and have every pod hear of it and act on it."""
        assert await self.now.plan(tenure, wanted, queue=queue) is not None
        for pod in wanted:
            await self.hear(pod)

    async def hear(self, pod: Pod, **uses: int) -> BeatAnswer:
        """Two honest beats: one that fetches the targets, one that acts on them; uses by queue."""
        return await self.now.beat(pod, honest(await self.hear_once(pod), **uses))

    async def hear_once(self, pod: Pod) -> BeatAnswer:
        """A beat that knows of no answer, so that nothing but the answer comes of it."""
        return await self.now.beat(pod, Report())

    async def rows(self, queue: str = QUEUE) -> dict[PodId, Assignment]:
        found = await self.connection.fetch(
            "SELECT pod, target, held, acting FROM rota.assignment WHERE queue = $1 ORDER BY pod", queue
        )
        return {PodId(row["pod"]): Assignment(row["target"], row["held"], row["acting"]) for row in found}

    async def row(self, pod: Pod, queue: str = QUEUE) -> Assignment | None:
        return (await self.rows(queue)).get(pod.id)

    async def held(self, queue: str = QUEUE) -> int:
        return sum(row.held for row in (await self.rows(queue)).values())


class Time:
    """rota.clock() and rota.timeline(), replaced: they stand still until moved."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def stop(self, at: float = 1_000_000.0) -> None:
        # A table, because a volatile function sees what others committed while it waited for a lock.
        # With an index: functions that forbid sequential scans would have this one compiled, for 40 ms.
        await self._connection.execute(
            f"""
            CREATE TABLE public.stopped (id integer PRIMARY KEY, at timestamptz, timeline integer);
            INSERT INTO public.stopped VALUES (1, to_timestamp({at}), rota.timeline());
            CREATE OR REPLACE FUNCTION rota.clock() RETURNS timestamptz
            LANGUAGE sql VOLATILE
            AS $$ SELECT at FROM public.stopped WHERE id = 1 $$;
            CREATE OR REPLACE FUNCTION rota.timeline() RETURNS integer
            LANGUAGE sql VOLATILE
            AS $$ SELECT timeline FROM public.stopped WHERE id = 1 $$;
            """
        )

    async def advance(self, seconds: float) -> None:
        await self._connection.execute(
            "UPDATE public.stopped SET at = at + make_interval(secs => $1)", float(seconds)
        )

    async def promote(self) -> None:
        """A standby takes over: the timeline rises."""
        await self._connection.execute("UPDATE public.stopped SET timeline = timeline + 1")


def honest(answer: BeatAnswer, **uses: int) -> Report:
    """What a pod says that has this answer, acts on it and uses so much."""
    busy = sorted({*answer.targets, *uses})
    return Report(
        timeline=answer.timeline,
        heard=answer.answer,
        busy=busy,
        acts=[answer.targets.get(queue, 0) for queue in busy],
        uses=[uses.get(queue, 0) for queue in busy],
    )
