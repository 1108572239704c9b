"""The contract of every loop of a pod: it ends when it is cancelled, whenever that is, and leaves
nothing behind. Each service of a real pod is run by itself on a real database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rota import App, Change, Context, JobState
from rota.runtime.claimer import Claimer
from rota.runtime.pod import Pod
from rota.runtime.processes import Processes
from rota.runtime.service import Service
from tests.support.pods import PATIENCE, QUEUE

Loop = Service | Claimer


def services(kind: type[Service] = Service) -> Iterator[type[Loop]]:
    for service in kind.__subclasses__():
        if service.__module__.startswith("rota."):
            yield service
            yield from services(service)


EVERY = [*services(), Claimer]
each_service = pytest.mark.parametrize("service", EVERY, ids=[service.__name__ for service in EVERY])


MOMENTS = (1, 2, 3, 4, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)
"""Turns of the loop: from before the first statement is sent until after its answer."""


class Scene:
    """A pod that has registered and whose services do not run, but for the one that is tried."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._before = asyncio.all_tasks()

    def find(self, kind: type[Loop]) -> Loop:
        return next(service for service in self.pod._services if isinstance(service, kind))

    async def load(self) -> None:
        """Give every service something to do."""
        handler = self.pod.app.handlers["handle"]
        await self.pod.app.enqueue_many(
            [handler.request(delay=0 if number % 2 else 0.001) for number in range(50)]
        )
        await self.pod.app.enqueue_raw("unheard.of", queue=QUEUE)
        claimer = self.pod._shared.claimers[QUEUE]
        claimer.target = 10
        claimer.wake()
        self.pod._hooks._put([Change(1, QUEUE, "k", 1, 1, JobState.READY, JobState.RUNNING)] * 50)
        self.pod._shared.settler.give_up(lambda: None)
        self.pod._promoter.hear(0.0)

    async def end(self) -> None:
        """Nothing runs any more, and nothing is kept from the pool."""
        for claimer in self.pod._shared.claimers.values():
            claimer.stop_all("drain")
        others = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), PATIENCE)
        # All but the one that the enqueuer keeps for a while.
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
            for _ in range(self.pod.settings.database.pool_size - 1):
                await stack.enter_async_context(self.pod.app.database.connection())


@asynccontextmanager
async def scene(app: App) -> AsyncIterator[Scene]:
    @app.job(queue=QUEUE)
    async def handle(ctx: Context) -> None:
        ctx.progress(0.5)
        await asyncio.sleep(0)

    @app.on_change
    async def hook(change: Change) -> None:
        await asyncio.sleep(0)

    async with app:
        pod = Pod(app)
        control = app.connect_to(pool_size=2)
        await control.open()
        with ThreadPoolExecutor(1) as threads:
            try:
                pod._build(control, threads, Processes(1))
                await pod._declare_queues(control)
                await pod._membership.register()
                yield Scene(pod)
            finally:
                await control.close()


async def cancelled(task: asyncio.Task[None]) -> bool:
    """Whether the task ended by its cancellation, and by nothing else."""
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({task})
    return task.cancelled()


def test_every_service_of_a_pod_is_held_to_the_contract() -> None:
    assert {service.__name__ for service in EVERY} >= {
        "Heart", "Fence", "Listener", "Janitor", "Promoter", "Settler", "ProgressWriter", "Hooks", "Claimer",
    }  # fmt: skip


@each_service
async def test_a_service_cancelled_before_it_starts_does_nothing(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        task = asyncio.create_task(here.find(service).run())
        task.cancel()
        assert await cancelled(task)
        await here.end()


@each_service
async def test_a_service_may_be_cancelled_at_every_moment_of_its_start(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        for turns in MOMENTS:
            task = asyncio.create_task(here.find(service).run())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            assert await cancelled(task), f"after {turns} turns"
        await here.end()


@each_service
async def test_a_service_cancelled_twice_ends_once(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        task = asyncio.create_task(here.find(service).run())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        assert await cancelled(task)
        await here.end()


@each_service
async def test_a_service_cancelled_under_load_ends_and_can_run_again(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        for turns in (10, 40, 160, 640):
            await here.load()
            task = asyncio.create_task(here.find(service).run())
            for _ in range(turns):
                await asyncio.sleep(0)
            assert not task.done(), task
            task.cancel()
            assert await cancelled(task)
        await here.end()
