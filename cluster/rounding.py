"""From exact shares to whole slots, taking away as few as possible. Pure.

Every pod's share of a queue is rounded up or down, so that

- a queue's slots add up to what its shares add up to, and
- a pod's slots of all queues add up to what its shares add up to, rounded up or down.

That can always be done: seen as a flow from queues to pods the shares are one, within bounds that
are whole numbers, so there is one in whole numbers. Of all these the one is found that takes the
fewest slots away from the pods that have them now.

Shares rounded down leave every queue some extras, at most one for a pod. First each queue by
itself gives them to pods that would otherwise lose a slot, then to those that are owed most. Over
all queues that may leave a pod with too many extras or too few, which levelling.py mends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from .levelling import Extras, PodBounds, level
from .shares import Shares, loads


def rounded(
    shares: Sequence[Shares], members: Sequence[Sequence[int]], before: Sequence[Mapping[int, int]]
) -> list[dict[int, int]]:
    """Slots by queue and pod, where `members` are the pods of a group and `before` is what pods have.

    Among equals the pod with the lower number gets more.
    """
    floors = [
        {group: part // (share.whole * len(members[group])) for group, part in share.parts.items()}
        for share in shares
    ]
    extras = [
        _extras(share, floor, members, had) for share, floor, had in zip(shares, floors, before, strict=True)
    ]
    owed, unit = _owed(shares, floors, members)
    _choose(extras, owed, unit)
    level(extras, _bounds(extras, owed, unit))
    return [_slots(floor, members, extra) for floor, extra in zip(floors, extras, strict=True)]


def _extras(
    share: Shares, floor: Mapping[int, int], members: Sequence[Sequence[int]], had: Mapping[int, int]
) -> Extras:
    count = sum(share.parts.values()) // share.whole
    count -= sum([least * len(members[group]) for group, least in floor.items()])
    uneven = [group for group, part in share.parts.items() if part % (share.whole * len(members[group]))]
    pods = {pod for group in uneven for pod in members[group]}
    kept = {pod for group in uneven for pod in members[group] if had.get(pod, 0) > floor[group]}
    return Extras(count, pods, kept, set(kept))


def _owed(
    shares: Sequence[Shares], floors: Sequence[Mapping[int, int]], members: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    """By pod: what its shares add up to, less what it gets by rounding all of them down; in units."""
    load, whole = loads(shares, len(members))
    sure = [0] * len(members)
    for floor in floors:
        for group, least in floor.items():
            sure[group] += least
    unit = whole * lcm(*map(len, members))
    owed = [0] * sum(map(len, members))
    for group, pods in enumerate(members):
        each = load[group] * (unit // (whole * len(pods))) - sure[group] * unit
        for pod in pods:
            owed[pod] = each
    return owed, unit


def _choose(extras: Sequence[Extras], owed: Sequence[int], unit: int) -> None:
    """Let each queue take back extras from pods that are owed least, or give more to those owed most."""
    owed = list(owed)
    for extra in extras:
        for pod in extra.kept:
            owed[pod] -= unit
    for extra in extras:
        least = sorted(sorted(extra.taken, reverse=True), key=owed.__getitem__)
        for pod in least[: max(0, len(least) - extra.count)]:
            extra.taken.remove(pod)
            owed[pod] += unit
    for extra in extras:
        most = sorted(sorted(extra.pods - extra.taken), key=owed.__getitem__, reverse=True)
        for pod in most[: extra.count - len(extra.taken)]:
            extra.taken.add(pod)
            owed[pod] -= unit


def _bounds(extras: Sequence[Extras], owed: Sequence[int], unit: int) -> list[PodBounds]:
    queues: list[set[int]] = [set() for _ in owed]
    for queue, extra in enumerate(extras):
        for pod in extra.pods:
            queues[pod].add(queue)
    return [
        PodBounds(served, parts // unit, -(-parts // unit))
        for served, parts in zip(queues, owed, strict=True)
    ]


def _slots(floor: Mapping[int, int], members: Sequence[Sequence[int]], extra: Extras) -> dict[int, int]:
    slots = {pod: least for group, least in floor.items() if least for pod in members[group]}
    for pod in extra.taken:
        slots[pod] = slots.get(pod, 0) + 1
    return slots
