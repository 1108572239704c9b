"""What every crash test needs: the database looked at past the pods, and the claims made of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from rota import App
from rota.events import Event
from rota.runtime.pod import Pod
from rota.testing import Recorder
from tests.support.crash_app import QUEUE, Notebook, add_handlers
from tests.support.pods import RunningPod, make_app, recorded, running
from tests.support.until import PATIENCE, until

E = TypeVar("E", bound=Event)

SLOTS = 4


@dataclass
class Crew:
    """An app, its only pod inside the test, and all that they tell."""

    app: App
    started: RunningPod
    told: Recorder

    @property
    def pod(self) -> Pod:
        return self.started.pod

    @property
    def in_use(self) -> int:
        return self.pod.status().queues[QUEUE].in_use

    @property
    def slots(self) -> int:
        return self.pod.status().queues[QUEUE].target

    async def tells(self, kind: type[E], when: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of this kind, past or still to come."""
        async with asyncio.timeout(PATIENCE):
            return await self.told.wait_for(kind, when)

    def leave(self) -> asyncio.Task[None]:
        """Have the pod drain and leave, while the test does something about it."""
        return asyncio.create_task(self.started.stop())

    async def idle(self) -> None:
        """Return once every slot is free again."""
        await until("every slot is free again", lambda: self.in_use == 0)


@dataclass
class Scene:
    """The database of a test, seen past the pods, and the notebook of all handlers."""

    dsn: str
    database: asyncpg.Connection
    notebook: Notebook

    @asynccontextmanager
    async def crew(self, dsn: str | None = None, *, lanes: int = 2, **pod: Any) -> AsyncIterator[Crew]:
        """A pod inside the test, by default on a straight connection; drained in the end."""
        database = pod.pop("database", None)
        app = make_app(dsn or self.dsn, QUEUE, database=database, lanes=lanes, **pod)
        add_handlers(app, self.notebook, slots=SLOTS)
        told = recorded(app)
        async with running(app) as started:
            crew = Crew(app, started, told)
            await until("the pod knows its slots", lambda: crew.slots == SLOTS)
            yield crew

    async def enqueue(self, kind: str, count: int = 1, payload: str = "null") -> list[int]:
        """Enqueue by SQL, so that no test depends on the way in that another test cuts."""
        rows = await self.database.fetch(
            "SELECT (rota.enqueue($1, $2::json, $3)).id FROM generate_series(1, $4)",
            kind,
            payload,
            QUEUE,
            count,
        )
        return [row["id"] for row in rows]

    async def running(self) -> list[int]:
        rows = await self.database.fetch("SELECT id FROM rota.job WHERE state = 'running' ORDER BY id")
        return [row["id"] for row in rows]

    async def job(self, job: int) -> asyncpg.Record:
        row = await self.database.fetchrow("SELECT * FROM rota.any_job WHERE id = $1", job)
        assert row is not None, f"job {job} is lost"
        return row

    async def let_pods_expire(self) -> None:
        """As if nobody had heard of any pod for its whole TTL; somebody has yet to notice."""
        await self.database.execute("UPDATE rota.pod SET expires_at = clock_timestamp()")

    async def waits_on_a_lock(self, name: str) -> int:
        """How many backends wait on a lock with this query."""
        count: int = await self.database.fetchval(
            """
            SELECT count(*)
            FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock' AND starts_with(query, $1)
            """,
            f"/* rota.{name} */",
        )
        return count

    async def all_end(self, jobs: Sequence[int], patience: float = 20.0) -> dict[int, asyncpg.Record]:
        """Return the ended jobs once all have; none is lost, none ended twice, none is left over."""

        async def ended() -> bool:
            some_left = "SELECT EXISTS (SELECT FROM rota.job WHERE id = ANY ($1))"
            return not await self.database.fetchval(some_left, jobs)

        await until("every job ends", ended, patience)
        rows = await self.database.fetch("SELECT * FROM rota.history WHERE id = ANY ($1)", jobs)
        assert {row["id"] for row in rows} == set(jobs), "jobs are lost"
        return {row["id"]: row for row in rows}

    async def fills_every_slot(self, crew: Crew) -> None:
        """No slot is leaked: as many jobs as there are slots run at once, and then none is in use."""
        await crew.idle()
        self.notebook.shut_door()
        jobs = await self.enqueue("gated", SLOTS)
        await until("every slot is filled", lambda: set(jobs) <= {run.job for run in self.notebook.runs()})
        assert crew.in_use == SLOTS
        self.notebook.open_door()
        await self.all_end(jobs)
        await crew.idle()

    def runs_of(self, jobs: Iterable[int]) -> Counter[int]:
        """How often each job began to run."""
        wanted = set(jobs)
        return Counter(run.job for run in self.notebook.runs() if run.job in wanted)


@asynccontextmanager
async def other_session(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else on the database, who may hold locks; what they hold is let go in the end."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        connection.terminate()


def once_each(jobs: Iterable[int]) -> Counter[int]:
    return Counter(set(jobs))


def costs(ended: dict[int, asyncpg.Record]) -> set[tuple[str, int, int]]:
    """What it took: the distinct (state, attempt, rescues)."""
    return {(row["state"], row["attempt"], row["rescues"]) for row in ended.values()}


UNHARMED = {("done", 1, 0)}
"""Every job is done, at its first attempt, and no pod was lost."""
