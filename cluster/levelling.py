"""Passes extras from pod to pod until none has too many or too few, at the least cost. Pure.

An extra is a slot that some pods of a queue get and others do not. It costs one slot taken away
wherever a pod that would *keep* a slot by it does not get it. The extras come chosen, by the
cheapest choice for each queue alone. They are passed on one at a time, from pod to pod by way of
queues, along the cheapest way: the method of successive shortest paths, by which the whole stays
the cheapest there is for the number of extras that each pod has.

Prices tell what is cheap. What an extra is worth to a pod is 1 if the pod keeps a slot by it, plus
the pod's price, less the queue's price, and at any time

- worth is not below 0 where a pod has the extra, and not above 0 where it has not;
- the price of a pod that may end up with one more is not below 0, with one less not above 0.

So extras are passed on where they are worth 0 to both, and prices move where that leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class Extras:
    """One queue's extras: `count` of its `pods` get one."""

    count: int
    pods: AbstractSet[int]
    kept: AbstractSet[int]
    """The pods that lose a slot unless they get one."""
    taken: set[int]
    """The pods that get one."""


@dataclass(frozen=True, slots=True)
class PodBounds:
    """What one pod may have: extras of these queues, between `low` and `high` in all."""

    queues: AbstractSet[int]
    low: int
    high: int


def level(extras: Sequence[Extras], bounds: Sequence[PodBounds]) -> None:
    """Change who has taken the extras, until every pod is within its bounds."""
    levelling = _Levelling(extras, bounds)
    # The other way round is as right, and slow when pods join: then a few have far too little.
    levelling.run(gives=False)
    levelling.run(gives=True)


class _Levelling:
    def __init__(self, extras: Sequence[Extras], bounds: Sequence[PodBounds]) -> None:
        self._extras = extras
        self._bounds = bounds
        self._has: list[set[int]] = [set() for _ in bounds]
        """By pod: the queues it has an extra of."""
        for queue, extra in enumerate(extras):
            for pod in extra.taken:
                self._has[pod].add(queue)
        self._pod_price = [0] * len(bounds)
        self._queue_price = [int(len(extra.kept) > extra.count) for extra in extras]
        self._gives = False
        """Whether the pods being relieved have too many, or too few."""
        self._ends: set[int] = set()
        """Where a way may end: pods without a price that can take one more, or give one."""

    def run(self, *, gives: bool) -> None:
        self._gives = gives
        self._ends.clear()
        self._look_at(range(len(self._bounds)))
        for pod, bounds in enumerate(self._bounds):
            has = self._has[pod]
            while len(has) > bounds.high if gives else len(has) < bounds.low:
                self._relieve(pod)

    def _look_at(self, pods: Iterable[int]) -> None:
        """Note whether a way may end at these pods."""
        for pod in pods:
            if not self._pod_price[pod] and self._can_end(pod):
                self._ends.add(pod)
            else:
                self._ends.discard(pod)

    def _can_end(self, pod: int) -> bool:
        """Whether this pod may end up with one extra more, or one less."""
        has, bounds = len(self._has[pod]), self._bounds[pod]
        return has < bounds.high if self._gives else has > bounds.low

    def _relieve(self, start: int) -> None:
        """Pass one extra on, from this pod or to it; if there is no way, move prices."""
        came: dict[int, tuple[int, int]] = {}
        queues, unseen, ahead = set[int](), set(range(len(self._bounds))), [start]
        unseen.remove(start)
        while ahead:
            pod = ahead.pop()
            found = [queue for queue in self._dealt(pod) - queues if not self._worth(pod, queue)]
            for queue in found:
                if ends := self._at_par(queue, self._ends):
                    end = min(ends) if self._gives else max(ends)
                    came[end] = (pod, queue)
                    self._pass_on(came, end)
                    return
            queues.update(found)
            for queue in found:
                others = self._at_par(queue, unseen)
                unseen.difference_update(others)
                ahead += others
                came.update(dict.fromkeys(others, (pod, queue)))
        self._move_prices({start, *came}, queues, unseen)

    def _dealt(self, pod: int) -> AbstractSet[int]:
        """The queues of which this pod can give an extra, or take one."""
        return self._has[pod] if self._gives else self._bounds[pod].queues - self._has[pod]

    def _at_par(self, queue: int, among: set[int]) -> list[int]:
        """The partners to whom this queue's extra is worth 0."""
        kept, price, prices = self._extras[queue].kept, self._queue_price[queue], self._pod_price
        return [pod for pod in self._partners(queue, among) if (pod in kept) + prices[pod] == price]

    def _partners(self, queue: int, among: set[int]) -> set[int]:
        """Those among these pods that can take this queue's extra, or give it."""
        extra = self._extras[queue]
        return (among & extra.pods) - extra.taken if self._gives else among & extra.taken

    def _worth(self, pod: int, queue: int) -> int:
        return (pod in self._extras[queue].kept) + self._pod_price[pod] - self._queue_price[queue]

    def _pass_on(self, came: dict[int, tuple[int, int]], end: int) -> None:
        """Pass an extra on at every step of the way that came to this end."""
        pod = end
        while pod in came:
            before, queue = came[pod]
            giver, taker = (before, pod) if self._gives else (pod, before)
            self._extras[queue].taken.remove(giver)
            self._extras[queue].taken.add(taker)
            self._has[giver].remove(queue)
            self._has[taker].add(queue)
            pod = before
        self._look_at((pod, end))

    def _move_prices(self, pods: set[int], queues: set[int], unseen: set[int]) -> None:
        """Move the prices of all that was reached by the least that leads on."""
        away = chain(
            (self._worth(pod, queue) for pod in pods for queue in self._dealt(pod) - queues),
            (self._worth(pod, queue) for queue in queues for pod in self._partners(queue, unseen)),
            (self._pod_price[pod] for pod in pods if self._can_end(pod)),
        )
        least = min(map(abs, away))
        for pod in pods:
            self._pod_price[pod] += -least if self._gives else least
        for queue in queues:
            self._queue_price[queue] += -least if self._gives else least
        self._look_at(pods)
