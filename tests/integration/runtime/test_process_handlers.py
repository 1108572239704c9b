"""`process=True` handlers: in children that can be stopped, and that do not outlive the pod."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import App, JobFailed, JobState
from rota.testing import Recorder
from tests.support import process_jobs
from tests.support.pods import PATIENCE, QUEUE, ended, make_app, recorded, running
from tests.support.processes import Watch, is_alive
from tests.support.until import until

STARTING = 30.0
"""Seconds: a child imports all of Rota before its first job."""


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    """The app of the module that children import, on this test's database."""
    app = process_jobs.app
    ours = make_app(dsn, processes=1)
    before = app.settings
    app.settings = ours.settings
    yield app
    app.settings = before
    app.__dict__.pop("telemetry", None)


@pytest.fixture
def told(app: App) -> Recorder:
    return recorded(app)


async def hanging(path: Path) -> int:
    """The pid of the child that hangs, once it does."""
    await until("the child hangs", path.exists, STARTING)
    return int(await asyncio.to_thread(path.read_text))


async def test_every_way_a_child_can_end_its_job(app: App, told: Recorder) -> None:
    """One pod for all of them: a child takes a while to start."""
    async with running(app):
        square = await process_jobs.square.enqueue(process_jobs.Square(number=12))
        answer = await square.result(STARTING)
        assert answer["square"] == 144
        assert answer["pid"] != os.getpid()
        assert await (await process_jobs.no_payload.enqueue()).result(STARTING) == "nothing needed"

        for way, said in [
            ("raise", "not in the child"),
            ("exit", "3"),
            ("os exit", "exit code 7"),
            ("kill", "exit code -9"),
            ("unpicklable error", "Unpicklable: unpicklable"),
            ("demanding error", "Demanding: this and that"),
            ("unpicklable result", "lambda"),
            ("dead", "said the child"),
        ]:
            job = await process_jobs.end.enqueue(way)
            with pytest.raises(JobFailed, match=f"ended dead: .*{said}"):
                await job.result(STARTING)

        after = await process_jobs.square.enqueue(process_jobs.Square(number=2))
        assert (await after.result(STARTING))["square"] == 4, "the pool has survived all of it"

        for way in ("release", "throttled"):
            job = await process_jobs.end.enqueue(way)
            await ended(told, job)
            row = await job.status()
            assert (row.state, row.attempt) == (JobState.SCHEDULED, 0), way


async def test_a_timeout_kills_the_child_and_the_next_job_gets_another(app: App, tmp_path: Path) -> None:
    async with running(app):
        await (await process_jobs.no_payload.enqueue()).result(STARTING)
        job = await process_jobs.hang.enqueue(str(tmp_path / "pid"), timeout=1.0)
        child = Watch([await hanging(tmp_path / "pid")])
        with pytest.raises(JobFailed, match="stopped after 1 s"):
            await job.result(STARTING)
        await asyncio.to_thread(child.wait_until_gone)
        next_one = await process_jobs.square.enqueue(process_jobs.Square(number=3))
        assert (await next_one.result(STARTING))["square"] == 9


async def test_a_cancel_kills_the_child(app: App, tmp_path: Path) -> None:
    async with running(app):
        job = await process_jobs.hang.enqueue(str(tmp_path / "pid"))
        child = Watch([await hanging(tmp_path / "pid")])
        await job.cancel()
        with pytest.raises(JobFailed, match="ended cancelled"):
            await job.result(PATIENCE)
        await asyncio.to_thread(child.wait_until_gone)


async def test_children_are_gone_when_the_pod_is(dsn: str, app: App, told: Recorder, tmp_path: Path) -> None:
    app.settings = make_app(dsn, processes=1, grace=0.2).settings
    async with running(app):
        job = await process_jobs.hang.enqueue(str(tmp_path / "pid"))
        pid = await hanging(tmp_path / "pid")
    assert not is_alive(pid)
    assert (await ended(told, job)).outcome == "release"
    async with app:
        row = await job.status()
    assert (row.state, row.attempt, row.queue) == (JobState.READY, 0, QUEUE)
