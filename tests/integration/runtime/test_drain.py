"""How a pod leaves, and how it starts again."""

from __future__ import annotations

import asyncio
import threading

import asyncpg
import pytest

from rota import App, BadSettings, Context, JobNotFound, JobState, RotaError
from rota.events import PodDraining, PodLeft, PodRegistered
from rota.runtime import pod as pod_module
from rota.runtime.pod import Pod
from rota.testing import Recorder
from tests.support.pods import (
    PATIENCE,
    QUEUE,
    RunningPod,
    make_app,
    recorded,
    run_pod,
    running,
    soon,
    start_pod,
)
from tests.support.until import until

SHORT = 0.2
"""Seconds of grace that a handler which waits for ever does not finish in, and a claim under way does."""
STATE = "SELECT state::text FROM rota.pod"
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%work_jobs%'
"""
PODS = "SELECT count(*) FROM rota.pod"


class Held:
    """A kind whose jobs run until they are let go; `stubborn` ones do not let themselves be cancelled."""

    def __init__(self, app: App, *, stubborn: bool = False) -> None:
        self.let_go = asyncio.Event()
        self.handler = app.job(queue=QUEUE, kind="held")(self.run)
        self._inside = asyncio.Condition()
        self._count = 0
        self._stubborn = stubborn

    async def run(self, ctx: Context) -> str:
        async with self._inside:
            self._count += 1
            self._inside.notify_all()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
        return "finished"

    async def inside(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE), self._inside:
            await self._inside.wait_for(lambda: self._count >= count)


async def test_what_runs_finishes_within_the_grace_time(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    held = Held(app)
    async with app:
        pod = await start_pod(app)
        jobs = await app.enqueue_many([held.handler.request() for _ in range(3)])
        await held.inside(3)
        pod.wish_to_stop.set()
        draining = await asyncio.wait_for(told.wait_for(PodDraining), PATIENCE)
        assert draining.running == 3
        held.let_go.set()
        await pod.stop()
        rows = [await job.status() for job in jobs]
    assert [(row.state, row.result, row.attempt) for row in rows] == [(JobState.DONE, "finished", 1)] * 3
    assert told.all(PodLeft) == [PodLeft(clean=True, released=0)]
    assert await connection.fetchval(PODS) == 0


async def test_what_does_not_finish_is_released_with_no_attempt_burned(
    dsn: str, connection: asyncpg.Connection
) -> None:
    app = make_app(dsn, grace=SHORT)
    told = recorded(app)
    held = Held(app)
    async with app:
        pod = await start_pod(app)
        jobs = await app.enqueue_many([held.handler.request(max_attempts=1) for _ in range(3)])
        await held.inside(3)
        await pod.stop()
        rows = [await job.status() for job in jobs]
    assert [(row.state, row.attempt, row.errors, row.claim) for row in rows] == [
        (JobState.READY, 0, (), 1)
    ] * 3
    assert told.all(PodLeft) == [PodLeft(clean=True, released=3)]
    assert await connection.fetchval(PODS) == 0


async def test_a_released_job_is_finished_by_the_next_pod(dsn: str) -> None:
    app = make_app(dsn, grace=SHORT)
    held = Held(app)
    async with app:
        pod = await start_pod(app)
        job = await held.handler.enqueue(max_attempts=1)
        await held.inside(1)
        await pod.stop()
        held.let_go.set()
        async with running(app):
            assert await job.result(PATIENCE) == "finished"
        row = await job.status()
    assert (row.attempt, row.claim, row.rescues) == (1, 2, 0)


async def test_a_handler_that_makes_a_failure_of_being_drained_costs_no_attempt_either(dsn: str) -> None:
    app = make_app(dsn, grace=SHORT)
    inside = asyncio.Event()

    @app.job(queue=QUEUE, max_attempts=1)
    async def touchy() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None

    async with app:
        pod = await start_pod(app)
        job = await touchy.enqueue()
        await soon(inside)
        await pod.stop()
        row = await job.status()
    assert (row.state, row.attempt) == (JobState.READY, 0)


async def test_a_draining_pod_claims_nothing_new(app: App, connection: asyncpg.Connection) -> None:
    held = Held(app)
    async with app:
        pod = await start_pod(app)
        first = await held.handler.enqueue()
        await held.inside(1)
        pod.wish_to_stop.set()
        await until("the row says so", lambda: connection.fetchval("SELECT state = 'draining' FROM rota.pod"))
        await until("claims sent before are answered", lambda: pod.use().in_use == 1)
        late = await held.handler.enqueue()
        held.let_go.set()
        await pod.stop()
        assert (await first.status()).state is JobState.DONE
        assert (await late.status()).state is JobState.READY


async def test_a_claim_that_is_answered_after_the_grace_time_starts_nothing_that_stays(
    dsn: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_module, "_LAST_WAIT", 0.5)
    app = make_app(dsn, grace=SHORT)
    told = recorded(app)
    held = Held(app)
    async with app:
        pod = await start_pod(app)
        await until("it serves", lambda: pod.use().target and pod.pod.status().listening)
        grace_is_over = watched_stop_all(pod)
        async with connection.transaction():
            await connection.execute("SELECT FROM rota.pod FOR UPDATE")
            job = await held.handler.enqueue(max_attempts=1)
            async with app.database.connection() as other:
                await until("a claim waits for the row", lambda: other.fetchval(WAITING))
            pod.wish_to_stop.set()
            await soon(grace_is_over)
        await pod.stop()
        row = await job.status()
    assert (row.state, row.attempt) == (JobState.READY, 0)
    assert [left.clean for left in told.all(PodLeft)] == [True]


def watched_stop_all(pod: RunningPod) -> asyncio.Event:
    """Set once the pod has asked what runs to stop."""
    claimer, asked = pod.pod._shared.claimers[QUEUE], asyncio.Event()
    stop_all = claimer.stop_all

    def watched(why: str) -> int:
        asked.set()
        return stop_all(why)

    claimer.stop_all = watched  # type: ignore[method-assign]
    return asked


async def test_a_pod_that_cannot_say_yet_that_it_drains_claims_nothing_new_all_the_same(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    """FOR SHARE holds up the word and lets claims pass: it is the pod that must not send any."""
    held = Held(app)

    @app.job(queue="elsewhere")
    async def probe() -> str:
        return "notices have passed"

    async with app:
        pod, other = await start_pod(app), await start_pod(app, "elsewhere")
        await held.handler.enqueue()
        await held.inside(1)
        await pod.settled()
        async with connection.transaction():
            await connection.execute("SELECT FROM rota.pod WHERE id = $1 FOR SHARE", pod.pod._membership.pod)
            pod.wish_to_stop.set()
            await asyncio.wait_for(told.wait_for(PodDraining), PATIENCE)
            late = await held.handler.enqueue()
            assert await (await probe.enqueue()).result(PATIENCE) == "notices have passed"
            held.let_go.set()
        await pod.stop()
        await other.stop()
        row = await late.status()
    assert (row.state, row.claim) == (JobState.READY, 0)


async def test_a_pod_without_any_grace_still_says_that_it_drains(
    dsn: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs would otherwise be rescued with the attempt counted."""
    monkeypatch.setattr(pod_module, "_LAST_WAIT", 0.2)
    app = make_app(dsn, grace=0.0)
    held = Held(app, stubborn=True)
    async with app:
        pod = await start_pod(app)
        await held.handler.enqueue()
        await held.inside(1)
        await pod.stop()
        held.let_go.set()
        assert await connection.fetchval(STATE) == "draining"


