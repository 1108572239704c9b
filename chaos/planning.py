"""The real planner on the explorer's small views, each asked once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from uuid import UUID

from rota.words import PodId, QueueName

from ..cluster.planner import plan
from ..cluster.view import Assignment, ClusterView, PodView, QueueView
from .protocol import Seat, Seats

QUEUE = QueueName("emails")


@cache
def planned(cap: int, capacity: int, seats: Seats) -> tuple[int, ...]:
    """What the planner wants for each seat; None: no such pod. The first is the oldest."""
    ids = [PodId(UUID(int=place)) for place in range(len(seats))]
    view = ClusterView(
        (QueueView(QUEUE, cap),),
        tuple(
            PodView(ids[place], frozenset([QUEUE]), capacity, seat[0], joined=place)
            for place, seat in enumerate(seats)
            if seat is not None
        ),
        {(QUEUE, ids[place]): seat[1] for place, seat in enumerate(seats) if seat is not None and seat[1]},
    )
    wanted = plan(view)[QUEUE]
    return tuple(wanted.get(id, 0) for id in ids)


@cache
def ever_planned(slots: int, pods: int) -> tuple[tuple[int, ...], ...]:
    """All that the planner wants of any view of so many pods, with any cap up to so many slots."""
    rows = [Assignment(target, target, target) for target in range(slots + 1)]
    seats: Sequence[Seat | None] = [None, (True, None), *((False, row) for row in rows)]
    return tuple(
        sorted(
            {planned(cap, slots, view) for cap in range(slots + 1) for view in product(seats, repeat=pods)}
        )
    )
