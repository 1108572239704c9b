"""The modelled world: one queue, its pods, its leaders, and everything that can happen next.

Pods and the rest are interned, so that a state is one number, and what can happen to each part is worked
out once. States that differ in the order of pods are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from .beating import answering, applied, beating, told
from .canon import canonical, canonical_queue
from .claiming import claiming
from .failover import Failover
from .leading import Wishes, leading
from .living import living
from .protocol import (
    CAP_BROKEN,
    Ground,
    Joint,
    Pod,
    Queue,
    Seat,
    Seats,
    Setting,
    Step,
    rows_of,
    runs,
    within_held,
)
from .rulebook import Rulebook

T = TypeVar("T")

BITS = 20
MASK = (1 << BITS) - 1


class Interned(Generic[T]):
    """Numbers for things, and things for numbers."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self.things: list[T] = []

    def number(self, thing: T) -> int:
        known = self._numbers.setdefault(thing, len(self.things))
        if known == len(self.things):
            self.things.append(thing)
        return known


class Local(NamedTuple):
    """What can happen to one pod by itself; then the pods after it, by whether a job starts."""

    moves: list[tuple[str, int, int]]
    plain: list[int]
    starting: list[int]
    swapping: list[int]


class Shared(NamedTuple):
    """What leader or operator can do: the queue's number, and each pod's desk if any changes."""

    words: str
    queue: int
    desks: tuple[int, ...] | None
    broken: str


Desk = tuple[Seat | None, tuple[int, ...]]
"""What leaders see and change of a pod: its rows, and what plans under way want for it."""


