"""The plan: which pod ought to have how many slots of which queue. Pure.

    view -> shares.py (crowd.py) -> rounding.py (levelling.py) -> plan

First the ideal is reckoned, in fractions: a queue spreads over its pods in proportion to their
capacity, within the room each has for it. Then it is rounded to whole slots in the way that takes
the fewest away. How slots are handed over is not decided here. What a plan promises, the first
before the second where both cannot be had (docs/decisions/0006-the-planner.md has the cases):

1. Possible: no pod gets more than its capacity or, of a queue, than its room; no queue more than
   its cap. Draining pods and paused queues get nothing.
2. Complete: every queue gets its cap, or all the room there is. Where queues compete, as many slots
   are granted as can be, and the queues' totals are as equal as they can be (max-min).
3. Fair: a pod's slots of a queue are its exact share, rounded up or down. Where queues compete
   that holds of pods that have room; a full one may have less.
4. Level: a pod's slots in all are its exact shares' sum, rounded up or down. So pods that are alike
   differ by at most 1, and queues of one worker do not pile up on one pod.
5. Sticky: of all plans with the same shares none takes fewer slots away from pods. Where queues
   compete the shares themselves follow what pods have, which comes near to that and no further.
   A plan that was carried out is never changed.
6. Newest first: what is still open goes to the version that joined last, then to the oldest pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.words import PodId, QueueName

from .crowd import settle
from .rounding import rounded
from .shares import Demand
from .view import ClusterView, PodView

Plan = Mapping[QueueName, Mapping[PodId, int]]
"""Slots by queue and pod: every queue of the view, and its pods that get at least one."""


def plan(view: ClusterView) -> Plan:
    """The targets that the cluster ought to come to."""
    pods = _in_order(view.pods)
    queues = sorted(view.queues, key=lambda queue: queue.name)
    now = _now(view, {pod.id: number for number, pod in enumerate(pods)})
    before = [now.get(queue.name, {}) for queue in queues]
    groups = _alike(pods)
    rooms = [
        {n: room for n, group in enumerate(groups) if (room := pods[group[0]].room_for(queue.name)) > 0}
        for queue in queues
    ]

    def had(queue: int) -> dict[int, int]:
        return {
            group: sum(min(room, before[queue].get(pod, 0)) for pod in groups[group])
            for group, room in rooms[queue].items()
        }

    demands = [
        Demand(queue.cap, {group: room * len(groups[group]) for group, room in row.items()})
        for queue, row in zip(queues, rooms, strict=True)
    ]
    pieces = settle(demands, [pods[group[0]].capacity * len(group) for group in groups], had)
    slots = rounded([share for _, share in pieces], groups, [before[queue] for queue, _ in pieces])
    targets: dict[QueueName, dict[PodId, int]] = {queue.name: {} for queue in queues}
    for (queue, _), row in zip(pieces, slots, strict=True):
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
