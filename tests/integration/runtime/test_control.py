"""The control thread begins and ends with its pod, whatever that comes to."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota import App
from rota.events import LeaseGone, LeaseTaken
from rota.runtime.pod import Pod
from rota.testing import Recorder
from tests.support.pods import PATIENCE, make_app, run_pod, running
from tests.support.until import until

WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'rota.pod'::regclass)"


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({task})
    assert task.cancelled()


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610])
async def test_a_pod_may_be_cancelled_at_every_moment_of_its_start(app: App, turns: int) -> None:
    async with app:
        task = asyncio.create_task(Pod(app).run(asyncio.Event()))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancel(task)


async def test_a_pod_cancelled_while_it_registers_does_not_go_on_without_its_handlers(
    dsn: str, connection: asyncpg.Connection
) -> None:
    app = make_app(dsn, ttl=60.0)
    async with app, connection.transaction():
        await connection.execute("LOCK TABLE rota.pod")
        task = asyncio.create_task(Pod(app).run(asyncio.Event()))
        await until("it waits for the lock", lambda: connection.fetchval(WAITS))
        await cancel(task)


async def test_a_pod_cancelled_while_it_runs_leaves_its_row_to_expire(
    app: App, connection: asyncpg.Connection
) -> None:
    async with app:
        pod = await run_pod(Pod(app))
        await cancel(pod.task)
    assert await connection.fetchval("SELECT count(*) FROM rota.pod") == 1


async def test_what_ends_the_control_thread_ends_the_pod(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app:
        pod = await run_pod(Pod(app))

        async def fail() -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(pod.pod._control.heart, "step", fail)
        with pytest.raises(BaseExceptionGroup) as ended:
            async with asyncio.timeout(PATIENCE):
                await pod.task
        assert ended.group_contains(ZeroDivisionError)


async def test_news_for_a_leader_are_not_kept_by_one_that_leads_no_more(app: App, told: Recorder) -> None:
    async with running(app) as pod:
        control = pod.pod._control
        async with asyncio.timeout(PATIENCE):
            await told.wait_for(LeaseTaken)
            await control._call(control.leader.retire())
            await told.wait_for(LeaseGone)
        rebalancer = control._rebalancer
        assert rebalancer is not None
        control._receive("plan", "somebody joined")
        assert not rebalancer._causes
