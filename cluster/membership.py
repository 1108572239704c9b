"""This pod in the cluster: register, beat, drain, leave.

Trust is counted from before the question was asked: a pod that has heard nothing for half its TTL
starts nothing, and at 0.7 of it stops what runs, before others are given its jobs. A boot that was
fenced never beats again: once its handlers have ended, a new boot begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rota.clock import Clock
from rota.errors import PodRetired, PodTwin
from rota.events import PodFenced, PodRegistered, PodWaits, Tell
from rota.settings import PodSettings
from rota.words import Incarnation

from ..storage.pods import Pods
from ..storage.rows import BeatAnswer, Boot
from .identity import identity, label, machine
from .slots import Heeded, Slots

TRUST, FENCE, DEADLINE = 0.5, 0.7, 0.9
"""Parts of the TTL after which a pod starts nothing, stops what runs, and must not run any more."""


class Membership:
    """One boot after the other of one pod id."""

    def __init__(
        self,
        pods: Pods,
        terms: PodSettings,
        slots: Slots,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        max_rescues: int,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._pods = pods
        self._terms = terms
        self._slots = slots
        self._queues = queues
        self._kinds = kinds
        self._max_rescues = max_rescues
        self._clock = clock
        self._tell = tell
        self.pod = identity(terms)
        self.name = label(terms, self.pod)
        self.incarnation = Incarnation(0)
        self.fenced = False
        self.left = False
        self._machine = machine()
        self._heard_at = float("-inf")
        self._digest = ""
        self._sharing = True

    @property
    def trusted(self) -> bool:
        """Whether this pod may still start jobs."""
        return not self.fenced and self._since_heard() < TRUST * self._terms.ttl

    @property
    def fence_in(self) -> float:
        """Seconds until this pod must stop what it runs, unless a beat is answered before."""
        return FENCE * self._terms.ttl - self._since_heard()

    @property
    def deadline_in(self) -> float:
        """Seconds until nothing may run here any more."""
        return DEADLINE * self._terms.ttl - self._since_heard()

    def fence(self) -> None:
        """This boot starts nothing and beats no more."""
        if not self.fenced:
            self.fenced = True
            self._tell(PodFenced(self._since_heard()))

    async def register(self) -> None:
        """Begin a boot in place of the last one of this id, whose jobs are recovered.

        Nothing of an earlier boot of this process may be running.
        """
        outwaited = None
        while True:
            asked_at = self._clock.monotonic()
            found, boot = await self._replace()
            if boot.incarnation is not None:
                break
            if boot.wait_in is not None:
                if outwaited == found:
                    raise PodTwin(
                        "Another machine runs a pod of this UID; give each pod its own ROTA_POD_UID "
                        "(in Kubernetes metadata.uid, by the downward API)."
                    )
                outwaited = found
                self._tell(PodWaits(boot.wait_in))
                await asyncio.sleep(boot.wait_in)
        self.incarnation = boot.incarnation
        self._heard_at = asked_at
        self._sharing = True
        self._slots.begin()
        self.fenced = False
        self._tell(PodRegistered(self.pod, self.incarnation, self.name, self._queues))

    async def beat(self) -> tuple[BeatAnswer, Heeded] | None:
        """One round trip; None when this boot is over: expired, or fenced while it waited."""
        asked_at = self._clock.monotonic()
        report = self._slots.report(sharing=self._sharing, digest=self._digest)
        answer = await self._pods.beat(self.pod, self.incarnation, report)
        if answer is None or self.fenced:
            return None
        self._heard_at = asked_at
        self._digest = answer.digest
        # With a leader about, the rest is planned; without one, a share is taken when some is free.
        self._sharing = answer.lease_in == 0
        return answer, self._slots.heed(answer.timeline, answer.answer, answer.targets)

    async def drain(self) -> bool:
        return await self._pods.drain_pod(self.pod, self.incarnation)

    async def leave(self) -> bool:
        """Give the row up; False when jobs still run here and it is left to expire."""
        # Said before, since a beat under way must not take the missing row for an expired one.
        self.left = True
        try:
            self.left = await self._pods.leave_pod(self.pod, self.incarnation)
        except BaseException:
            self.left = False
            raise
        return self.left

    async def _replace(self) -> tuple[Incarnation, Boot]:
        """Try to take the place of the boot that is registered now, if there is one."""
        found = await self._pods.read_incarnation(self.pod)
        if self.incarnation and found > self.incarnation:
            raise PodRetired("A later boot of this pod has taken its place; this one ends.")
        boot = await self._pods.register_pod(
            self.pod,
            replaces=found,
            machine=self._machine,
            name=self.name,
            queues=self._queues,
            kinds=self._kinds,
            capacity=self._terms.capacity,
            capacities=self._terms.capacities,
            zone=self._terms.zone,
            version=self._terms.version,
            ttl=self._terms.ttl,
            max_rescues=self._max_rescues,
        )
        return found, boot

    def _since_heard(self) -> float:
        return 0.0 if self.left else self._clock.monotonic() - self._heard_at
