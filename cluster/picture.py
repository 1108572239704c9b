"""Reads the cluster as it stands in the database."""

from __future__ import annotations

from uuid import UUID

from rota.words import PodId, QueueName

from ..storage.assignments import Assignments
from .view import Assignment, ClusterView, Picture, PodView, QueueView


async def take_picture(assignments: Assignments) -> Picture:
    """Read it, in one statement."""
    queues, pods, rows = await assignments.read_view()
    served: dict[tuple[str, ...], frozenset[QueueName]] = {}
    ids = [PodId(UUID(pod[0])) for pod in pods]
    view = ClusterView(
        tuple(QueueView(*queue) for queue in queues),
        tuple(
            PodView(
                id,
                served.setdefault(tuple(names), frozenset(names)),
                capacity,
                draining or silent,
                version,
                joined,
                capacities,
            )
            for joined, (id, (_, _, names, capacity, capacities, draining, silent, version)) in enumerate(
                zip(ids, pods, strict=True)
            )
        ),
        {(queue, PodId(UUID(pod))): Assignment(*row) for queue, pod, *row in rows},
    )
    return Picture(
        view,
        {id: pod[1] for id, pod in zip(ids, pods, strict=True)},
        frozenset(id for id, pod in zip(ids, pods, strict=True) if pod[6]),
    )
