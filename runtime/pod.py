"""A pod: one replica process, all its services, from register to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rota.errors import BadInput, BadSettings, StorageError
from rota.events import PodDraining, PodLeft, SlotsChanged
from rota.service import Service
from rota.settings import PodSettings, check_name, under_kubernetes

from ..cluster.slots import Heeded, Slots
from ..storage.queues import Queues
from ..storage.rows import BeatAnswer
from .app import App, QueueDefaults
from .claimer import Claimer
from .context import Context
from .control import Control
from .hooks import Hooks
from .processes import Processes
from .progress import ProgressWriter
from .settler import Settler
from .shared import Shared
from .solitude import Solitude
from .worker import STOPPED_BY_DRAIN, STOPPED_BY_FENCE, Worker

_LAST_WAIT = 3.0
"""Seconds a cancelled handler gets to end before the pod leaves without it."""

_HOOKS_WAIT = 1.0
"""Seconds for hooks to hear the last changes."""


@dataclass(frozen=True, slots=True)
class QueueUse:
    """One queue of this pod at a glance."""

    target: int
    in_use: int
    running: int


@dataclass(frozen=True, slots=True)
class PodStatus:
    """This pod at a glance."""

    name: str
    listening: bool
    ended: int
    queues: dict[str, QueueUse]


class Pod:
    """Runs the jobs of its queues until told to stop; then drains."""

    def __init__(self, app: App, queues: Sequence[str] | None = None) -> None:
        self.app = app
        self.settings = app.settings
        self.queues = tuple(dict.fromkeys(queues or self.settings.queues))
        if not self.queues:
            raise BadSettings("No queues to serve; set ROTA_QUEUES or pass --queues, as in emails,reports.")
        for queue in self.queues:
            check_name("queue", queue)
        self._tell = app.telemetry.tell
        self._ended = 0
        self._running = False
        self.started = asyncio.Event()

    def status(self) -> PodStatus:
        """How it stands right now."""
        return PodStatus(
            self._membership.name,
            self._control.listening,
            self._ended,
            {
                queue: QueueUse(claimer.target, claimer.in_use, claimer.running)
                for queue, claimer in self._shared.claimers.items()
            },
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then finish what runs and leave. The app must be open."""
        if self._running:
            raise BadInput("This pod is running already; make another Pod for another boot.")
        self._running = True
        try:
            await self._serve(self.settings.pod, stop)
        finally:
            self._running = False

    async def _serve(self, pod: PodSettings, stop: asyncio.Event) -> None:
        threads = ThreadPoolExecutor(pod.capacity, thread_name_prefix="rota-handler")
        processes = Processes(pod.processes)
        try:
            self._build(threads, processes)
            await self._declare_queues()
            try:
                await self._control.start()
                await self._run_services(stop)
            finally:
                await self._control.stop()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            processes.close()

    async def _run_services(self, stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(service.run()) for service in self._services]
                tasks.append(group.create_task(self._control.ended()))
                self.started.set()
                await self._until(stop)
                await self._drain()
                for task in tasks:
                    task.cancel()
        finally:
            # Nothing is left to stop after a drain; a pod that fails takes its handlers along.
            for claimer in self._shared.claimers.values():
                claimer.stop_all(STOPPED_BY_DRAIN)

    async def _until(self, stop: asyncio.Event) -> None:
        """Wait until told to stop, here or by an operator."""
        waits = {asyncio.ensure_future(event.wait()) for event in (stop, self._drain_asked)}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _build(self, threads: ThreadPoolExecutor, processes: Processes) -> None:
        """Make the services; nothing runs yet."""
        self._drain_asked = asyncio.Event()
        app, pod, job, tell = self.app, self.settings.pod, self.settings.job, self._tell
        slots = Slots(self.queues, pod.capacity)
        self._control = Control(
            self.settings,
            app.connect_to,
            slots,
            self,
            queues=self.queues,
            kinds=sorted(app.handlers),
            exits=self._exits(),
            clock=app.clock,
            tell=tell,
        )
        membership = self._membership = self._control.membership
        self._progress = ProgressWriter(app.jobs, membership, tell)
        self._hooks = Hooks(app.hooks, tell)
        self._shared = Shared(
            app=app,
            database=app.database,
            jobs=app.jobs,
            membership=membership,
            slots=slots,
            nudge=self._control.nudge,
            lanes=pod.lanes,
            clock=app.clock,
            tell=tell,
            progress=self._progress,
            started=self._hooks.started,
            ended=self._note_ended,
        )
        self._shared.settler = Settler(
            app.jobs,
            membership,
            self._shared.known_batches,
            self._shared.unused_batch,
            self._shared.under_way,
            pod.ttl,
            tell,
        )
        worker = Worker(
            threads=threads,
            processes=processes,
            middleware=app.middleware,
            telemetry=app.telemetry,
            max_result=job.max_payload,
        )
        for queue in self.queues:
            self._shared.claimers[queue] = Claimer(queue, app.handlers, worker, self._shared)
        self._solitude = Solitude(self._shared, slots, self._all_idle, tell)
        self._services: list[Service | Claimer] = [
            self._shared.settler,
            self._solitude,
            self._progress,
            self._hooks,
            *self._shared.claimers.values(),
        ]

    def _exits(self) -> bool:
        """Whether a pod that cannot stop its handlers in time ends its process."""
        wish = self.settings.pod.fence
        if wish == "auto":
            threads = any(not handler.is_async for handler in self.app.handlers.values())
            return threads or under_kubernetes()
        return wish == "exit"

    async def _declare_queues(self) -> None:
        """Create the queues' rows with the code's defaults, where there are none yet."""
        otherwise = QueueDefaults(self.settings.job.max_workers)
        defaults = {queue: self.app.declared_queues.get(queue, otherwise) for queue in self.queues}
        await Queues(self.app.database).declare_queues(
            {
                queue: (default.max_workers, default.retry.to_json() if default.retry else None)
                for queue, default in defaults.items()
            }
        )

    def heed(self, answer: BeatAnswer, heeded: Heeded) -> None:
        """Take up what a beat's answer says."""
        claimers = self._shared.claimers
        for queue, terms in (answer.terms or {}).items():
            claimers[queue].heed(terms)
        for queue in (*heeded.raised, *heeded.lowered):
            self._tell(SlotsChanged(queue, claimers[queue].target))
        for queue in {*answer.ready, *heeded.raised}:
            claimers[queue].wake()
        for job in answer.cancels:
            self.cancel(job)
        if answer.lone is not None:
            self._solitude.hear(answer.lone)
        if answer.draining:
            self._drain_asked.set()

    def wake(self, queue: str) -> None:
        """There may be ready jobs in a queue."""
        if queue in self._shared.claimers:
            self._shared.claimers[queue].wake()

    def cancel(self, job: int) -> None:
        """Stop a job if it runs here."""
        for claimer in self._shared.claimers.values():
            claimer.cancel(job)

    def listens(self, works: bool) -> None:
        """Notices arrive from here on, or do not; either way some may have been missed."""
        for claimer in self._shared.claimers.values():
            claimer.wake()

    def stop_all(self) -> None:
        """Stop what runs: it may be given to others."""
        for claimer in self._shared.claimers.values():
            claimer.stop_all(STOPPED_BY_FENCE)

    def running(self) -> int:
        """How many handlers have not ended; may be asked from any thread."""
        return sum(claimer.unended for claimer in self._shared.claimers.values())

    async def stopped(self) -> None:
        """This boot is over: stop what runs and hand it back before a new one begins."""
        self.stop_all()
        await self._all_idle()

    def _note_ended(self, queue: str, runs: Sequence[Context]) -> None:
        self._ended += len(runs)
        self._hooks.ended(queue, runs)

    async def _drain(self) -> None:
        """Claim nothing new, let what runs finish within the grace time, release the rest, leave."""
        claimers = self._shared.claimers.values()
        grace = self.settings.pod.grace
        self._shared.draining = True
        self._shared.slots.close()
        self._tell(PodDraining(sum(claimer.running for claimer in claimers), grace))
        began = self.app.clock.monotonic()
        await _attempt(self._control.drain(), _LAST_WAIT)
        await _attempt(self._all_idle(), grace - (self.app.clock.monotonic() - began))
        released = sum(claimer.stop_all(STOPPED_BY_DRAIN) for claimer in claimers)
        # With a grace of 25 s the two waits fit into Kubernetes' 30.
        clean = await _attempt(self._leave(), _LAST_WAIT)
        await _attempt(self._hooks.flush(), _HOOKS_WAIT)
        self._tell(PodLeft(bool(clean), released))

    async def _leave(self) -> bool:
        """Pointless before all is idle: the row of a pod that still runs something must expire."""
        await self._all_idle()
        return await self._control.leave()

    async def _all_idle(self) -> None:
        for claimer in self._shared.claimers.values():
            await claimer.idle()


async def _attempt(work: Awaitable[Any], seconds: float) -> Any:
    """One step of leaving: what cannot be done in time, or at all, must not hold up the rest."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except (TimeoutError, StorageError):
        return None
