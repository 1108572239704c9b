"""A pod: one replica process, all its services, from register to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rota.errors import BadInput, BadSettings, Conflict, DatabaseUnavailable, StorageError
from rota.events import PodDraining, PodLeft
from rota.settings import PodSettings, check_name

from ..cluster.membership import Membership
from ..storage.jobs import Jobs
from ..storage.pods import Pods
from ..storage.pool import Database
from ..storage.queues import Queues
from ..storage.rows import BeatAnswer
from .app import App, QueueDefaults
from .claimer import Claimer
from .context import Context
from .heart import Fence, Heart
from .hooks import Hooks
from .janitor import Janitor
from .listener import Listener
from .lookout import Lookout
from .processes import Processes
from .progress import ProgressWriter
from .promoter import Promoter
from .service import Patience, Service
from .settler import Settler
from .shared import Shared
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
        self._listening = False
        self._ended = 0
        self._running = False
        self.started = asyncio.Event()

    def status(self) -> PodStatus:
        """How it stands right now."""
        return PodStatus(
            self._membership.name,
            self._listening,
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
        # Beat and rescue have connections of their own: a busy pool cannot starve them.
        control = self.app.connect_to(pool_size=2, command_timeout=min(pod.ttl, 10.0))
        await control.open()
        threads = ThreadPoolExecutor(pod.capacity, thread_name_prefix="rota-handler")
        processes = Processes(pod.processes)
        try:
            self._build(control, threads, processes)
            await self._declare_queues(control)
            await self._membership.register()
            await self._run_services(stop)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            processes.close()
            await control.close()

    async def _run_services(self, stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(service.run()) for service in self._services]
                self.started.set()
                await stop.wait()
                await self._drain()
                for task in tasks:
                    task.cancel()
        finally:
            # Nothing is left to stop after a drain; a pod that fails takes its handlers along.
            for claimer in self._shared.claimers.values():
                claimer.stop_all(STOPPED_BY_DRAIN)

    def _build(self, control: Database, threads: ThreadPoolExecutor, processes: Processes) -> None:
        """Make the services; nothing runs yet."""
        app, pod, job, tell = self.app, self.settings.pod, self.settings.job, self._tell
        kinds = sorted(app.handlers)
        self._membership = Membership(
            Pods(control),
            pod,
            queues=self.queues,
            kinds=kinds,
            max_rescues=job.max_rescues,
            clock=app.clock,
            tell=tell,
        )
        self._progress = ProgressWriter(app.jobs, self._membership, tell)
        self._hooks = Hooks(app.hooks, tell)
        self._shared = Shared(
            app=app,
            database=app.database,
            jobs=app.jobs,
            membership=self._membership,
            capacity=pod.capacity,
            lanes=pod.lanes,
            clock=app.clock,
            tell=tell,
            progress=self._progress,
            started=self._hooks.started,
            ended=self._note_ended,
        )
        self._shared.settler = Settler(
            Jobs(control),
            self._membership,
            self._shared.known_batches,
            self._shared.unused_batch,
            self._shared.under_way,
            pod.ttl,
            tell,
        )
        self._promoter = Promoter(app.jobs, app.clock, tell)
        worker = Worker(
            threads=threads,
            processes=processes,
            middleware=app.middleware,
            telemetry=app.telemetry,
            max_result=job.max_payload,
        )
        for queue in self.queues:
            self._shared.claimers[queue] = Claimer(queue, app.handlers, worker, self._shared)
        self._heart = Heart(
            self._membership, every=pod.beat, answered=self._heed, over=self._boot_is_over, tell=tell
        )
        self._services: list[Service | Claimer] = [
            self._heart,
            Fence(self._membership, stop_all=self._fence, tell=tell),
            Listener(app.database, self._receive, self._listen_changed, tell),
            Janitor(Pods(control), every=pod.ttl / 3, max_rescues=job.max_rescues, tell=tell),
            Lookout(app.jobs, self.queues, tell),
            self._promoter,
            self._shared.settler,
            self._progress,
            self._hooks,
            *self._shared.claimers.values(),
        ]

    async def _declare_queues(self, control: Database) -> None:
        """Create the queues' rows with the code's defaults, where there are none yet."""
        otherwise = QueueDefaults(self.settings.job.max_workers)
        defaults = {queue: self.app.declared_queues.get(queue, otherwise) for queue in self.queues}
        await Queues(control).declare_queues(
            {
                queue: (default.max_workers, default.retry.to_json() if default.retry else None)
                for queue, default in defaults.items()
            }
        )

    def _heed(self, answer: BeatAnswer) -> None:
        """Take up what a beat's answer says."""
        claimers = self._shared.claimers
        for queue, terms in answer.queues.items():
            claimers[queue].heed(terms)
        for queue in answer.ready:
            claimers[queue].wake()
        for job in answer.cancels:
            for claimer in claimers.values():
                claimer.cancel(job)

    def _receive(self, word: str, subject: str) -> None:
        """Take in a notice; none is ever needed, each only makes things quicker."""
        match word:
            case "ready" if subject in self._shared.claimers:
                self._shared.claimers[subject].wake()
            case "due":
                self._promoter.hear(float(subject))
            case "cancel":
                pod, _, job = subject.partition(":")
                if pod == str(self._membership.pod):
                    for claimer in self._shared.claimers.values():
                        claimer.cancel(int(job))

    def _listen_changed(self, works: bool) -> None:
        """Without notices, look often; after each (re)LISTEN act as if notified."""
        self._listening = works
        pod = self.settings.pod
        self._promoter.listens(works, pod.poll)
        self._heart.every = pod.beat if works else min(pod.beat, pod.poll)
        for claimer in self._shared.claimers.values():
            claimer.wake()

    def _note_ended(self, queue: str, runs: Sequence[Context]) -> None:
        self._ended += len(runs)
        self._hooks.ended(queue, runs)

    def _fence(self) -> None:
        for claimer in self._shared.claimers.values():
            claimer.stop_all(STOPPED_BY_FENCE)

    async def _boot_is_over(self) -> None:
        """This boot has expired: stop what runs and hand it back before a new one begins."""
        self._fence()
        for claimer in self._shared.claimers.values():
            await claimer.idle()

    async def _drain(self) -> None:
        """Claim nothing new, let what runs finish within the grace time, release the rest, leave."""
        claimers = self._shared.claimers.values()
        grace = self.settings.pod.grace
        self._shared.draining = True
        self._tell(PodDraining(sum(claimer.running for claimer in claimers), grace))
        began = self.app.clock.monotonic()
        await _attempt(self._say_draining(), _LAST_WAIT)
        await _attempt(self._all_idle(), grace - (self.app.clock.monotonic() - began))
        released = sum(claimer.stop_all(STOPPED_BY_DRAIN) for claimer in claimers)
        # With a grace of 25 s the two waits fit into Kubernetes' 30.
        clean = await _attempt(self._leave(), _LAST_WAIT)
        await _attempt(self._hooks.flush(), _HOOKS_WAIT)
        self._tell(PodLeft(bool(clean), released))

    async def _say_draining(self) -> None:
        """Said until it is heard: the jobs of a pod that drains are rescued without a loss."""
        patience = Patience("saying that this pod drains", self._tell)
        while True:
            try:
                await self._membership.drain()
            except (DatabaseUnavailable, Conflict) as error:
                await patience.wait(error)
            else:
                return

    async def _leave(self) -> bool:
        """Pointless before all is idle: the row of a pod that still runs something must expire."""
        await self._all_idle()
        return await self._membership.leave()

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
