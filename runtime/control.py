"""The pod's second thread, for what must not wait for handlers: beat, fence, notices and the lease.

It has a loop and connections of its own. What it hears for the handlers' loop it passes on with
`call_soon_threadsafe`; the slots, which both threads use, have a lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from rota.clock import Clock
from rota.errors import Conflict, DatabaseUnavailable
from rota.events import NobodyLeads, RoleUnbounded, Tell
from rota.service import Patience, Service
from rota.settings import Settings

from ..cluster.identity import MachineLock
from ..cluster.leader import Lead, Leader
from ..cluster.membership import Membership
from ..cluster.rebalancer import Rebalancer
from ..cluster.slots import Heeded, Slots
from ..storage.assignments import Assignments
from ..storage.jobs import Jobs
from ..storage.leases import Leases
from ..storage.pods import Pods
from ..storage.pool import Database
from ..storage.rows import BeatAnswer
from .heart import Fence, Heart
from .janitor import Janitor
from .listener import Listener
from .lookout import Lookout
from .promoter import LONGEST_SLEEP, Promoter

T = TypeVar("T")


class Handlers(Protocol):
    """The handlers' side, as the control thread sees it; all but `running` is called on their loop."""

    def heed(self, answer: BeatAnswer, heeded: Heeded) -> None:
        """Take up what a beat's answer says."""

    def wake(self, queue: str) -> None:
        """There may be ready jobs in a queue."""

    def cancel(self, job: int) -> None:
        """Stop a job if it runs here."""

    def listens(self, works: bool) -> None:
        """Notices arrive from here on, or do not."""

    def stop_all(self) -> None:
        """Stop what runs: it may be given to others."""

    def running(self) -> int:
        """How many handlers have not ended; the one call that any thread may make."""

    async def stopped(self) -> None:
        """Stop what runs and return when it has ended and been handed back."""


