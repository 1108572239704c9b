"""Pods beside each other on one database."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import uuid4

import asyncpg
import pytest

from rota import App, Context, JobState
from rota.cluster.identity import machine
from rota.errors import PodRetired, PodTwin
from rota.events import JobsEnded
from rota.storage.rows import Boot
from tests.support.pods import PATIENCE, QUEUE, RunningPod, make_app, recorded, running, soon, start_pod


async def test_two_pods_share_a_queue_and_each_job_runs_exactly_once(
    dsn: str, connection: asyncpg.Connection
) -> None:
    runs: Counter[int] = Counter()
    pods: Counter[str] = Counter()
    all_done = asyncio.Event()
    many = 2_000

    def made() -> App:
        app = make_app(dsn, prefix="pod")
        app.queue(QUEUE, max_workers=20)

        @app.job(queue=QUEUE)
        async def handle(ctx: Context, number: int) -> None:
            runs[number] += 1
            pods[str(ctx.pod)] += 1
            if len(runs) == many:
                all_done.set()

        return app

    one, other = made(), made()
    told = [recorded(one), recorded(other)]
    async with one:
        await one.enqueue_many([one.handlers["handle"].request(number) for number in range(many)])
        async with running(one), running(other):
            async with asyncio.timeout(60):
                await all_done.wait()
    assert set(runs.values()) == {1}
    assert len(runs) == many
    assert len(pods) == 2, "both had their share"
    assert sum(len(event.runs) for one in told for event in one.all(JobsEnded)) == many
    assert (
        await connection.fetchval("SELECT count(*) FROM rota.history WHERE state = 'done' AND claim = 1")
        == many
    )
    assert await connection.fetchval("SELECT count(*) FROM rota.job") == 0


async def test_two_pods_of_one_app_live_in_one_process(app: App, connection: asyncpg.Connection) -> None:
    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app):
        second = await start_pod(app)
        assert await connection.fetchval("SELECT count(DISTINCT id) FROM rota.pod") == 2
        await second.stop()
        assert await (await handle.enqueue()).result(PATIENCE) == "fine"


async def test_a_pod_cancels_only_its_own_jobs(dsn: str) -> None:
    """Job ids are the cluster's, so a cancel names the pod."""
    inside = asyncio.Event()
    app = make_app(dsn)

    @app.job(queue=QUEUE)
    async def hold() -> None:
        inside.set()
        await asyncio.Event().wait()

    async with running(app):
        idle = await start_pod(app, "elsewhere")
        job = await hold.enqueue()
        await soon(inside)
        assert await job.cancel() == "requested"
        with pytest.raises(Exception, match="cancelled"):
            await job.result(PATIENCE)
        assert not idle.task.done()
        await idle.stop()


SILENT = """
    INSERT INTO rota.pod (id, expires_at, registered_at, capacity, name, queues, kinds)
    VALUES ('00000000-0000-0000-0000-000000000001', rota.clock(), rota.clock(), 1, 'silent', '{}', '{}')
"""
HOLDS = """
    UPDATE rota.job
    SET state = 'running', pod = '00000000-0000-0000-0000-000000000001', attempt = 1, claim = 1,
        incarnation = (SELECT incarnation FROM rota.pod)
"""


async def test_jobs_of_a_pod_that_fell_silent_are_rescued_by_another(
    dsn: str, connection: asyncpg.Connection
) -> None:
    """The silent pod is one that never was: a row, and a job it claims to run."""
    app = make_app(dsn, ttl=0.9)

    @app.job(queue=QUEUE)
    async def handle(ctx: Context) -> int:
        return ctx.attempt

    async with app:
        job = await handle.enqueue()
        await connection.execute(SILENT)
        await connection.execute(HOLDS)
        async with running(app):
            assert await job.result(PATIENCE) == 2
        row = await job.status()
    assert (row.state, row.rescues, row.claim) == (JobState.DONE, 1, 2)
    assert [error["type"] for error in row.errors] == ["PodLost"]


async def register_again(app: App, pod: RunningPod) -> Boot:
    """A later boot of a pod on its own machine, where it must have thought that the earlier was gone."""
    membership = pod.pod._membership
    return await app.pods.register_pod(
        membership.pod,
        replaces=membership.incarnation,
        machine=machine(),
        name="the later boot",
        queues=[QUEUE],
        kinds=[],
        capacity=1,
        capacities={},
        zone="",
        version="",
        ttl=60.0,
        max_rescues=3,
    )


async def test_a_pod_that_was_retired_by_a_later_boot_of_itself_does_not_come_back(
    dsn: str, connection: asyncpg.Connection
) -> None:
    app = make_app(dsn, uid=str(uuid4()), container="worker")
    stopped = asyncio.Event()
    inside = asyncio.Event()

    @app.job(queue=QUEUE)
    async def hold() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with app:
        first = await start_pod(app)
        await hold.enqueue()
        await soon(inside)
        later = await register_again(app, first)
        with pytest.raises(BaseExceptionGroup) as ended:
            async with asyncio.timeout(PATIENCE):
                await first.task
        assert ended.group_contains(PodRetired)
        await soon(stopped)
        assert await connection.fetchval("SELECT incarnation FROM rota.pod") == later.incarnation


async def test_two_pods_of_one_uid_on_one_machine_are_a_start_error(dsn: str) -> None:
    app = make_app(dsn, uid=str(uuid4()), container="worker")
    async with app:
        first = await start_pod(app)
        with pytest.raises(PodTwin, match="ROTA_POD_UID"):
            await start_pod(app)
        await first.settled()
        await first.stop()
        again = await start_pod(app)
        assert again.pod._membership.pod == first.pod._membership.pod
        await again.stop()
