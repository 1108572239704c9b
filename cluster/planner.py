"""The plan: which pod ought to have how many slots of which queue. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.words import PodId, QueueName

from .crowd import settle
from .rounding import rounded
from .shares import Demand, spread
from .view import ClusterView, PodView

Plan = Mapping[QueueName, Mapping[PodId, int]]
"""Slots by queue and pod: every queue of the view, and its pods that get at least one."""


def plan(view: ClusterView) -> Plan:
    """The targets that the cluster ought to come to, however slots have to be handed over."""
    pods = _in_order(view.pods)
    queues = sorted(view.queues, key=lambda queue: queue.name)
    groups = _alike(pods)
    rooms = [
        {n: room for n, group in enumerate(groups) if (room := pods[group[0]].room_for(queue.name)) > 0}
        for queue in queues
    ]
    now = _now(view, {pod.id: number for number, pod in enumerate(pods)})
    before = [now.get(queue.name, {}) for queue in queues]

    demands = [
        Demand(queue.cap, {n: room * len(groups[n]) for n, room in room_in.items()})
        for queue, room_in in zip(queues, rooms, strict=True)
    ]
    capacity = [pods[group[0]].capacity * len(group) for group in groups]
    pieces = settle(
        demands,
        [spread(demand.total, demand.rooms, capacity) for demand in demands],
        capacity,
        lambda queue: {
            n: sum(min(room, before[queue].get(pod, 0)) for pod in groups[n])
            for n, room in rooms[queue].items()
        },
    )
    whose = [queue for queue, shares in enumerate(pieces) for _ in shares]
    slots = rounded(
        [share for shares in pieces for share in shares], groups, [before[queue] for queue in whose]
    )
    targets: dict[QueueName, dict[PodId, int]] = {queue.name: {} for queue in queues}
    for queue, row in zip(whose, slots, strict=True):
        targets[queues[queue].name] |= {pods[number].id: count for number, count in row.items()}
    return targets


def _in_order(pods: Sequence[PodView]) -> list[PodView]:
    """Pods that may have slots; of equals, the first in this order gets the odd one.

    The version that was joined last comes first, so that a slot which has to move during a rollout
    moves to a pod that stays.
    """
    live = [pod for pod in pods if not pod.draining]
    since: dict[str, int] = {}
    for pod in live:
        since[pod.version] = max(pod.joined, since.get(pod.version, pod.joined))
    return sorted(live, key=lambda pod: (-since[pod.version], pod.version, pod.joined, pod.id))


def _alike(pods: Sequence[PodView]) -> list[list[int]]:
    """The pods by number, in groups of the same capacity and the same room for the same queues."""
    groups: dict[object, list[int]] = {}
    for number, pod in enumerate(pods):
        like = (pod.queues, pod.capacity, tuple(sorted(pod.capacities.items())))
        groups.setdefault(like, []).append(number)
    return list(groups.values())


def _now(view: ClusterView, number: Mapping[PodId, int]) -> dict[QueueName, dict[int, int]]:
    """What pods have now: their targets, or what they hold where all targets are 0 for a while."""
    planned = {queue for (queue, _), row in view.assignments.items() if row.target}
    now: dict[QueueName, dict[int, int]] = {}
    for (queue, pod), row in view.assignments.items():
        slots = row.target if queue in planned else row.held
        if slots and pod in number:
            now.setdefault(queue, {})[number[pod]] = slots
    return now
