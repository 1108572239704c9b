"""Exact shares, in fractions: how much of a queue each group of like pods ought to have. Pure.

Pods are alike if they have the same capacity and the same room for the same queues; like pods have
equal shares, so that shares are reckoned per group. A queue spreads over its groups in proportion
to their capacity, and no group gets more of it than it has room for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm


@dataclass(frozen=True, slots=True)
class Demand:
    """What one queue asks for: at most `cap` slots, of each group at most what it has room for."""

    cap: int
    rooms: Mapping[int, int]

    @property
    def total(self) -> int:
        return min(self.cap, sum(self.rooms.values()))


@dataclass(frozen=True, slots=True)
class Shares:
    """One queue's shares, which add up to whole slots: group g ought to have parts[g] / whole."""

    parts: Mapping[int, int]
    whole: int = 1


def spread(total: int, rooms: Mapping[int, int], capacity: Sequence[int]) -> Shares:
    """`total` slots in proportion to capacity; a group too small for its part takes what it can."""
    if not total:
        return Shares({})
    rest, weight = total, sum([capacity[group] for group in rooms])
    wide = rooms
    while small := {group for group in wide if rooms[group] * weight < rest * capacity[group]}:
        rest -= sum([rooms[group] for group in small])
        weight -= sum([capacity[group] for group in small])
        wide = {group: room for group, room in wide.items() if group not in small}
    common = gcd(rest, weight)
    rest, weight = rest // common, weight // common
    return Shares(
        {group: rest * capacity[group] if group in wide else room * weight for group, room in rooms.items()},
        weight,
    )


def loads(shares: Sequence[Shares], groups: int) -> tuple[list[int], int]:
    """What each group has in all, as parts of a whole that is the same for every group."""
    whole = lcm(*{share.whole for share in shares})
    load = [0] * groups
    for share in shares:
        scale = whole // share.whole
        for group, part in share.parts.items():
            load[group] += part * scale
    return load, whole


def overfull(shares: Sequence[Shares], capacity: Sequence[int]) -> list[int]:
    """The groups whose shares are more than they can take."""
    load, whole = loads(shares, len(capacity))
    return [group for group, slots in enumerate(capacity) if load[group] > slots * whole]
