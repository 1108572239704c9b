"""The pure rules as a small database: every door of storage, answered by cluster/rules.py.

What the rules do not speak of is done as plainly as can be: a row that expires is gone, a drained
pod drains. Answers are those of storage's doors, so that both can be compared as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.cluster.rules import (
    Lease,
    PodBoot,
    Said,
    Server,
    after_answering,
    after_beat,
    after_join,
    after_plan,
    after_renewal,
    after_resignation,
    after_share,
    after_sight,
    after_takeover,
    guarded,
    in_force,
    latest,
    settling,
    verdict,
)
from rota.cluster.view import Assignment
from rota.storage.assignments import Written
from rota.storage.rows import Boot, CapChange, Report, Stand, Tenure
from rota.words import Epoch, Incarnation, PodId


class Guest(NamedTuple):
    """What a pod registered with, beside its row."""

    queues: tuple[str, ...]
    capacity: int
    capacities: Mapping[str, int]


class Heard(NamedTuple):
    """What a beat is answered, as far as the rota goes."""

    draining: bool
    answer: int
    timeline: int
    targets: Mapping[str, int]
    leader: PodId | None
    lease_in: float


class Change(NamedTuple):
    """One change of a cap."""

    queue: str
    cap: int
    asked_at: float
    in_force_at: float | None


Key = tuple[str, PodId]


class Rows(NamedTuple):
    """All that is stored of the rota."""

    server: Server
    lease: Lease
    queues: Mapping[str, tuple[int, bool]]
    pods: Mapping[PodId, PodBoot]
    assignments: Mapping[Key, Assignment]
    changes: list[Change]


@dataclass
class Model:
    """The rows, the clock, and what each door does to them."""

    now: float
    timeline: int
    queues: dict[str, tuple[int, bool]]
    server: Server = field(init=False)
    lease: Lease = field(default_factory=Lease)
    pods: dict[PodId, PodBoot] = field(default_factory=dict)
    guests: dict[PodId, Guest] = field(default_factory=dict)
    assignments: dict[Key, Assignment] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = Server(self.timeline)

    @property
    def rows(self) -> Rows:
        return Rows(self.server, self.lease, self.queues, self.pods, self.assignments, self.changes)

    def cap(self, queue: str) -> int:
        workers, paused = self.queues[queue]
        return 0 if paused else workers

    def of_queue(self, queue: str) -> dict[PodId, Assignment]:
        return {pod: row for (name, pod), row in self.assignments.items() if name == queue}

    def of_pod(self, pod: PodId) -> dict[str, Assignment]:
        return {queue: row for (queue, other), row in self.assignments.items() if other == pod}

    # The leader's doors.

    def take_lease(self, pod: PodId, ttl: float) -> Stand:
        self.lease, won = after_takeover(self.lease, pod, ttl, now=self.now, timeline=self.timeline)
        tenure = Tenure(pod, Epoch(self.lease.epoch), self.timeline) if won else None
        return Stand(tenure, self.lease.expires_at - self.now)

    def renew_lease(self, tenure: Tenure, ttl: float) -> tuple[float, bool, float | None] | None:
        """The clock, whether a failover settles, and when the first pod falls silent."""
        unsure = self._unsure()
        if not self.leads(tenure):
            return None
        self.lease = after_renewal(self.lease, ttl, now=self.now)
        for pod, row in self.pods.items():
            self.pods[pod] = row._replace(expires_at=min(row.expires_at, self.now + row.ttl))
        first = min((row.expires_at - self.now for row in self.pods.values()), default=None)
        return self.now, unsure, first

    def resign_lease(self, tenure: Tenure) -> bool:
        before, self.lease = self.lease, after_resignation(self.lease, *tenure)
        return self.lease != before

    def plan_queue(self, tenure: Tenure, queue: str, wanted: Mapping[PodId, int]) -> Written | None:
        unsure = self._unsure()
        if not self.leads(tenure):
            return None
        if queue not in self.queues:
            return Written((), 0, 0)
        known = {pod: slots for pod, slots in wanted.items() if pod in self.pods}
        before = self.of_queue(queue)
        after = after_plan(before, known, self.cap(queue), unsure=unsure)
        self._put(queue, after)
        self.confirm_cap(queue)
        moved = {pod: row.target - before.get(pod, Assignment()).target for pod, row in sorted(after.items())}
        return Written(
            tuple(pod for pod, by in moved.items() if by),
            sum(max(0, by) for by in moved.values()),
            sum(max(0, -by) for by in moved.values()),
        )

    def expire_pods(self, tenure: Tenure) -> list[PodId] | None:
        unsure = self._unsure()
        if not self.leads(tenure):
            return None
        return [] if unsure else self.sweep_pods()

    def sweep_pods(self) -> list[PodId]:
        gone = sorted(pod for pod, row in self.pods.items() if row.expires_at <= self.now)
        for pod in gone:
            self._remove(pod)
        return gone

    # The pods' doors.

    def register_pod(
        self, pod: PodId, incarnation: int, *, replaces: int, machine: str, ttl: float, guest: Guest
    ) -> Boot:
        """`incarnation` is the number the boot would get."""
        self._unsure()
        self.server = self.server._replace(ttl=max(self.server.ttl, ttl))
        row = self.pods.get(pod)
        booted = after_join(
            row, replaces, incarnation, machine=machine, ttl=ttl, now=self.now, timeline=self.timeline
        )
        if booted is None:
            assert row is not None
            wait = row.expires_at - self.now if row.incarnation == replaces else None
            return Boot(None, wait, row.incarnation)
        self._remove(pod)
        self.pods[pod], self.guests[pod] = booted, guest
        return Boot(Incarnation(incarnation), None, row.incarnation if row else 0)

    def beat(self, pod: PodId, incarnation: int, report: Report) -> Heard | str:
        """The answer, or why there is none."""
        unsure = self._unsure()
        row = self.pods.get(pod)
        found = verdict(row, incarnation, now=self.now, timeline=self.timeline)
        if row is None or found != "beaten":
            return found
        had = latest(row, report.heard, report.timeline, self.timeline)
        learns = report.timeline != self.timeline
        self.pods[pod] = after_answering(row, now=self.now, timeline=self.timeline)
        said = {q: Said(*both) for q, *both in zip(report.busy, report.acts, report.uses, strict=True)}
        for queue in self.queues:
            known = self.assignments.get((queue, pod))
            after = after_beat(known, said.get(queue, Said()), latest=had, learns=learns)
            if after is not None:
                self.assignments[queue, pod] = after
        if not row.draining:
            for queue in sorted({*report.sharing} & {*self.queues}):
                self._share(pod, queue, unsure)
        targets = {queue: assigned.target for queue, assigned in self.of_pod(pod).items()}
        lease_in = max(0.0, min(self.lease.expires_at - self.now, self.lease.ttl))
        answer = self.pods[pod].answer
        return Heard(row.draining, answer, self.timeline, targets, self.holder, lease_in)

    def drain_pod(self, pod: PodId, incarnation: int | None) -> bool:
        row = self.pods.get(pod)
        if row is None or incarnation not in (None, row.incarnation):
            return False
        self.pods[pod] = row._replace(draining=True)
        return True

    def leave_pod(self, pod: PodId, incarnation: int) -> bool:
        row = self.pods.get(pod)
        if row is None or row.incarnation != incarnation:
            return False
        self._remove(pod)
        return True

    # The operator's door.

    def change_queue(self, queue: str, max_workers: int | None, paused: bool | None) -> CapChange | None:
        """A change is numbered by its place among all."""
        unsure = self._unsure()
        if queue not in self.queues:
            return None
        before, (workers, stopped) = self.cap(queue), self.queues[queue]
        self.queues[queue] = (
            workers if max_workers is None else max_workers,
            stopped if paused is None else paused,
        )
        cap, last = self.cap(queue), self._last_change(queue)
        if cap == before:
            return CapChange(None, cap, last is None or self.changes[last].in_force_at is not None)
        holds = in_force(self.of_queue(queue), cap, force=self._force(queue, before), unsure=unsure)
        self.changes.append(Change(queue, cap, self.now, self.now if holds else None))
        return CapChange(len(self.changes), cap, holds)

    def confirm_cap(self, queue: str) -> bool:
        place, unsure = self._last_change(queue), self._unsure()
        if place is None:
            return False
        cap, rows = self.cap(queue), self.of_queue(queue)
        if self.changes[place].in_force_at is None:
            if not in_force(rows, cap, force=self._force(queue, cap + 1), unsure=unsure):
                return False
            self.changes[place] = self.changes[place]._replace(in_force_at=self.now)
        return True

    @property
    def holder(self) -> PodId | None:
        return self.lease.holder  # type: ignore[return-value]

    def leads(self, tenure: Tenure) -> bool:
        """Whether a write of this leader would pass the guard."""
        return guarded(self.lease, *tenure, now=self.now, timeline=self.timeline)

    def _unsure(self) -> bool:
        self.server = after_sight(self.server, self.timeline, self.now)
        return settling(self.server, self.now)

    def _share(self, pod: PodId, queue: str, unsure: bool) -> None:
        guest = self.guests[pod]
        live = sum(
            not row.draining and row.expires_at > self.now and queue in self.guests[other].queues
            for other, row in self.pods.items()
        )
        empty = guest.capacity - sum(row.held for row in self.of_pod(pod).values())
        most = min(empty, guest.capacities.get(queue, empty))
        rows = self.of_queue(queue)
        self._put(queue, after_share(rows, pod, self.cap(queue), live=live, empty=most, unsure=unsure))

    def _force(self, queue: str, otherwise: int) -> int:
        """The cap in force."""
        caps = [
            change.cap for change in self.changes if change.queue == queue and change.in_force_at is not None
        ]
        return caps[-1] if caps else otherwise

    def _last_change(self, queue: str) -> int | None:
        places = [place for place, change in enumerate(self.changes) if change.queue == queue]
        return places[-1] if places else None

    def _put(self, queue: str, rows: Mapping[PodId, Assignment]) -> None:
        for pod, row in rows.items():
            self.assignments[queue, pod] = row

    def _remove(self, pod: PodId) -> None:
        self.pods.pop(pod, None)
        self.guests.pop(pod, None)
        for queue in self.of_pod(pod):
            del self.assignments[queue, pod]