async def test_a_stubborn_handler_keeps_its_job_and_the_row_is_left_to_expire(
    dsn: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_module, "_LAST_WAIT", 0.2)
    app = make_app(dsn, grace=SHORT)
    told = recorded(app)
    held = Held(app, stubborn=True)
    async with app:
        pod = await start_pod(app)
        job = await held.handler.enqueue()
        await held.inside(1)
        await pod.stop()
        row = await job.status()
        held.let_go.set()
        assert (row.state, row.attempt) == (JobState.RUNNING, 1), "nobody else may have it while it runs"
        assert [left.clean for left in told.all(PodLeft)] == [False]
        assert await connection.fetchval(STATE) == "draining"
        await connection.execute("UPDATE rota.pod SET expires_at = rota.clock()")
        async with running(app):
            assert await job.result(PATIENCE) == "finished"
        row = await job.status()
    assert row.attempt == 1, "a draining pod's jobs are rescued with the attempt given back"


async def test_an_idle_pod_leaves_at_once_and_cleanly(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    async with running(app):
        assert await connection.fetchval(PODS) == 1
    assert told.all(PodLeft) == [PodLeft(clean=True, released=0)]
    assert await connection.fetchval(PODS) == 0


async def test_a_pod_that_is_told_to_stop_before_it_starts_leaves_cleanly(app: App, told: Recorder) -> None:
    stop = asyncio.Event()
    stop.set()
    async with app, asyncio.timeout(PATIENCE):
        await Pod(app).run(stop)
    assert told.all(PodLeft) == [PodLeft(clean=True, released=0)]


async def test_a_pod_may_be_stopped_and_started_again(app: App, told: Recorder) -> None:
    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with app:
        pod = Pod(app)
        for _ in range(3):
            started = await run_pod(pod)
            assert await (await handle.enqueue()).result(PATIENCE) == "fine"
            await started.stop()
    assert len(told.all(PodRegistered)) == 3


async def test_starting_a_pod_twice_is_an_error(app: App) -> None:
    async with app:
        pod = Pod(app)
        started = await run_pod(pod)
        try:
            with pytest.raises(RotaError):
                async with asyncio.timeout(1):
                    await pod.run(asyncio.Event())
        finally:
            started.task.cancel()
            await asyncio.gather(started.task, return_exceptions=True)


async def test_a_pod_of_a_closed_app_says_so(app: App) -> None:
    with pytest.raises(RotaError, match="not open"):
        await Pod(app).run(asyncio.Event())


async def test_a_pod_without_queues_names_the_variable(dsn: str) -> None:
    app = App(make_app(dsn).settings.model_copy(update={"queues": ()}))
    with pytest.raises(BadSettings, match="ROTA_QUEUES"):
        Pod(app)


async def test_queues_named_twice_are_served_once(app: App, connection: asyncpg.Connection) -> None:
    async with running(app, "b", "a", "b"):
        assert await connection.fetchval("SELECT queues FROM rota.pod") == ["b", "a"]


async def test_nothing_of_a_pod_is_left_when_it_has_gone(app: App) -> None:
    @app.job(queue=QUEUE)
    def handle() -> None: ...

    async with app:
        with pytest.raises(JobNotFound):  # the first wait for a result starts to listen
            await app.result(0)
        before = asyncio.all_tasks()
        pod = await start_pod(app)
        jobs = await app.enqueue_many([handle.request() for _ in range(20)])
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
        await pod.stop()
        assert asyncio.all_tasks() <= before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rota-handler")]


async def test_a_pod_that_has_left_keeps_no_connection_of_the_apps(
    app: App, connection: asyncpg.Connection
) -> None:
    """Or closing the app waits for it, five seconds, and then cuts it."""

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with app:
        pod = await start_pod(app)
        job = await handle.enqueue(connection=connection)
        assert await job.result(PATIENCE) == "fine"
        await pod.stop()
        pool = app.database._pool
        assert pool is not None
        assert pool.get_idle_size() == pool.get_size()


async def test_a_pod_that_is_cancelled_stops_its_handlers(dsn: str) -> None:
    app = make_app(dsn)
    inside, stopped = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def handle() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with app:
        pod = await start_pod(app)
        await handle.enqueue()
        await soon(inside)
        pod.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pod.task
        async with asyncio.timeout(1):
            await stopped.wait()


async def test_a_drain_while_the_database_hangs_ends_all_the_same(
    dsn: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_module, "_LAST_WAIT", 0.2)
    app = make_app(dsn, grace=SHORT)
    told = recorded(app)
    held = Held(app)
    async with app:
        pod = await start_pod(app)
        await held.handler.enqueue()
        await held.inside(1)
        async with connection.transaction():
            await connection.execute("LOCK TABLE rota.pod, rota.job")
            await pod.stop()
    assert [left.clean for left in told.all(PodLeft)] == [False]