class World:
    """A setting and the rules it is played by."""

    def __init__(self, setting: Setting, rules: Rulebook) -> None:
        self.setting = setting
        self.rules = rules
        self.pods: Interned[Pod] = Interned()
        self.queues: Interned[Queue] = Interned()
        self.unfit: set[int] = set()
        """Pods that use more than their row says."""
        self.grounds: list[Ground] = []
        self._desks: Interned[Desk] = Interned()
        self._desk: list[int] = []
        self._runs: list[int] = []
        self._sharing: list[bool] = []
        self._local: dict[tuple[int, Ground], Local] = {}
        self._shared: dict[tuple[int, ...], list[Shared]] = {}
        self._seated: dict[tuple[int, int], int] = {}
        self._shares: dict[tuple[int, ...], list[tuple[str, int]]] = {}
        self._failover = Failover(self) if setting.failover else None

    def first(self) -> Iterator[int]:
        """The states it begins with: nobody is there."""
        empty = self.pod(Pod())
        for cap in self.setting.caps or range(self.setting.slots + 1):
            yield self.pack(self.queue(Queue(cap, cap)), (empty,) * self.setting.pods)

    def pack(self, queue: int, pods: Iterable[int]) -> int:
        """One number for a state, whatever the order of its pods."""
        for pod in sorted(pods):
            queue = queue << BITS | pod
        return queue

    def unpack(self, state: int) -> tuple[int, tuple[int, ...]]:
        """The queue and the pods of a state."""
        if self.setting.pods == 2:
            return state >> 2 * BITS, (state >> BITS & MASK, state & MASK)
        pods = []
        for _ in range(self.setting.pods):
            pods.append(state & MASK)
            state >>= BITS
        return state, tuple(pods)

    def queue(self, queue: Queue) -> int:
        """The number of a queue."""
        number = self.queues.number(canonical_queue(queue))
        if number == len(self.grounds):
            self.grounds.append(queue.ground)
        return number

    def pod(self, pod: Pod) -> int:
        """The number of a pod."""
        number = self.pods.number(canonical(pod, refused=self.setting.refused))
        if number == len(self._runs):
            known = self.pods.things[number]
            row = known.row
            seat = (row.draining, known.slots) if row else None
            self._desk.append(self._desks.number((seat, known.wanted)))
            self._runs.append(runs(known))
            self._sharing.append(
                bool(self.setting.shares and known.beats and row and not row.draining and not known.slots)
            )
            if not within_held(known):
                self.unfit.add(number)
        return number

    def fit(self, queue: int, pods: tuple[int, ...]) -> bool:
        """Whether no pod uses more than its row says; while a failover settles rows say nothing."""
        now = self.queues.things[queue]
        rows = [self.pods.things[pod].row for pod in pods if pod in self.unfit]
        return now.settling or not any(row and row.timeline == now.timeline for row in rows)

    def seats(self, pods: Iterable[int]) -> Seats:
        """The pods as the planner sees them."""
        return tuple(self._desks.things[self._desk[pod]][0] for pod in pods)

    def steps(self, queue: int, pods: tuple[int, ...]) -> Iterator[Step]:
        """Everything that can happen next, in words."""
        now = self.queues.things[queue]
        total = sum(self._runs[pod] for pod in pods)
        for place, pod in enumerate(pods):
            before, rest = pods[:place], pods[place + 1 :]
            for words, after, starts in self.local(pod, now.ground).moves:
                broken = CAP_BROKEN if starts and total - (starts < 0) >= now.force else ""
                yield Step(words, place, queue, (*before, after, *rest), broken)
            for words, after in self.shares(queue, pod, before + rest):
                yield Step(words, place, queue, (*before, after, *rest))
        for shared in self.shared(queue, pods):
            after_pods = self._seat(pods, shared.desks) if shared.desks else pods
            yield Step(shared.words, -1, shared.queue, tuple(after_pods), shared.broken)
        if self._failover:
            yield from self._failover.steps(queue, pods)

    def following(self, state: int) -> tuple[list[int], str]:
        """The states that can come next, and what is broken on the way: as `steps`, but fast."""
        queue, pods = self.unpack(state)
        ground = self.grounds[queue]
        found: list[int] = []
        broken = ""
        for place, pod in enumerate(pods):
            rest = pods[:place] + pods[place + 1 :]
            known = self._local.get((pod, ground)) or self.local(pod, ground)
            found += self._beside(queue, known.plain, rest)
            if known.starting or known.swapping:
                total, force = sum([self._runs[pod] for pod in pods]), self.queues.things[queue].force
                if (known.starting and total >= force) or (known.swapping and total > force):
                    broken = CAP_BROKEN
                found += self._beside(queue, known.starting + known.swapping, rest)
            if self._sharing[pod]:
                found += self._beside(queue, [after for _, after in self.shares(queue, pod, rest)], rest)
        for _, after_queue, desks, breaks in self.shared(queue, pods):
            found.append(self.pack(after_queue, self._seat(pods, desks) if desks else pods))
            broken = broken or breaks
        if self._failover:
            for step in self._failover.steps(queue, pods):
                found.append(self.pack(step.queue, step.pods))
                broken = broken or step.broken
        return found, broken

    def _beside(self, queue: int, pods: list[int], rest: tuple[int, ...]) -> list[int]:
        """The states of one pod as it may become, beside the others as they are."""
        if len(rest) == 1:
            (other,) = rest
            base = queue << 2 * BITS
            return [
                base | pod << BITS | other if pod <= other else base | other << BITS | pod for pod in pods
            ]
        return [self.pack(queue, (pod, *rest)) for pod in pods]

    def local(self, pod: int, ground: Ground) -> Local:
        """What can happen to one pod by itself."""
        known = self._local.get((pod, ground))
        if known is None:
            found: dict[tuple[int, int], tuple[str, int, int]] = {}
            for happens in (beating, claiming, living):
                for words, after, starts in happens(self.pods.things[pod], ground, self.setting, self.rules):
                    number = self.pod(after)
                    if number != pod:
                        found.setdefault((number, starts), (words, number, starts))
            moves = list(found.values())
            by_starts = [[after for _, after, starts in moves if starts == kind] for kind in (0, 1, -1)]
            known = self._local[pod, ground] = Local(moves, *by_starts)
        return known

    def shared(self, queue: int, pods: tuple[int, ...]) -> list[Shared]:
        """What leader and operator can do."""
        key = (queue, *[self._desk[pod] for pod in pods])
        known = self._shared.get(key)
        if known is None:
            desks = [self._desks.things[desk] for desk in key[1:]]
            seats, wishes = tuple(seat for seat, _ in desks), tuple(wanted for _, wanted in desks)
            found: dict[object, Shared] = {}
            for joint in leading(self.queues.things[queue], seats, wishes, self.setting, self.rules):
                after_queue = self.queue(joint.queue)
                after = self._redesked(seats, wishes, joint)
                changed = after if after != key[1:] else None
                if changed or after_queue != queue:
                    shared = Shared(joint.words, after_queue, changed, joint.broken)
                    found.setdefault(shared[1:], shared)
            known = self._shared[key] = list(found.values())
        return known

    def _redesked(self, seats: Seats, wishes: Wishes, joint: Joint) -> tuple[int, ...]:
        rows = joint.rows or tuple(seat and seat[1] for seat in seats)
        return tuple(
            self._desks.number(((seat[0], row) if seat else None, wanted))
            for seat, row, wanted in zip(seats, rows, joint.wanted or wishes, strict=True)
        )

    def _seat(self, pods: tuple[int, ...], desks: tuple[int, ...]) -> list[int]:
        """The pods at these desks."""
        seated, after = self._seated, []
        for place in zip(pods, desks, strict=True):
            known = seated.get(place)
            after.append(self._moved(*place) if known is None else known)
        return after

    def _moved(self, pod: int, desk: int) -> int:
        was = self.pods.things[pod]
        seat, wanted = self._desks.things[desk]
        row = seat[1] if seat else None
        target = row.target if row else 0
        tells = self.setting.notices and target != (was.slots.target if was.slots else 0)
        notices = (target,) if tells else was.notices
        known = self._seated[pod, desk] = self.pod(was._replace(slots=row, wanted=wanted, notices=notices))
        return known

    def shares(self, queue: int, pod: int, rest: tuple[int, ...]) -> list[tuple[str, int]]:
        """Beats of a pod without an assignment that take a share."""
        if not self._sharing[pod]:
            return []
        key = (queue, pod, *sorted([self._desk[other] for other in rest]))
        known = self._shares.get(key)
        if known is None:
            known = self._shares[key] = list(self._taking(self.queues.things[queue], pod, self.seats(rest)))
        return known

    def _taking(self, queue: Queue, number: int, others: Seats) -> Iterator[tuple[str, int]]:
        pod = self.pods.things[number]
        live = 1 + sum(seat is not None and not seat[0] for seat in others)
        for beat in sorted(set(pod.beats)):
            after = applied(pod, beat, queue.ground, self.rules)
            if after is None or after.slots is not None:
                continue
            rows = self.rules.after_share(
                rows_of(others), -1, queue.cap, live=live, empty=self.setting.slots, unsure=queue.settling
            )
            if -1 in rows:
                after = answering(after._replace(slots=rows[-1], answers=pod.answers), beat, queue.ground)
                yield f"{told(pod, after, beat)}; it takes its fair share", self.pod(after)
