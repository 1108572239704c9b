"""Shares, also where queues compete for the capacity of the same pods. Pure.

As a rule every queue can have its exact shares. Where they would overfill a group of pods, every
queue and group linked with it is a crowd, and settled in two steps from what pods have now.

1. How many slots does each queue get in all? As many as can be placed (a maximum flow), the poorest
   queue first (max-min): none could have one more, except from a queue that is one ahead of it.
2. Where? By exact shares of those totals, if these fit. Else a queue's slots move from the group
   where it has most per capacity to the one with capacity left where it has least, for as long as
   that brings the two closer.

Both come to an end because every step lowers a sum of whole numbers: slots that are not placed, or
squares of totals; squares of slots per capacity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import lcm

from .shares import Demand, Shares, overfull, spread

Had = Callable[[int], Mapping[int, int]]
"""How many slots of a queue each group has now."""


def settle(demands: Sequence[Demand], capacity: Sequence[int], had: Had) -> list[tuple[int, Shares]]:
    """The shares of every queue, in one piece or in several that are each rounded to their own sum."""
    pieces = [[spread(demand.total, demand.rooms, capacity)] for demand in demands]
    done: set[int] = set()
    for group in overfull([share for [share] in pieces], capacity):
        if group not in done:
            queues, groups = _linked(group, demands)
            done |= groups
            crowd = Crowd([demands[queue] for queue in queues], capacity, [had(queue) for queue in queues])
            for queue, settled in zip(queues, crowd.settled(), strict=True):
                pieces[queue] = settled
    return [(queue, share) for queue, shares in enumerate(pieces) for share in shares]


def _linked(group: int, demands: Sequence[Demand]) -> tuple[list[int], set[int]]:
    """The queues and groups that compete, over however many others, with this group's."""
    queues, groups, before = list[int](), {group}, 0
    while before < len(groups):
        before = len(groups)
        queues = [queue for queue, demand in enumerate(demands) if not groups.isdisjoint(demand.rooms)]
        groups = groups.union(*(demands[queue].rooms for queue in queues))
    return queues, groups