class Control:
    """One pod's control thread, from registering to leaving."""

    def __init__(
        self,
        settings: Settings,
        connect: Callable[..., Database],
        slots: Slots,
        handlers: Handlers,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        exits: bool,
        clock: Clock,
        tell: Tell,
    ) -> None:
        pod = settings.pod
        # An unanswered beat is given up soon enough for two more before the fence.
        soon = max(pod.ttl / 5, 1.5)
        self._beating = connect(pool_size=1, command_timeout=soon, connect_timeout=soon)
        self._leading = connect(pool_size=3, command_timeout=settings.lease.ttl)
        self._settings = settings
        self._slots = slots
        self._handlers = handlers
        self._clock = clock
        self._main = asyncio.get_running_loop()
        last_words, tell = tell, partial(self._pass_on, tell)
        self._tell = tell
        self.membership = Membership(
            Pods(self._beating),
            pod,
            slots,
            queues=queues,
            kinds=kinds,
            max_rescues=settings.job.max_rescues,
            clock=clock,
            tell=tell,
        )
        self.heart = Heart(
            self.membership, every=pod.beat, answered=self._answered, over=self._boot_is_over, tell=tell
        )
        self.fence = Fence(
            self.membership,
            ttl=pod.ttl,
            exits=exits,
            stop_all=self._stop_all,
            running=handlers.running,
            tell=tell,
            last_words=last_words,
        )
        self.leader = Leader(
            self.membership.pod,
            Leases(self._leading),
            settings.lease,
            standing=Leases(self._beating),
            pod_ttl=pod.ttl,
            duties=self._duties,
            clock=clock,
            tell=tell,
        )
        self.listener = Listener(self._beating, self._receive, self._listen_changed, tell)
        self.listening = False
        self._rebalancer: Rebalancer | None = None
        self._promoter: Promoter | None = None
        self._woken: set[str] = set()
        self._leaderless_since: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stopped = False
        self._registered: Future[None] = Future()
        self._ended: Future[None] = Future()
        for future in (self._registered, self._ended):
            future.set_running_or_notify_cancel()  # whoever stops waiting for it does not cancel it
        self._thread = threading.Thread(target=self._run, name="rota-control", daemon=True)

    @property
    def services(self) -> list[Service]:
        """What runs on this thread whoever leads."""
        return [self.heart, self.fence, self.listener, *([self.leader] if self._settings.lead else [])]

    async def start(self) -> None:
        """Begin; returns when the pod is registered."""
        self._thread.start()
        await asyncio.wrap_future(self._registered)

    async def ended(self) -> None:
        """Return when the thread has ended, or raise what ended it."""
        await asyncio.wrap_future(self._ended)

    async def stop(self) -> None:
        """End the thread, wherever it is; what it knows of others it forgets, its row stays as it is."""
        self._stopped = True
        if self._loop is not None and self._serving is not None:
            with suppress(RuntimeError):  # it may have ended just now
                self._loop.call_soon_threadsafe(self._serving.cancel)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def nudge(self) -> None:
        """Beat now; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.heart.nudge)

    async def drain(self) -> None:
        """Say that this pod drains until it is heard, since its jobs then lose no attempt; resign."""
        await self._call(self._say_draining())

    async def leave(self) -> bool:
        """Give the row up; False when jobs still run here and it is left to expire."""
        left = await self._call(self.membership.leave())
        self.fence.disarm()
        return left

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the control thread."""
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except asyncio.CancelledError:
            self._ended.set_result(None)  # it was stopped
        except BaseException as error:  # carried over to the handlers' loop
            failed = self._ended if self._registered.done() else self._registered
            failed.set_exception(error)
            if failed is self._registered:
                self._ended.set_result(None)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop, self._serving = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopped:
            return
        with MachineLock(self.membership.pod):
            try:
                await self._beating.open(direct=True)
                await self._leading.open(at_least=0, direct=True)
                if missing := await Pods(self._beating).missing_timeouts():
                    self._tell(RoleUnbounded(missing))
                await self.membership.register()
                self._registered.set_result(None)
                async with asyncio.TaskGroup() as group:
                    for service in self.services:
                        group.create_task(service.run())
            finally:
                self.fence.disarm()
                await self._beating.close()
                await self._leading.close()

    def _duties(self, lead: Lead) -> list[Service]:
        """What a leader does."""
        settings, clock, tell = self._settings, self._clock, self._tell
        listening, poll = self.listening, settings.pod.poll
        self._rebalancer = Rebalancer(
            lead,
            Assignments(self._leading),
            every=settings.lease.plan if listening else min(settings.lease.plan, settings.pod.beat),
            tell=tell,
        )
        self._promoter = Promoter(
            lead,
            Jobs(self._leading),
            longest_sleep=LONGEST_SLEEP if listening else poll,
            clock=clock,
            tell=tell,
        )
        return [
            self._rebalancer,
            self._promoter,
            Janitor(
                lead,
                Pods(self._leading),
                every=settings.lease.plan,
                max_rescues=settings.job.max_rescues,
                clock=clock,
                tell=tell,
            ),
            Lookout(Jobs(self._leading), tell),
        ]

    def _answered(self, answer: BeatAnswer, heeded: Heeded) -> None:
        self.fence.beaten()
        self._watch_for_a_leader(answer.lease_in)
        self.leader.hear(answer.lease_in)
        self._pass_on(self._handlers.heed, answer, heeded)

    def _watch_for_a_leader(self, lease_in: float) -> None:
        """Tell once that nobody leads, where that lasts; no leader is missed for a lease's TTL or two."""
        now, patience = self._clock.monotonic(), 3 * self._settings.lease.ttl
        if lease_in > 0:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = now
        elif now - self._leaderless_since > patience:
            self._tell(NobodyLeads(now - self._leaderless_since))
            self._leaderless_since = float("inf")

    def _receive(self, word: str, subject: str) -> None:
        """Take in a notice; none is ever needed, each only makes things quicker."""
        match word:
            case "ready":
                # A burst of notices is one wake-up.
                if subject not in self._woken:
                    self._woken.add(subject)
                    self._pass_on(self._wake, subject)
            case "beat" if subject == "*" or str(self.membership.pod)[:13] in subject:
                self.heart.nudge()
            case "cancel" if subject.startswith(str(self.membership.pod)):
                self._pass_on(self._handlers.cancel, int(subject.partition(":")[2]))
            case "lease":
                self.leader.hear(0.0)
            case "plan" if self._rebalancer is not None and self.leader.leads:
                self._rebalancer.hear(subject)
            case "due" if self._promoter is not None and self.leader.leads:
                self._promoter.hear(float(subject))

    def _wake(self, queue: str) -> None:
        self._woken.discard(queue)
        self._handlers.wake(queue)

    def _listen_changed(self, works: bool) -> None:
        """Without notices, look often; after each (re)LISTEN act as if notified."""
        self.listening = works
        pod, lease = self._settings.pod, self._settings.lease
        self.heart.every = pod.beat if works else min(pod.beat, pod.poll)
        if self._rebalancer is not None and self._promoter is not None:
            self._rebalancer.every = lease.plan if works else min(lease.plan, pod.beat)
            self._rebalancer.hear("notices may have been missed")
            self._promoter.longest_sleep = LONGEST_SLEEP if works else pod.poll
            self._promoter.hear(0.0)
        self.heart.nudge()
        self._pass_on(self._handlers.listens, works)

    def _stop_all(self, taken_in: Callable[[], None]) -> None:
        def stop() -> None:
            self._handlers.stop_all()
            taken_in()

        self._pass_on(stop)

    async def _boot_is_over(self) -> None:
        """Everything has ended on the handlers' side when this returns."""
        ended = asyncio.run_coroutine_threadsafe(self._handlers.stopped(), self._main)
        await asyncio.wrap_future(ended)

    async def _say_draining(self) -> None:
        patience = Patience("saying that this pod drains", self._tell)
        while True:
            try:
                await self.membership.drain()
                break
            except (DatabaseUnavailable, Conflict) as error:
                await patience.wait(error)
        await self.leader.retire()

    def _pass_on(self, call: Callable[..., object], *arguments: Any) -> None:
        if not self._main.is_closed():
            self._main.call_soon_threadsafe(call, *arguments)
