"""The contract of every loop of a pod: it ends when it is cancelled, whenever that is, and leaves
nothing behind. Each service of a real pod is run by itself on a real database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

import pytest

from rota import App, Change, Context, JobState
from rota.cluster.leader import Lead
from rota.cluster.lease import Lease, stand
from rota.cluster.rebalancer import Rebalancer
from rota.runtime.claimer import Claimer
from rota.runtime.janitor import Janitor
from rota.runtime.lookout import Lookout
from rota.runtime.pod import Pod
from rota.runtime.processes import Processes
from rota.runtime.promoter import Promoter
from rota.service import Service
from rota.storage.leases import Leases
from rota.storage.pool import Database
from tests.support.pods import PATIENCE, QUEUE

Loop = Service | Claimer


def services(kind: type[Service] = Service) -> Iterator[type[Loop]]:
    for service in kind.__subclasses__():
        if service.__module__.startswith("rota."):
            yield service
            yield from services(service)


EVERY = [*services(), Claimer]
DUTIES = (Rebalancer, Janitor, Promoter, Lookout)
"""Services of a leader, that begin and end with its tenure."""

each_service = pytest.mark.parametrize("service", EVERY, ids=[service.__name__ for service in EVERY])


MOMENTS = (1, 2, 3, 4, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)
"""Turns of the loop: from before the first statement is sent until after its answer."""


class Scene:
    """A pod that has registered and whose services do not run, but for the one that is tried.

    The services of its control thread are tried on the test's own loop, like the others.
    """

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.control = pod._control
        self._answers = count(1)
        self._duties: list[Service] = []
        self._before = asyncio.all_tasks()

    async def find(self, kind: type[Loop]) -> Loop:
        services: Sequence[Loop] = [*self.pod._services, *self.control.services]
        if kind in DUTIES:
            self._duties = self._duties or self.control._duties(await self._lead())
            services = self._duties
        return next(service for service in services if isinstance(service, kind))

    async def load(self) -> None:
        """Give every service something to do."""
        handler = self.pod.app.handlers["handle"]
        jobs = await self.pod.app.enqueue_many(
            [handler.request(delay=0 if number % 2 else 0.001) for number in range(50)]
        )
        await self.pod.app.enqueue_raw("unheard.of", queue=QUEUE)
        self.pod._shared.slots.heed(1, next(self._answers), {QUEUE: 10})
        self.pod._shared.claimers[QUEUE].wake()
        self.pod._hooks._put([Change(1, QUEUE, "k", 1, 1, JobState.READY, JobState.RUNNING)] * 50)
        self.pod._shared.settler.give_up(lambda: None)
        self.pod._solitude.hear((QUEUE, jobs[0].id))
        for word in ("plan:something happened", "due:0", "lease:free", f"beat:{self.pod._membership.pod}"):
            self.control._receive(*word.split(":"))

    async def end(self) -> None:
        """Nothing runs any more, and nothing is kept from the pools."""
        for claimer in self.pod._shared.claimers.values():
            claimer.stop_all("drain")
        others = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), PATIENCE)
        # All but the one that the enqueuer keeps for a while.
        await all_are_there(self.pod.app.database, but=1)
        await all_are_there(self.control._beating)
        await all_are_there(self.control._leading)

    async def _lead(self) -> Lead:
        clock, control = self.pod.app.clock, self.control
        lease = await stand(self.pod._membership.pod, leases=Leases(control._leading), clock=clock, ttl=60.0)
        assert isinstance(lease, Lease)
        return Lead(lease, clock)


async def all_are_there(database: Database, *, but: int = 0) -> None:
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        for _ in range(database.settings.pool_size - but):
            await stack.enter_async_context(database.connection())


@asynccontextmanager
async def scene(app: App) -> AsyncIterator[Scene]:
    @app.job(queue=QUEUE)
    async def handle(ctx: Context) -> None:
        ctx.progress(0.5)
        await asyncio.sleep(0)

    @app.on_change
    async def hook(change: Change) -> None:
        await asyncio.sleep(0)

    async with app, AsyncExitStack() as leaving:
        pod = Pod(app)
        pod._build(leaving.enter_context(ThreadPoolExecutor(1)), Processes(1))
        await pod._declare_queues()
        control = pod._control
        control._loop = asyncio.get_running_loop()
        for database in (control._beating, control._leading):
            await database.open()
            leaving.push_async_callback(database.close)
        await pod._membership.register()
        yield Scene(pod)


async def cancelled(task: asyncio.Task[None]) -> bool:
    """Whether the task ended by its cancellation, and by nothing else."""
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({task})
    return task.cancelled()


def test_every_service_of_a_pod_is_held_to_the_contract() -> None:
    assert {service.__name__ for service in EVERY} >= {
        "Heart", "Fence", "Listener", "Leader", "Rebalancer", "Janitor", "Promoter", "Lookout",
        "Settler", "Solitude", "ProgressWriter", "Hooks", "Claimer",
    }  # fmt: skip


@each_service
async def test_a_service_cancelled_before_it_starts_does_nothing(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        task = asyncio.create_task((await here.find(service)).run())
        task.cancel()
        assert await cancelled(task)
        await here.end()


@each_service
async def test_a_service_may_be_cancelled_at_every_moment_of_its_start(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        for turns in MOMENTS:
            task = asyncio.create_task((await here.find(service)).run())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            assert await cancelled(task), f"after {turns} turns"
        await here.end()


@each_service
async def test_a_service_cancelled_twice_ends_once(app: App, service: type[Loop]) -> None:
    async with scene(app) as here:
        task = asyncio.create_task((await here.find(service)).run())
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
            task = asyncio.create_task((await here.find(service)).run())
            for _ in range(turns):
                await asyncio.sleep(0)
            assert not task.done(), task
            task.cancel()
            assert await cancelled(task)
        await here.end()