class Crowd:
    """Queues, the groups they compete for, and what each has been given so far."""

    def __init__(
        self, demands: Sequence[Demand], capacity: Sequence[int], had: Sequence[Mapping[int, int]]
    ) -> None:
        self._demands = demands
        self._capacity = capacity
        self._spare = list(capacity)
        self._given = [dict.fromkeys(demand.rooms, 0) for demand in demands]
        self._totals = [0] * len(demands)
        self._askers: list[list[int]] = [[] for _ in capacity]
        for queue, demand in enumerate(demands):
            for group in demand.rooms:
                self._askers[group].append(queue)
        self._ration(
            spread(min(demand.cap, sum(rows.values())), rows, capacity)
            for demand, rows in zip(demands, had, strict=True)
        )
        self._ration(spread(demand.total, demand.rooms, capacity) for demand in demands)

    def settled(self) -> list[list[Shares]]:
        """The pieces of every queue's shares."""
        self._divide()
        exact = [
            spread(total, demand.rooms, self._capacity)
            for total, demand in zip(self._totals, self._demands, strict=True)
        ]
        if not overfull(exact, self._capacity):
            return [[share] for share in exact]
        self._even_out()
        return [[Shares({group: slots}) for group, slots in given.items()] for given in self._given]

    def _ration(self, wishes: Iterable[Shares]) -> None:
        """Give every queue what it wishes for of each group, as far as there is; small wishes first."""
        asked: list[list[tuple[int, int]]] = [[] for _ in self._capacity]
        for queue, share in enumerate(wishes):
            for group, part in share.parts.items():
                asked[group].append((part // share.whole - self._given[queue][group], queue))
        for group, pairs in enumerate(asked):
            for place, (wish, queue) in enumerate(sorted(pairs)):
                cap = self._demands[queue].cap - self._totals[queue]
                slots = max(0, min(wish, cap, self._spare[group] // (len(pairs) - place)))
                self._given[queue][group] += slots
                self._totals[queue] += slots
                self._spare[group] -= slots

    def _divide(self) -> None:
        """Give slots to the poorest queue that can have more, until none can."""
        final: set[int] = set()
        while hungry := [
            (total, queue)
            for queue, total in enumerate(self._totals)
            if queue not in final and total < self._demands[queue].cap
        ]:
            final |= self._feed(min(hungry)[1])

    def _even_out(self) -> None:
        """Move slots between groups until no queue can be spread more evenly on its own."""
        whole = lcm(*(capacity for capacity in self._capacity if capacity))
        per_slot = [whole // capacity if capacity else 0 for capacity in self._capacity]
        while sum(self._even(queue, per_slot) for queue in range(len(self._given))):
            pass

    def _feed(self, queue: int) -> set[int]:
        """Give the queue more, or find the queues that can never have more.

        Breadth first: a queue may take where it has room; whoever it pushes aside there may take
        elsewhere; and so on, to a group with capacity to spare or a queue two slots ahead.
        """
        came: dict[int, tuple[int, int]] = {}
        reached, groups, ahead = {queue}, set[int](), deque([queue])
        while ahead:
            taker = ahead.popleft()
            for group, room in self._demands[taker].rooms.items():
                if group in groups or self._given[taker][group] >= room:
                    continue
                groups.add(group)
                if self._spare[group]:
                    self._pass_on(queue, [(taker, group, None), *_way(came, taker)])
                    return set()
                for giver in self._askers[group]:
                    if giver in reached or not self._given[giver][group]:
                        continue
                    came[giver] = (taker, group)
                    if self._totals[giver] >= self._totals[queue] + 2:
                        self._pass_on(queue, _way(came, giver))
                        return set()
                    reached.add(giver)
                    ahead.append(giver)
        return reached

    def _pass_on(self, queue: int, way: list[tuple[int, int, int | None]]) -> None:
        """Let every taker in the way have slots of its giver; the first giver pays for the queue."""
        slots = self._demands[queue].cap - self._totals[queue]
        for taker, group, giver in way:
            slots = min(slots, self._demands[taker].rooms[group] - self._given[taker][group])
            slots = min(slots, self._spare[group] if giver is None else self._given[giver][group])
        _, group, payer = way[0]
        if payer is None:
            self._spare[group] -= slots
        else:
            slots = min(slots, (self._totals[payer] - self._totals[queue]) // 2)
            self._totals[payer] -= slots
        self._totals[queue] += slots
        for taker, group, giver in way:
            self._given[taker][group] += slots
            if giver is not None:
                self._given[giver][group] -= slots

    def _even(self, queue: int, per_slot: Sequence[int]) -> bool:
        given, rooms, moved = self._given[queue], self._demands[queue].rooms, False
        while True:
            givers = [((2 * slots - 1) * per_slot[group], group) for group, slots in given.items() if slots]
            takers = [
                ((2 * given[group] + 1) * per_slot[group], group)
                for group, room in rooms.items()
                if self._spare[group] and given[group] < room
            ]
            if not givers or not takers or max(givers)[0] <= min(takers)[0]:
                return moved
            giver, taker = max(givers)[1], min(takers)[1]
            slots = self._to_level(queue, giver, taker)
            given[giver] -= slots
            given[taker] += slots
            self._spare[giver] += slots
            self._spare[taker] -= slots
            moved = True

    def _to_level(self, queue: int, giver: int, taker: int) -> int:
        """How many slots bring the two groups level, or as near as the taker can come; at least 1."""
        given, one, other = self._given[queue], self._capacity[giver], self._capacity[taker]
        level = (given[giver] * other - given[taker] * one) // (one + other)
        room = self._demands[queue].rooms[taker] - given[taker]
        return max(1, min(level, self._spare[taker], room))


def _way(came: dict[int, tuple[int, int]], giver: int) -> list[tuple[int, int, int | None]]:
    """How the search came to this giver, last step first."""
    way: list[tuple[int, int, int | None]] = []
    while giver in came:
        taker, group = came[giver]
        way.append((taker, group, giver))
        giver = taker
    return way
