"""This pod's side of the slots: what it may fill, what it fills, what it must empty.

A slot is in use from before the claim is sent until the outcome is acknowledged and the handler
has really ended. Two threads meet here: the one that beats hears targets and says what is used, the
one that runs handlers takes and gives back. One lock keeps the two from contradicting each other:
what a beat says was true of one moment, and no claim is sent under a target older than that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from ..storage.rows import Report
from .rules import Side, after_answer, may_take, said


@dataclass(frozen=True, slots=True)
class Heeded:
    """What an answer changed: queues with more to fill, and queues that have to give back."""

    raised: tuple[str, ...] = ()
    lowered: tuple[str, ...] = ()


class Slots:
    """The slots of one pod, in all its queues."""

    def __init__(self, queues: Sequence[str], capacity: int) -> None:
        self._lock = Lock()
        self._capacity = capacity
        self._sides = dict.fromkeys(queues, Side())
        self._assigned: Collection[str] = ()
        self._closed = False
        self._quiet = False

    def target(self, queue: str) -> int:
        """How many slots the pod should have of a queue, as last told."""
        return self._sides[queue].target

    def used(self, queue: str) -> int:
        """How many it uses, claims under way included."""
        return self._sides[queue].used

    def may_take(self, queue: str) -> int:
        """How many a claim sent now might ask for."""
        with self._lock:
            return self._room(queue, 0)

    def take(self, queue: str, giving: int, wanting: int) -> int:
        """Take slots for a claim that rides with the outcomes of `giving` runs; how many it may ask for.

        The database ends those runs and claims in one transaction, so the claim may fill their slots;
        until the answer the greater of the two is in use.
        """
        with self._lock:
            most = min(wanting, self._room(queue, giving))
            side = self._sides[queue]
            self._sides[queue] = side._replace(
                used=side.used - giving + max(giving, most), flying=side.flying + (most > 0)
            )
            return most

    def give(self, queue: str, taken: int, kept: int, *, flew: bool) -> bool:
        """Take in what came of a claim: of the slots taken so many stay in use.

        True when the pod must say so at once, because others wait for what it gives back.
        """
        with self._lock:
            before = self._sides[queue]
            after = before._replace(used=before.used - taken + kept, flying=before.flying - flew)
            self._sides[queue] = after
            return max(said(before)) > before.target and said(after) != said(before)

    def keep(self, queue: str, runs: int) -> None:
        """Runs whose outcome did not get through stay in use, beside what was taken for the claim."""
        with self._lock:
            side = self._sides[queue]
            self._sides[queue] = side._replace(used=side.used + runs)

    def report(self, *, sharing: bool, digest: str) -> Report:
        """What to say in a beat; `sharing`: ask for a share of each queue without an assignment."""
        with self._lock:
            any_side = next(iter(self._sides.values()))
            busy = [(queue, *said(side)) for queue, side in self._sides.items() if any(said(side))]
            wanted = [queue for queue in self._sides if queue not in self._assigned] if sharing else ()
            queues, acts, uses = zip(*busy, strict=True) if busy else ((), (), ())
            return Report(any_side.timeline, any_side.heard, queues, acts, uses, wanted, digest)

    def heed(self, timeline: int, answer: int, targets: Mapping[str, int]) -> Heeded:
        """Act on the targets of an answer from here on, unless a later one was heard."""
        raised, lowered = [], []
        with self._lock:
            for queue, before in self._sides.items():
                after = after_answer(before, timeline, answer, targets.get(queue, 0))
                if after is before:
                    return Heeded()
                self._sides[queue] = after
                if after.target > before.target:
                    raised.append(queue)
                elif after.target < before.target:
                    lowered.append(queue)
            self._assigned = targets.keys()
        return Heeded(tuple(raised), tuple(lowered))

    def take_alone(self, queue: str) -> bool:
        """Take the pod's only slot in use, for a job that runs alone; False when it would not be."""
        with self._lock:
            side = self._sides[queue]
            if self._closed or not may_take(side) or any(other.used for other in self._sides.values()):
                return False
            self._sides[queue] = side._replace(used=1, flying=side.flying + 1)
            return True

    def hush(self, quiet: bool) -> None:
        """While quiet nothing is taken but for a job that runs alone."""
        with self._lock:
            self._quiet = quiet

    def close(self) -> None:
        """Take nothing more."""
        with self._lock:
            self._closed = True

    def begin(self) -> None:
        """A new boot has heard nothing and may fill nothing."""
        with self._lock:
            self._assigned = ()
            self._sides = {queue: Side(used=side.used) for queue, side in self._sides.items()}

    def _room(self, queue: str, giving: int) -> int:
        if self._closed or self._quiet:
            return 0
        side = self._sides[queue]
        empty = self._capacity - sum(other.used for other in self._sides.values()) + giving
        return max(0, min(may_take(side._replace(used=side.used - giving)), empty))
