"""ClusterView: queues, pods and assignments as one immutable picture. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.words import PodId, QueueName


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as the planner sees it."""

    name: QueueName
    max_workers: int
    paused: bool = False
    pending: bool = False
    """Whether a lowered cap is not yet in force."""

    @property
    def cap(self) -> int:
        """How many may run at once; a paused queue counts as 0."""
        return 0 if self.paused else self.max_workers


@dataclass(frozen=True, slots=True)
class PodView:
    """A live pod; `joined` orders pods by when they registered."""

    id: PodId
    queues: frozenset[QueueName]
    capacity: int
    draining: bool = False
    version: str = ""
    joined: int = 0
    capacities: Mapping[QueueName, int] = field(default_factory=dict)
    """Where the pod bounds single queues below its capacity."""

    def room_for(self, queue: QueueName) -> int:
        """The most slots of this queue the pod can have; 0 when it does not serve it or drains."""
        if self.draining or queue not in self.queues:
            return 0
        return min(self.capacity, self.capacities.get(queue, self.capacity))


class Assignment(NamedTuple):
    """What one pod has of one queue; a pair without a row is all zeros.

    `target` is what the leader wants the pod to have, `acting` the greatest target it may be acting
    on, and `held` the most it may be using: 0 <= target <= acting <= held.
    """

    target: int = 0
    held: int = 0
    acting: int = 0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All that a plan is made from."""

    queues: tuple[QueueView, ...] = ()
    pods: tuple[PodView, ...] = ()
    assignments: Mapping[tuple[QueueName, PodId], Assignment] = field(default_factory=dict)


class Picture(NamedTuple):
    """A view with what people want to know beside it: its pods' names, and which have expired unremoved."""

    view: ClusterView
    names: Mapping[PodId, str] = {}
    silent: frozenset[PodId] = frozenset()
