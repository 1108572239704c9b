"""The planner by itself: how long a plan of 1,000 pods and 200 queues takes, and what it moves."""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import UUID

from rota.cluster.planner import plan
from rota.cluster.view import Assignment, ClusterView, PodView, QueueView
from rota.words import PodId, QueueName

PODS, QUEUES = 1_000, 200


def large_view(pods: int = PODS, queues: int = QUEUES) -> ClusterView:
    """All pods serve all queues; caps from 10 up."""
    names = [QueueName(f"q{number:03}") for number in range(queues)]
    served = frozenset(names)
    return ClusterView(
        tuple(QueueView(name, 10 + 7 * number) for number, name in enumerate(names)),
        tuple(PodView(PodId(UUID(int=number + 1)), served, 256, joined=number) for number in range(pods)),
    )


def planned(view: ClusterView) -> tuple[ClusterView, float]:
    """The view after its plan, and the seconds that took."""
    began = time.perf_counter()
    wanted = plan(view)
    took = time.perf_counter() - began
    rows = {
        (queue, pod): Assignment(slots, slots, slots)
        for queue, targets in wanted.items()
        for pod, slots in targets.items()
    }
    return replace(view, assignments=rows), took


def revoked(before: ClusterView, after: ClusterView) -> int:
    """Slots taken from pods that are still there."""
    there = {pod.id for pod in after.pods}
    return sum(
        max(0, row.target - after.assignments.get(key, Assignment()).target)
        for key, row in before.assignments.items()
        if key[1] in there
    )


def measure() -> dict[str, float]:
    """Seconds and moves, by name."""
    cold, took = planned(large_view())
    figures = {"cold start": took}
    total = sum(row.target for row in cold.assignments.values())
    newcomer = PodView(PodId(UUID(int=PODS + 1)), cold.pods[0].queues, 256, joined=PODS)
    joined, figures["one join"] = planned(replace(cold, pods=(*cold.pods, newcomer)))
    figures["moved on a join"] = revoked(cold, joined)
    figures["lower bound of a join"] = total // (PODS + 1)
    left, figures["one leave"] = planned(replace(cold, pods=cold.pods[1:]))
    figures["moved on a leave"] = revoked(cold, left)
    figures["lower bound of a leave"] = 0
    resized = replace(cold, queues=(replace(cold.queues[0], max_workers=500), *cold.queues[1:]))
    _, figures["one resize"] = planned(resized)
    return figures
