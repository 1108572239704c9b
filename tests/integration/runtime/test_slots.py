"""Whole pods share a queue's slots: when pods come and go, when its cap moves, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Self

import asyncpg
import pytest

from rota import App, Context
from rota.events import LeaseTaken
from rota.runtime.job import Job
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, RunningPod, make_app, recorded, start_pod
from tests.support.until import until

NOWHERE = "postgresql://rota@127.0.0.1:1/nowhere"
SELDOM = {"beat": 60.0, "ttl": 600.0}
"""Beats so rare that whatever happens within a test was brought about by a notice."""
SELDOM_PLANNED = {"ttl": 180.0, "renew": 60.0, "plan": 60.0}


class Crew:
    """Pods of one process on one database; their jobs wait inside, or end of themselves."""

    def __init__(self, dsn: str, **terms: Any) -> None:
        self._dsn = dsn
        self._terms = terms
        self._leaving = AsyncExitStack()
        self.pods: list[RunningPod] = []
        self.told: list[Recorder] = []
        self.inside: dict[int, asyncio.Event] = {}
        self.most = 0
        self._waits = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.let_all_go()
        await self._leaving.aclose()

    @property
    def app(self) -> App:
        return self.pods[0].pod.app

    async def join(self, count: int = 1, **terms: Any) -> None:
        """So many more pods, one after the other."""
        for _ in range(count):
            app = make_app(self._dsn, **{**self._terms, **terms})
            app.job(queue=QUEUE, kind="hold")(self._hold)
            app.job(queue=QUEUE, kind="pass_by")(self._pass_by)
            told = recorded(app)
            await self._leaving.enter_async_context(app)
            pod = await start_pod(app)
            self._leaving.push_async_callback(self._stop, pod)
            self.pods.append(pod)
            self.told.append(told)

    async def leave(self, pod: RunningPod) -> None:
        """Drain a pod; it is not looked at any more."""
        place = self.pods.index(pod)
        del self.pods[place], self.told[place]
        await pod.stop()

    async def cap(self, max_workers: int) -> None:
        """Make the queue before the pods come."""
        connection = await asyncpg.connect(self._dsn)
        await connection.execute(
            "INSERT INTO rota.queue (name, max_workers) VALUES ($1, $2)", QUEUE, max_workers
        )
        await connection.execute(
            "INSERT INTO rota.cap_change (queue, cap, asked_at, in_force_at) VALUES ($1, $2, now(), now())",
            QUEUE,
            max_workers,
        )
        await connection.close()

    async def hold(self, count: int) -> list[Job]:
        handler = self.app.handlers["hold"]
        return await self.app.enqueue_many([handler.request() for _ in range(count)])

    async def pass_by(self, count: int) -> list[Job]:
        handler = self.app.handlers["pass_by"]
        return await self.app.enqueue_many([handler.request() for _ in range(count)])

    async def have(self, *targets: int) -> None:
        """Wait until the pods were told so many slots each, in any order."""
        await until(
            f"the pods have {targets}",
            lambda: sorted(pod.use().target for pod in self.pods) == sorted(targets),
        )

    async def run(self, running: int) -> None:
        """Wait until so many jobs are inside, and see that there are no more."""
        await until(f"{running} run", lambda: len(self.inside) == running)
        for pod in self.pods:
            await pod.settled()
        assert len(self.inside) == running

    def let_go(self, jobs: Iterable[int]) -> None:
        for job in list(jobs):
            self.inside[job].set()

    def let_all_go(self) -> None:
        """Those that are inside, and all that come."""
        self._waits = False
        self.let_go(self.inside)

    async def _hold(self, ctx: Context) -> str:
        self.inside[ctx.id] = asyncio.Event()
        self.most = max(self.most, len(self.inside))
        try:
            if self._waits:
                await self.inside[ctx.id].wait()
        finally:
            del self.inside[ctx.id]
        return str(ctx.pod)

    async def _pass_by(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _stop(self, pod: RunningPod) -> None:
        if not pod.task.done():
            await pod.stop()


@pytest.fixture
async def crew(dsn: str) -> AsyncIterator[Crew]:
    async with Crew(dsn) as crew:
        yield crew


@pytest.fixture
async def told_only(dsn: str) -> AsyncIterator[Crew]:
    """A crew that hardly beats or plans of itself."""
    async with Crew(dsn, **SELDOM, lease=SELDOM_PLANNED) as crew:
        yield crew


@pytest.fixture
async def deaf(dsn: str) -> AsyncIterator[Crew]:
    """A crew that hears no notices."""
    async with Crew(dsn, database={"direct_url": NOWHERE}) as crew:
        yield crew


async def all_end(jobs: Sequence[Job]) -> None:
    await asyncio.gather(*(job.result(PATIENCE) for job in jobs))


async def burned(connection: asyncpg.Connection, *, claims: int = 1) -> list[tuple[int, ...]]:
    """Jobs that lost an attempt or a pod, or were handed back and claimed again."""
    rows = await connection.fetch(
        """
        SELECT id, attempt, claim, rescues
        FROM rota.any_job
        WHERE attempt > 1 OR rescues > 0 OR claim > $1
        """,
        claims,
    )
    return [tuple(row) for row in rows]


async def too_many(connection: asyncpg.Connection) -> list[tuple[datetime, int, int]]:
    """Starts at which as many ran as the cap then in force allowed: when, how many ran, the cap."""
    runs = await connection.fetch(
        "SELECT claimed_at, ended_at FROM rota.any_job WHERE queue = $1 AND claimed_at IS NOT NULL", QUEUE
    )
    caps = await connection.fetch(
        """
        SELECT cap, in_force_at
        FROM rota.cap_change
        WHERE queue = $1 AND in_force_at IS NOT NULL
        ORDER BY id
        """,
        QUEUE,
    )
    # What starts together is counted one after the other.
    starts = sorted((at, place) for place, (at, _) in enumerate(runs))
    broken = []
    for order, (start, _) in enumerate(starts):
        earlier = [place for _, place in starts[:order]]
        running = sum(runs[place]["ended_at"] is None or runs[place]["ended_at"] > start for place in earlier)
        cap = [cap for cap, since in caps if since <= start][-1]
        if running >= cap:
            broken.append((start, running, cap))
    return broken


def leader(crew: Crew) -> RunningPod:
    (leads,) = [pod for pod in crew.pods if pod.pod._control.leader.leads]
    return leads


async def test_two_pods_share_a_queues_cap(crew: Crew) -> None:
    await crew.cap(6)
    await crew.join(2)
    await crew.have(3, 3)
    jobs = await crew.hold(20)
    await crew.run(6)
    assert [pod.use().running for pod in crew.pods] == [3, 3]
    crew.let_go(crew.inside)
    await crew.run(6)
    assert crew.most == 6
    assert len(jobs) == 20


async def test_slots_move_by_notice_when_pods_come_and_go(told_only: Crew) -> None:
    crew = told_only
    await crew.cap(6)
    await crew.join()
    await crew.have(6)
    await crew.join()
    await crew.have(3, 3)
    await crew.join()
    await crew.have(2, 2, 2)
    await crew.leave(crew.pods[1])
    await crew.have(3, 3)
    await all_end(await crew.pass_by(20))


async def test_a_resize_is_there_by_notice(told_only: Crew) -> None:
    crew = told_only
    await crew.cap(6)
    await crew.join(2)
    await crew.have(3, 3)
    for cap, targets in [(10, (5, 5)), (1, (0, 1)), (0, (0, 0)), (2, (1, 1))]:
        await crew.app.queues.wait(await crew.app.queues.resize(QUEUE, cap), timeout=PATIENCE)
        await crew.have(*targets)


async def test_a_pod_that_drains_hands_its_slots_over_as_its_jobs_end(crew: Crew) -> None:
    await crew.cap(4)
    await crew.join(2, grace=PATIENCE)
    await crew.have(2, 2)
    first = await crew.hold(4)
    await crew.run(4)
    gone = crew.pods[1]
    theirs = [run.id for claimer in gone.pod._shared.claimers.values() for run in claimer._runs]
    draining = asyncio.create_task(crew.leave(gone))
    waiting = await crew.hold(4)
    await crew.run(4)
    assert crew.pods[0].use().running == 2, "nothing was taken from the other before it ended"
    crew.let_go(theirs[:1])
    await until("one slot was handed over", lambda: crew.pods[0].use().running == 3)
    crew.let_go(theirs[1:])
    async with asyncio.timeout(PATIENCE):
        await draining
    await crew.have(4)
    await until("all slots are filled", lambda: crew.pods[0].use().running == 4)
    assert crew.most == 4
    for job in first[:4]:
        assert (await job.status()).attempt == 1
    assert [(await job.status()).claim for job in waiting] == [1, 1, 0, 0]


async def test_a_cap_that_moves_while_jobs_run_is_never_broken(
    crew: Crew, connection: asyncpg.Connection
) -> None:
    await crew.cap(6)
    await crew.join(3)
    jobs = await crew.pass_by(1_500)
    for cap in (2, 8, 1, 5, 0, 3, 12):
        change = await crew.app.queues.resize(QUEUE, cap)
        await crew.app.queues.wait(change, timeout=PATIENCE)
        if cap:
            await until("some more have ended", ended_since(connection, await ended_now(connection) + 20))
    await all_end(jobs)
    assert await too_many(connection) == []
    assert await burned(connection) == []
    await connection.execute("UPDATE rota.cap_change SET cap = 1")
    assert await too_many(connection) != [], "who judges would have seen it"


async def ended_now(connection: asyncpg.Connection) -> int:
    ended: int = await connection.fetchval("SELECT count(*) FROM rota.history")
    return ended


def ended_since(connection: asyncpg.Connection, many: int) -> Any:
    return lambda: connection.fetchval("SELECT count(*) >= least($1, 1500) FROM rota.history", many)


async def test_two_resizes_within_a_beat_end_at_the_second(
    crew: Crew, connection: asyncpg.Connection
) -> None:
    await crew.cap(6)
    await crew.join(2)
    await crew.have(3, 3)
    jobs = await crew.hold(12)
    await crew.run(6)
    await crew.app.queues.resize(QUEUE, 1)
    second = await crew.app.queues.resize(QUEUE, 8)
    await crew.app.queues.wait(second, timeout=PATIENCE)
    await crew.have(4, 4)
    await crew.run(8)
    crew.let_go(crew.inside)
    await crew.run(4)
    crew.let_all_go()
    await all_end(jobs)
    assert await too_many(connection) == []
    assert await burned(connection) == []


async def test_what_runs_when_a_cap_is_lowered_finishes_and_nothing_starts_before_it_may(
    crew: Crew, connection: asyncpg.Connection
) -> None:
    await crew.cap(6)
    await crew.join(2)
    await crew.have(3, 3)
    jobs = await crew.hold(10)
    await crew.run(6)
    change = await crew.app.queues.resize(QUEUE, 2)
    await crew.app.queues.wait(change, timeout=PATIENCE)
    first = list(crew.inside)
    assert len(first) == 6, "what runs is left to finish"
    for left in (5, 4, 3, 2):
        crew.let_go(first[left : left + 1])
        await crew.run(left)
    crew.let_go(first[:2])
    await crew.run(2)
    assert set(crew.inside).isdisjoint(first)
    crew.let_go(crew.inside)
    await crew.run(2)
    crew.let_all_go()
    await all_end(jobs)
    assert await too_many(connection) == []
    assert await burned(connection) == []


async def test_long_jobs_keep_their_slots_and_a_newcomer_waits_for_them(
    crew: Crew, connection: asyncpg.Connection
) -> None:
    await crew.cap(4)
    await crew.join()
    await crew.have(4)
    long = await crew.hold(4)
    await crew.run(4)
    await crew.join()
    more = await crew.hold(4)
    await crew.have(0, 2)
    await crew.run(4)
    first, second = crew.pods
    assert (first.use().running, second.use().running) == (4, 0)
    crew.let_go([long[0].id])
    await until("the newcomer has one", lambda: second.use().running == 1)
    crew.let_go([long[1].id])
    await until("the newcomer has its share", lambda: second.use().running == 2)
    await crew.have(2, 2)
    await crew.run(4)
    assert crew.most == 4
    crew.let_all_go()
    await all_end([*long, *more])
    assert await too_many(connection) == []
    assert await burned(connection) == []


async def test_a_paused_queue_runs_out_and_a_resumed_one_goes_on(
    crew: Crew, connection: asyncpg.Connection
) -> None:
    await crew.cap(4)
    await crew.join(2)
    await crew.have(2, 2)
    jobs = await crew.hold(8)
    await crew.run(4)
    await crew.app.queues.wait(await crew.app.queues.pause(QUEUE), timeout=PATIENCE)
    await crew.have(0, 0)
    crew.let_go(crew.inside)
    await crew.run(0)
    await crew.app.queues.resume(QUEUE)
    await crew.have(2, 2)
    await crew.run(4)
    crew.let_all_go()
    await all_end(jobs)
    assert await too_many(connection) == []
    assert await burned(connection) == []


async def test_pods_that_may_not_lead_work_on_what_they_estimate(
    crew: Crew, connection: asyncpg.Connection
) -> None:
    await crew.cap(6)
    await crew.join(3, lead=False)
    await until("all slots are shared out", lambda: sum(pod.use().target for pod in crew.pods) == 6)
    jobs = await crew.hold(12)
    await crew.run(6)
    assert await connection.fetchval("SELECT count(*) FROM rota.plan") == 0
    assert not any(pod.pod._control.leader.leads for pod in crew.pods)
    crew.let_go(crew.inside)
    await crew.run(6)
    await crew.join()
    crew.let_all_go()
    await all_end(jobs)
    await crew.have(1, 1, 2, 2)
    assert await too_many(connection) == []
    assert await burned(connection) == []


async def test_pods_that_start_together_take_a_fair_share_each_at_most(
    dsn: str, connection: asyncpg.Connection
) -> None:
    async with Crew(dsn, lead=False) as crew:
        await crew.cap(3)
        await asyncio.gather(*(crew.join() for _ in range(5)))
        await until("what there is is shared out", lambda: sum(pod.use().target for pod in crew.pods) == 3)
        jobs = await crew.pass_by(300)
        await all_end(jobs)
        assert await too_many(connection) == []


async def test_when_the_leader_drains_another_leads_and_plans(
    told_only: Crew, connection: asyncpg.Connection
) -> None:
    crew = told_only
    await crew.cap(6)
    await crew.join(3)
    await crew.have(2, 2, 2)
    await crew.leave(leader(crew))
    await until("another leads", lambda: any(pod.pod._control.leader.leads for pod in crew.pods))
    await crew.have(3, 3)
    (taken,) = [event for told in crew.told for event in told.all(LeaseTaken)]
    assert taken.epoch == 2
    assert await connection.fetchval("SELECT max(epoch) FROM rota.plan") == 2
    await crew.leave(leader(crew))
    await crew.have(6)
    await all_end(await crew.pass_by(20))


async def test_without_notices_slots_come_to_rest_too(deaf: Crew, connection: asyncpg.Connection) -> None:
    crew = deaf
    await crew.cap(6)
    await crew.join(2)
    await crew.have(3, 3)
    jobs = await crew.pass_by(200)
    await crew.app.queues.wait(await crew.app.queues.resize(QUEUE, 2), timeout=PATIENCE)
    await crew.have(1, 1)
    await crew.join()
    await crew.app.queues.resize(QUEUE, 9)
    await crew.have(3, 3, 3)
    await crew.leave(leader(crew))
    await crew.have(4, 5)
    await all_end(jobs)
    assert not any(pod.pod.status().listening for pod in crew.pods)
    assert await too_many(connection) == []
    assert await burned(connection, claims=2) == [], "a claim may have been under way to the pod that drained"
