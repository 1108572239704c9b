"""Which jobs run, in which order, and how many at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from rota import App, Context, Dead, Handler, JobState
from rota.events import JobsClaimed, KindUnknown
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, make_app, recorded, running, soon
from tests.support.until import until

RESIZE = "UPDATE rota.queue SET max_workers = $1 WHERE name = $2"
PAUSE = "UPDATE rota.queue SET paused = $1 WHERE name = $2"


class Gauge:
    """A kind whose jobs wait inside, and counts how many there are at once."""

    def __init__(self, app: App, queue: str = QUEUE) -> None:
        self.now = self.most = 0
        self.let_go = asyncio.Event()
        self._reached: dict[int, asyncio.Event] = {}
        self.handler: Handler[Any] = app.job(queue=queue, kind=f"gauge {queue}")(self.run)

    async def run(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for level, event in self._reached.items():
            if self.now >= level:
                event.set()
        try:
            await self.let_go.wait()
        finally:
            self.now -= 1

    async def reach(self, level: int) -> None:
        event = self._reached.setdefault(level, asyncio.Event())
        if self.now >= level:
            event.set()
        await soon(event)


@pytest.fixture
def order(app: App) -> list[Any]:
    """What the kind `note` was called with, in order."""
    noted: list[Any] = []

    @app.job(queue=QUEUE)
    async def note(payload: Any) -> None:
        noted.append(payload)

    return noted


async def test_higher_priority_runs_first_then_the_older(app: App, order: list[Any]) -> None:
    app.queue(QUEUE, max_workers=1)
    note = app.handlers["note"]
    async with app:
        jobs = await app.enqueue_many(
            [
                note.request(name, priority=priority)
                for name, priority in [
                    ("a", 0),
                    ("b", 5),
                    ("c", -5),
                    ("d", 5),
                    ("e", 0),
                    ("f", 32_000),
                    ("g", -32_000),
                ]
            ]
        )
        async with running(app):
            await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert order == ["f", "b", "d", "a", "e", "c", "g"]


async def test_the_order_holds_across_kinds(app: App, order: list[Any]) -> None:
    app.queue(QUEUE, max_workers=1)

    @app.job(queue=QUEUE)
    async def other(payload: Any) -> None:
        order.append(payload)

    note = app.handlers["note"]
    async with app:
        jobs = await app.enqueue_many(
            [(other if number % 3 else note).request(number, priority=number % 2) for number in range(20)]
        )
        async with running(app):
            await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert order == [*range(1, 20, 2), *range(0, 20, 2)]


async def test_a_delayed_job_runs_when_it_is_due_and_not_before(
    app: App, order: list[Any], connection: asyncpg.Connection
) -> None:
    note = app.handlers["note"]
    async with running(app):
        job = await note.enqueue("later", delay=0.2)
        assert (await job.status()).state is JobState.SCHEDULED
        await job.result(PATIENCE)
        row = await job.status()
    assert row.claimed_at is not None
    assert row.scheduled_at <= row.claimed_at
    assert row.scheduled_at >= row.created_at + timedelta(seconds=0.2)
    assert row.claimed_at - row.scheduled_at < timedelta(seconds=1), "due jobs do not wait for a tick"


async def test_a_nearer_job_is_not_held_up_by_a_farther_one(app: App, order: list[Any]) -> None:
    note = app.handlers["note"]
    async with running(app):
        await note.enqueue("tomorrow", delay=86_400)
        await note.enqueue("next minute", delay=50)
        job = await note.enqueue("soon", delay=0.05)
        await job.result(PATIENCE)
    assert order == ["soon"]


async def test_run_at_is_a_delay_by_another_name(app: App, order: list[Any]) -> None:
    note = app.handlers["note"]
    async with running(app):
        past = await note.enqueue("past", run_at=datetime(2020, 1, 1, tzinfo=UTC))
        future = await note.enqueue("future", run_at=datetime.now(UTC) + timedelta(days=1))
        await past.result(PATIENCE)
        assert (await future.status()).state is JobState.SCHEDULED
    assert order == ["past"]


async def test_jobs_that_fell_due_while_nobody_was_there_run_at_the_start(
    app: App, order: list[Any], connection: asyncpg.Connection
) -> None:
    note = app.handlers["note"]
    async with app:
        jobs = await app.enqueue_many([note.request(number, delay=3600) for number in range(5)])
        await connection.execute("UPDATE rota.job SET scheduled_at = rota.clock() - interval '1 hour'")
        async with running(app):
            await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert sorted(order) == list(range(5))


async def test_a_kind_nobody_runs_is_left_waiting_and_shown(
    app: App, told: Recorder, order: list[Any]
) -> None:
    note = app.handlers["note"]
    async with app:
        strange = await app.enqueue_raw("unheard.of", queue=QUEUE, priority=100)
        async with running(app) as pod:
            await (await note.enqueue("known")).result(PATIENCE)
            shown = await asyncio.wait_for(told.wait_for(KindUnknown), PATIENCE)
            await pod.settled()
            row = await strange.status()
    assert (shown.queue, shown.kind) == (QUEUE, "unheard.of")
    assert (row.state, row.attempt, row.errors) == (JobState.READY, 0, ())
    assert order == ["known"]


async def test_a_queue_that_is_not_served_is_left_alone(app: App, order: list[Any]) -> None:
    note = app.handlers["note"]
    async with running(app) as pod:
        elsewhere = await note.enqueue("elsewhere", queue="elsewhere")
        await (await note.enqueue("here")).result(PATIENCE)
        await pod.settled()
        assert (await elsewhere.status()).state is JobState.READY
    assert order == ["here"]


async def test_a_paused_queue_starts_nothing_and_goes_on_when_it_is_not(
    app: App, told: Recorder, order: list[Any], connection: asyncpg.Connection
) -> None:
    note = app.handlers["note"]
    async with running(app) as pod:
        await (await note.enqueue("before")).result(PATIENCE)
        await pod.settled()
        await connection.execute(PAUSE, True, QUEUE)
        held = await note.enqueue("held")
        await pod.settled()
        assert (await held.status()).state is JobState.READY
        await connection.execute(PAUSE, False, QUEUE)
        await held.result(PATIENCE)
    assert order == ["before", "held"]


async def test_a_pause_lets_what_runs_finish(app: App, connection: asyncpg.Connection) -> None:
    gauge = Gauge(app)
    async with running(app):
        job = await gauge.handler.enqueue()
        await gauge.reach(1)
        await connection.execute(PAUSE, True, QUEUE)
        gauge.let_go.set()
        assert await job.result(PATIENCE) is None


@pytest.mark.parametrize("workers", [1, 3, 7])
async def test_a_pod_never_runs_more_than_max_workers(app: App, workers: int) -> None:
    app.queue(QUEUE, max_workers=workers)
    now = most = 0

    @app.job(queue=QUEUE)
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1

    async with running(app):
        jobs = await app.enqueue_many([work.request() for _ in range(200)])
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert most <= workers


async def test_all_slots_are_filled_and_no_more(app: App, told: Recorder) -> None:
    app.queue(QUEUE, max_workers=5)
    gauge = Gauge(app)
    async with running(app) as pod:
        jobs = await app.enqueue_many([gauge.handler.request() for _ in range(12)])
        await gauge.reach(5)
        await pod.settled()
        assert pod.use().running == 5
        states = [(await job.status()).state for job in jobs]
        assert states.count(JobState.RUNNING) == 5
        gauge.let_go.set()
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert gauge.most == 5


async def test_a_raised_cap_is_picked_up_by_the_beat(app: App, connection: asyncpg.Connection) -> None:
    app.queue(QUEUE, max_workers=1)
    gauge = Gauge(app)
    async with running(app) as pod:
        jobs = await app.enqueue_many([gauge.handler.request() for _ in range(4)])
        await gauge.reach(1)
        await connection.execute(RESIZE, 3, QUEUE)
        await gauge.reach(3)
        await pod.settled()
        gauge.let_go.set()
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert gauge.most == 3


async def test_a_lowered_cap_lets_what_runs_finish_and_then_holds(
    app: App, connection: asyncpg.Connection
) -> None:
    app.queue(QUEUE, max_workers=4)
    gauge = Gauge(app)
    now = most = 0

    @app.job(queue=QUEUE)
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    async with running(app) as pod:
        running_jobs = await app.enqueue_many([gauge.handler.request() for _ in range(4)])
        await gauge.reach(4)
        await connection.execute(RESIZE, 1, QUEUE)
        await until("the beat says so", lambda: pod.use().target == 1)
        gauge.let_go.set()
        await asyncio.gather(*(job.result(PATIENCE) for job in running_jobs))
        jobs = await app.enqueue_many([work.request() for _ in range(20)])
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert most == 1


async def test_no_workers_is_a_cap_too(app: App, connection: asyncpg.Connection) -> None:
    app.queue(QUEUE, max_workers=0)
    gauge = Gauge(app)
    gauge.let_go.set()
    async with running(app) as pod:
        job = await gauge.handler.enqueue()
        await pod.settled()
        assert (await job.status()).state is JobState.READY
        await connection.execute(RESIZE, 1, QUEUE)
        await job.result(PATIENCE)


async def test_what_an_operator_set_is_not_overwritten_by_code(
    app: App, connection: asyncpg.Connection
) -> None:
    app.queue(QUEUE, max_workers=7)
    async with running(app):
        pass
    await connection.execute(RESIZE, 2, QUEUE)
    async with running(app):
        rows = await app.queues.list_queues()
    assert [row.max_workers for row in rows] == [2]


async def test_capacity_is_shared_by_all_queues_of_a_pod(dsn: str) -> None:
    app = make_app(dsn, "a", "b", "c", capacity=6)
    now = most = 0
    full, let_go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 6:
            full.set()
        await let_go.wait()
        await asyncio.sleep(0)
        now -= 1

    for queue in ("a", "b", "c"):
        app.queue(queue, max_workers=6)
        app.job(queue=queue, kind=queue)(work)
    async with running(app) as pod:
        jobs = await app.enqueue_many([app.handlers[queue].request() for queue in "abc" for _ in range(10)])
        await soon(full)
        await pod.settled()
        assert sum(use.running for use in pod.pod.status().queues.values()) == 6
        let_go.set()
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert most == 6


async def test_a_new_job_wakes_an_idle_pod_without_waiting_for_the_beat(dsn: str) -> None:
    app = make_app(dsn, beat=60.0, ttl=600.0)
    told = recorded(app)

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "woken"

    async with running(app):
        for _ in range(3):
            assert await (await handle.enqueue()).result(PATIENCE) == "woken"
    assert len(told.all(JobsClaimed)) == 3


async def test_a_bad_retry_policy_in_the_queues_row_stops_nobody(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    @app.job(queue=QUEUE)
    async def handle() -> None:
        raise Dead("as ever")

    async with running(app) as pod:
        for policy in ('{"policy": "sometimes"}', '{"policy": "fixed", "weight": 1}', "5", '"fixed"', "[]"):
            await connection.execute("UPDATE rota.queue SET retry = $1::text::jsonb", policy)
            target = 11 + pod.use().target
            await connection.execute(RESIZE, target, QUEUE)
            await until("a beat was heeded", lambda: pod.use().target == target or pod.task.done())  # noqa: B023
            assert not pod.task.done(), policy
        assert (await ended(told, await handle.enqueue())).outcome == "dead"


async def test_a_job_claims_in_batches_as_large_as_the_free_slots(app: App, told: Recorder) -> None:
    app.queue(QUEUE, max_workers=64)

    @app.job(queue=QUEUE)
    async def handle(ctx: Context) -> None: ...

    async with app:
        jobs = await app.enqueue_many([handle.request() for _ in range(256)])
        async with running(app):
            await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    claims = [event.jobs for event in told.all(JobsClaimed)]
    assert sum(claims) == 256
    assert len(claims) < 64, "a claim per job would be slow"
