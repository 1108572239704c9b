"""This pod in the cluster: register, beat, drain, leave.

Trust is counted from before the question was asked: a pod that has heard nothing for half
its TTL starts nothing, and at 0.7 of it stops what runs, before others are given its jobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from rota.clock import Clock
from rota.events import PodRegistered, Tell
from rota.settings import PodSettings
from rota.words import Incarnation, PodId

from ..storage.pods import Pods
from ..storage.rows import BeatAnswer

_NAMESPACE = uuid.UUID("6b1f3c52-8f4e-5d0a-9b57-2f0f6d1c9a44")


class Membership:
    """One boot after the other of one pod id."""

    def __init__(
        self,
        pods: Pods,
        terms: PodSettings,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        max_rescues: int,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._pods = pods
        self._terms = terms
        self._queues = queues
        self._kinds = kinds
        self._max_rescues = max_rescues
        self._clock = clock
        self._tell = tell
        self.pod = identity(terms)
        self.name = label(terms, self.pod)
        self.incarnation = Incarnation(0)
        self._heard_at = float("-inf")

    @property
    def trusted(self) -> bool:
        """Whether this pod may still start jobs."""
        return self._clock.monotonic() < self._heard_at + 0.5 * self._terms.ttl

    @property
    def fence_in(self) -> float:
        """Seconds until this pod must stop what it runs, unless a beat is answered before."""
        return self._heard_at + 0.7 * self._terms.ttl - self._clock.monotonic()

    async def register(self) -> None:
        """Begin a boot; an earlier one of this id is retired and its jobs recovered."""
        asked_at = self._clock.monotonic()
        self.incarnation = await self._pods.register_pod(
            self.pod,
            name=self.name,
            queues=self._queues,
            kinds=self._kinds,
            capacity=self._terms.capacity,
            zone=self._terms.zone,
            version=self._terms.version,
            ttl=self._terms.ttl,
            max_rescues=self._max_rescues,
        )
        self._heard_at = asked_at
        self._tell(PodRegistered(self.pod, self.incarnation, self.name, self._queues))

    async def beat(self) -> BeatAnswer | None:
        """One round trip; None when this boot is over: expired, or retired by a later one."""
        asked_at = self._clock.monotonic()
        answer = await self._pods.beat(self.pod, self.incarnation, self._terms.ttl)
        if answer is not None:
            self._heard_at = asked_at
        return answer

    async def drain(self) -> bool:
        return await self._pods.drain_pod(self.pod, self.incarnation)

    async def leave(self) -> bool:
        """Give the row up; False when jobs still run here and it is left to expire."""
        return await self._pods.leave_pod(self.pod, self.incarnation)


def identity(terms: PodSettings) -> PodId:
    """Kubernetes' pod UID and the container, else random; never a name, which another may bear."""
    if terms.uid:
        return PodId(uuid.uuid5(_NAMESPACE, f"{terms.uid}/{terms.container}"))
    return PodId(uuid.uuid4())


def label(terms: PodSettings, pod: PodId) -> str:
    """`{prefix}-worker-{version}-{id}`, the version left out when there is none."""
    parts = [terms.prefix, "worker", terms.version, terms.id or pod.hex[:4]]
    return "-".join(part for part in parts if part)
