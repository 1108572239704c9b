"""Postgres itself goes away under load, and the network falls silent; what was enqueued still ends."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rota.events import DatabaseLost, PodRegistered
from rota.storage.embedded import start_embedded
from tests.support.crash_app import Notebook
from tests.support.crash_scene import SLOTS, UNHARMED, Scene, costs, once_each, other_session
from tests.support.cutter import Cutter
from tests.support.pods import make_app
from tests.support.postgres import FAST
from tests.support.until import until

DURABLE = {**FAST, "synchronous_commit": "on"}
"""A crashed server keeps what it committed, as long as the machine lives."""

JOBS = 300


class OwnServer:
    """A server that this test may stop; it comes back on another port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.start()

    def start(self) -> None:
        self._server = start_embedded(directory=self._directory, settings=DURABLE)
        self.dsn = self._server.dsn

    async def die(self, how: signal.Signals) -> None:
        os.kill(self._server.pid, how)
        await until("the server is gone", lambda: not self._server.running())

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def server(scratch: Path) -> Iterator[OwnServer]:
    server = OwnServer(scratch)
    yield server
    server.stop()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_every_job_ends_though_postgres_is_restarted_under_load(
    server: OwnServer, tmp_path: Path, how: signal.Signals
) -> None:
    async with make_app(server.dsn) as app:
        await app.migrate()
    notebook = Notebook(tmp_path)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(other_session(server.dsn))
        scene = Scene(server.dsn, database, notebook)
        jobs = await scene.enqueue("brief", JOBS)
        cutter = await stack.enter_async_context(Cutter(server.dsn))
        crew = await stack.enter_async_context(scene.crew(cutter.dsn, ttl=30.0))
        await until("it is in the middle of it", lambda: len(notebook.runs()) > JOBS // 4)
        await server.die(how)
        await crew.tells(DatabaseLost, lambda lost: lost.doing.startswith("working"))
        server.start()
        cutter.lead_to(server.dsn)
        scene.database = await stack.enter_async_context(other_session(server.dsn))
        assert await scene.database.fetchval("SELECT count(*) FROM rota.job") > 0
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)
    notebook.close()


async def test_a_pod_behind_a_silent_network_loses_its_jobs_and_comes_back(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", SLOTS)
    async with scene.crew(cutter.dsn, database={"command_timeout": 1.0}) as crew:
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        cutter.fall_silent()
        async with scene.crew() as other:
            await until("another has the jobs", lambda: len(scene.notebook.runs()) == 2 * SLOTS)
            rows = await scene.database.fetch("SELECT DISTINCT state, attempt, rescues FROM rota.job")
            assert [tuple(row) for row in rows] == [("running", 2, 1)]
            cutter.speak_again()
            await until("the first comes back", lambda: len(crew.told.all(PodRegistered)) == 2)
            assert len(await scene.running()) == SLOTS, "it took back what is another's"
            scene.notebook.open_door()
            assert costs(await scene.all_end(jobs)) == {("done", 2, 1)}
            assert scene.runs_of(jobs) == Counter(dict.fromkeys(jobs, 2))
            await other.started.stop()
        await scene.fills_every_slot(crew)


async def test_a_pod_whose_every_connection_is_cut_again_and_again_loses_nothing(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("brief", JOBS)
    async with scene.crew(cutter.dsn) as crew:
        for share in range(1, 6):
            await until(
                "it goes on",
                lambda: len(scene.notebook.runs()) > share * JOBS // 10,  # noqa: B023
            )
            cutter.cut_all()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)
