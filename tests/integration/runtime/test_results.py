"""Waiting for the end of a job, with notices and without."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota import App, JobFailed, JobNotFound, JobState, ResultTimeout, RotaError
from rota.events import ListenProbed
from rota.runtime import results
from rota.runtime.listener import Listener
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, running, soon
from tests.support.until import until

CUT_LISTEN = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'
"""


class Held:
    """A kind whose jobs run until they are let go."""

    def __init__(self, app: App) -> None:
        self.inside, self.let_go = asyncio.Event(), asyncio.Event()
        self.handler = app.job(queue=QUEUE, kind="held")(self.run)

    async def run(self) -> str:
        self.inside.set()
        await self.let_go.wait()
        return "let go"


async def test_a_job_that_has_ended_gives_its_result_at_once_and_again(app: App) -> None:
    held = Held(app)
    held.let_go.set()
    async with running(app):
        job = await held.handler.enqueue()
        assert await job.result(PATIENCE) == "let go"
        assert await job.result(PATIENCE) == "let go"
        assert await app.result(job.id) == "let go"


async def test_whoever_waits_is_told_by_a_notice(
    app: App, told: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking now and then is slowed down so much that only a notice can be in time."""
    for name in ("_FIRST_LOOK", "_LONGEST_LOOK", "_LOOK_WHEN_TOLD"):
        monkeypatch.setattr(results, name, 600.0)
    held = Held(app)
    async with running(app):
        job = await held.handler.enqueue()
        waiting = asyncio.gather(*(job.result(PATIENCE) for _ in range(3)))
        await asyncio.wait_for(told.wait_for(ListenProbed, lambda event: event.works), PATIENCE)
        await soon(held.inside)
        held.let_go.set()
        assert await waiting == ["let go"] * 3


async def test_whoever_waits_looks_by_himself_where_no_notice_arrives(
    app: App, told: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(listener: Listener) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Listener, "step", hang)
    held = Held(app)
    async with running(app):
        job = await held.handler.enqueue()
        waiting = asyncio.create_task(job.result(PATIENCE))
        await soon(held.inside)
        held.let_go.set()
        assert await waiting == "let go"
    assert told.all(ListenProbed) == []


async def test_a_timeout_says_so_and_leaves_the_job_alone(app: App) -> None:
    held = Held(app)
    async with running(app):
        job = await held.handler.enqueue()
        with pytest.raises(ResultTimeout, match=f"Job {job.id} has not ended after 0.05 s") as late:
            await job.result(timeout=0.05)
        assert isinstance(late.value, TimeoutError)
        assert (late.value.job, late.value.timeout) == (job.id, 0.05)
        held.let_go.set()
        assert await job.result(PATIENCE) == "let go"


async def test_a_job_that_does_not_exist_is_not_waited_for(app: App) -> None:
    async with app:
        with pytest.raises(JobNotFound, match="no job 12345") as missing:
            await app.result(12345)
        assert missing.value.job == 12345
        with pytest.raises(JobNotFound):
            await app.read_job(12345)


async def test_a_job_cancelled_while_somebody_waits_raises_there(app: App) -> None:
    @app.job(queue="unserved")
    async def never() -> None: ...

    async with app:
        job = await never.enqueue()
        waiting = asyncio.create_task(job.result(PATIENCE))
        await asyncio.sleep(0)
        await job.cancel("enough")
        with pytest.raises(JobFailed, match="enough") as failed:
            await waiting
    assert (failed.value.state, failed.value.reason) == (JobState.CANCELLED, "enough")


async def test_a_job_that_comes_back_to_life_is_waited_for_anew(app: App) -> None:
    fail = asyncio.Event()
    fail.set()

    @app.job(queue=QUEUE, max_attempts=1)
    async def once_more() -> str:
        if fail.is_set():
            raise ValueError("not yet")
        return "now"

    async with running(app):
        job = await once_more.enqueue()
        with pytest.raises(JobFailed, match="not yet"):
            await job.result(PATIENCE)
        fail.clear()
        assert await app.jobs.retry_job(job.id) == ("ready", None)
        assert await job.result(PATIENCE) == "now"


async def test_a_lost_listen_connection_is_made_again(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    held = Held(app)
    async with running(app):
        job = await held.handler.enqueue()
        waiting = asyncio.create_task(job.result(PATIENCE))
        await soon(held.inside)
        await asyncio.wait_for(told.wait_for(ListenProbed), PATIENCE)
        await until("a LISTEN connection is cut", lambda: connection.fetchval(CUT_LISTEN))
        held.let_go.set()
        assert await waiting == "let go"


async def test_an_app_that_is_closed_while_somebody_waits_does_not_leave_him_hanging(app: App) -> None:
    @app.job(queue="unserved")
    async def never() -> None: ...

    async with app:
        job = await never.enqueue()
        waiting = asyncio.create_task(job.result(PATIENCE))
        for _ in range(20):
            await asyncio.sleep(0)
    with pytest.raises(RotaError) as ended:
        await waiting
    assert not isinstance(ended.value, ResultTimeout)


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind(app: App) -> None:
    @app.job(queue="unserved")
    async def never() -> None: ...

    async with app:
        job = await never.enqueue()
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert app._require().results._waiting == {}
