"""What a plan ought to be, found the slow and plain way. Shares no code with the planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor

from rota.cluster.planner import Plan
from rota.cluster.view import ClusterView, QueueView
from rota.words import PodId, QueueName

Shares = dict[QueueName, dict[PodId, Fraction]]
Given = dict[tuple[QueueName, PodId], int]


def fair_totals(view: ClusterView) -> dict[QueueName, int]:
    """Slot by slot, each to the poorest queue that can have one more."""
    given: Given = {}
    totals = {queue.name: 0 for queue in view.queues}
    growing = {queue.name: queue.cap for queue in view.queues}
    while growing:
        poorest = min(growing, key=lambda name: (totals[name], name))
        if totals[poorest] < growing[poorest] and _add_one(view, given, poorest):
            totals[poorest] += 1
        else:
            del growing[poorest]
    return totals


def _add_one(view: ClusterView, given: Given, queue: QueueName) -> bool:
    """Place one slot more, moving others out of the way: Ford and Fulkerson, one slot at a time."""
    ahead: list[tuple[QueueName, Given]] = [(queue, {})]
    tried: set[PodId] = set()
    for name, moves in ahead:
        for pod in view.pods:
            if pod.id in tried or given.get((name, pod.id), 0) >= pod.room_for(name):
                continue
            tried.add(pod.id)
            so_far = moves | {(name, pod.id): 1}
            if sum(slots for (_, at), slots in given.items() if at == pod.id) < pod.capacity:
                for pair, step in so_far.items():
                    given[pair] = given.get(pair, 0) + step
                return True
            ahead += [
                (other, so_far | {(other, at): -1})
                for (other, at), slots in given.items()
                if at == pod.id and slots and other != name
            ]
    return False


def exact_shares(view: ClusterView) -> Shares:
    """Every queue's cap over its pods in proportion to capacity, none above its room."""
    return {queue.name: _spread(view, queue) for queue in view.queues}


def _spread(view: ClusterView, queue: QueueView) -> dict[PodId, Fraction]:
    shares: dict[PodId, Fraction] = {}
    pods = [pod for pod in view.pods if pod.room_for(queue.name) > 0]
    weight = sum(pod.capacity for pod in pods)
    rest = Fraction(min(queue.cap, sum(pod.room_for(queue.name) for pod in pods)))
    for pod in sorted(pods, key=lambda pod: Fraction(pod.room_for(queue.name), pod.capacity)):
        shares[pod.id] = min(Fraction(pod.room_for(queue.name)), rest * pod.capacity / weight)
        rest -= shares[pod.id]
        weight -= pod.capacity
    return shares


def pod_totals(shares: Shares) -> dict[PodId, Fraction]:
    totals: dict[PodId, Fraction] = {}
    for row in shares.values():
        for pod, share in row.items():
            totals[pod] = totals.get(pod, Fraction(0)) + share
    return totals


def fits(view: ClusterView) -> bool:
    """Whether every queue can have its exact shares."""
    totals = pod_totals(exact_shares(view))
    return all(totals.get(pod.id, 0) <= pod.capacity for pod in view.pods)


def least_revoked(shares: Shares, before: Plan) -> int:
    """The fewest slots that any plan revokes in which every share and every pod's total is rounded."""
    totals = pod_totals(shares)
    order = sorted(totals)
    cheapest = {(0,) * len(order): 0}
    for queue, row in shares.items():
        had = before.get(queue, {})
        following: dict[tuple[int, ...], int] = {}
        for slots in _roundings(row):
            cost = sum(max(0, had.get(pod, 0) - slots[pod]) for pod in row)
            for sums, so_far in cheapest.items():
                added = tuple(sums[place] + slots.get(pod, 0) for place, pod in enumerate(order))
                following[added] = min(following.get(added, so_far + cost), so_far + cost)
        cheapest = following
    gone = sum(
        slots for queue, row in before.items() for pod, slots in row.items() if pod not in shares[queue]
    )
    return gone + min(
        cost
        for sums, cost in cheapest.items()
        if all(
            floor(totals[pod]) <= slots <= ceil(totals[pod]) for pod, slots in zip(order, sums, strict=True)
        )
    )


def _roundings(row: dict[PodId, Fraction]) -> Iterator[dict[PodId, int]]:
    for slots in product(*(sorted({floor(share), ceil(share)}) for share in row.values())):
        if sum(slots) == sum(row.values()):
            yield dict(zip(row, slots, strict=True))


def least_revoked_in_a_crowd(view: ClusterView, before: Plan) -> int:
    """The fewest slots that any plan at all revokes which keeps the claims made of crowded clusters."""
    names, pods = [queue.name for queue in view.queues], view.pods
    fair = sorted(fair_totals(view).values())
    rows = [
        [
            row
            for row in product(*(range(pod.room_for(queue.name) + 1) for pod in pods))
            if sum(row) <= queue.cap
        ]
        for queue in view.queues
    ]
    gone = sum(
        slots for row in before.values() for pod, slots in row.items() if pod not in {one.id for one in pods}
    )
    return gone + min(
        sum(
            max(0, before.get(name, {}).get(pod.id, 0) - slots)
            for name, row in zip(names, table, strict=True)
            for pod, slots in zip(pods, row, strict=True)
        )
        for table in product(*rows)
        if sorted(map(sum, table)) == fair and _keeps_the_claims(view, table)
    )


def _keeps_the_claims(view: ClusterView, table: Sequence[Sequence[int]]) -> bool:
    sums = [sum(column) for column in zip(*table, strict=True)]
    if any(slots > pod.capacity for slots, pod in zip(sums, view.pods, strict=True)):
        return False
    for one, first in enumerate(view.pods):
        for other, second in enumerate(view.pods):
            same = (first.queues, first.capacity, first.capacities, first.draining) == (
                second.queues,
                second.capacity,
                second.capacities,
                second.draining,
            )
            if same and sums[one] > sums[other] + 1:
                return False
            for queue, row in zip(view.queues, table, strict=True):
                if same and row[one] > row[other] + 1:
                    return False
                room = row[other] < second.room_for(queue.name) and sums[other] < second.capacity
                if (
                    room
                    and row[one]
                    and (row[one] - 1) * second.capacity >= (row[other] + 1) * first.capacity
                ):
                    return False
    return True
