"""A plan in one human sentence, and what it moves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rota.words import PodId, QueueName

from .planner import Plan

_FEW = 4
"""How many pods a sentence names."""


class Moves(NamedTuple):
    """How many slots are given to pods and taken from pods; one that moves counts in both."""

    granted: int
    revoked: int


def changes(before: Plan, after: Plan) -> Moves:
    """What it takes to come from the one to the other, over all queues."""
    moves = [
        moved
        for queue in before.keys() | after.keys()
        for moved in _moved(before.get(queue, {}), after.get(queue, {})).values()
    ]
    return Moves(sum(slots for slots in moves if slots > 0), -sum(slots for slots in moves if slots < 0))


def sentence(
    queue: QueueName,
    before: Mapping[PodId, int],
    after: Mapping[PodId, int],
    names: Mapping[PodId, str],
    cause: str,
) -> str:
    """What becomes of one queue, the greatest changes first, and why.

    emails: 40 slots over 3 pods; rota-worker-a1b2 +4, rota-worker-c3d4 -4, because a pod joined.
    """
    slots, pods = sum(after.values()), sum(1 for slots in after.values() if slots)
    outcome = f"{_counted(slots, 'slot')} over {_counted(pods, 'pod')}" if slots else "no slots"
    moved = _moved(before, after)
    if not moved:
        return f"{queue}: {outcome}, as before."
    called = {pod: names.get(pod, str(pod)[:8]) for pod in moved}
    order = sorted(moved, key=lambda pod: (-abs(moved[pod]), -moved[pod], called[pod], pod))
    listed = ", ".join(f"{called[pod]} {moved[pod]:+}" for pod in order[:_FEW])
    more = f" and {len(order) - _FEW} more" if len(order) > _FEW else ""
    return f"{queue}: {outcome}; {listed}{more}, because {cause}."


def _moved(before: Mapping[PodId, int], after: Mapping[PodId, int]) -> dict[PodId, int]:
    """The pods whose slots change, and by how much."""
    return {
        pod: moved
        for pod in before.keys() | after.keys()
        if (moved := after.get(pod, 0) - before.get(pod, 0))
    }


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
