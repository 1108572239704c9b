"""What the demo shows, as values. Pure: rows, reports and a clock's reading in, a picture out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from rota.cli.report import PodReport
from rota.storage.rows import AssignmentRow, JobCount, PlanRow, PodRow, QueueRow
from rota.words import JobState

WINDOW = 4.0
"""Seconds over which a rate is taken."""


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One queue: what waits and runs now, and what ended since the demo began."""

    name: str
    max_workers: int = 0
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class SlotCell:
    """One pod's part of one queue: what runs, of how many slots, and how many more it still holds."""

    running: int = 0
    target: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod; its process and speed only where it is ours and has reported."""

    name: str
    state: str
    cells: Mapping[str, SlotCell] = field(default_factory=dict)
    leads: bool = False
    pid: int | None = None
    rate: float = 0.0

    @property
    def total(self) -> SlotCell:
        """All queues as one."""
        cells = self.cells.values()
        return SlotCell(
            sum(cell.running for cell in cells),
            sum(cell.target for cell in cells),
            sum(cell.held for cell in cells),
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """The demo at one moment."""

    seconds: float
    enqueued: int
    queues: Sequence[QueueLine] = ()
    pods: Sequence[PodLine] = ()
    trouble: str | None = None
    plans: Sequence[str] = ()
    """What the leader did last, newest first."""

    @property
    def total(self) -> QueueLine:
        """All queues as one."""
        return QueueLine(
            name="all",
            max_workers=sum(queue.max_workers for queue in self.queues),
            ready=sum(queue.ready for queue in self.queues),
            scheduled=sum(queue.scheduled for queue in self.queues),
            running=sum(queue.running for queue in self.queues),
            done=sum(queue.done for queue in self.queues),
            retried=sum(queue.retried for queue in self.queues),
            dead=sum(queue.dead for queue in self.queues),
            rate=sum(queue.rate for queue in self.queues),
        )

    @property
    def slots(self) -> SlotCell:
        """All pods as one."""
        return PodLine("all", "", {pod.name: pod.total for pod in self.pods}).total


@dataclass(frozen=True, slots=True)
class Rows:
    """What the database says."""

    counts: Sequence[JobCount] = ()
    queues: Sequence[QueueRow] = ()
    pods: Sequence[PodRow] = ()
    assignments: Sequence[AssignmentRow] = ()
    plans: Sequence[PlanRow] = ()


@dataclass(slots=True)
class Speed:
    """How fast numbers grow, each under its name, over the last few seconds."""

    _seen: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)

    def see(self, at: float, numbers: Mapping[str, int]) -> None:
        self._seen.append((at, numbers))
        while len(self._seen) > 2 and at - self._seen[1][0] >= WINDOW:
            self._seen.popleft()

    def of(self, name: str) -> float:
        """Per second; 0 before there are two readings."""
        if len(self._seen) < 2:
            return 0.0
        (since, before), (until, now) = self._seen[0], self._seen[-1]
        return max(0, now.get(name, 0) - before.get(name, 0)) / max(until - since, 1e-6)


def queue_lines(rows: Rows, reports: Iterable[PodReport], speed: Speed) -> list[QueueLine]:
    """Every queue that the database or a report names."""
    reports = list(reports)
    workers = {queue.name: queue.max_workers for queue in rows.queues}
    names = {
        *workers,
        *(count.queue for count in rows.counts),
        *(name for pod in reports for name in pod.queues),
    }
    return [
        QueueLine(
            name=name,
            max_workers=workers.get(name, 0),
            ready=_jobs(rows, name, JobState.READY),
            scheduled=_jobs(rows, name, JobState.SCHEDULED),
            running=_jobs(rows, name, JobState.RUNNING),
            done=_ended(reports, name, "done"),
            retried=_ended(reports, name, "retry"),
            dead=_ended(reports, name, "dead"),
            rate=speed.of(name),
        )
        for name in sorted(names)
    ]


def pod_lines(rows: Rows, reports: Iterable[PodReport], speed: Speed) -> list[PodLine]:
    """Every pod the database knows, with its slots, and with what it reports of itself."""
    by_id = {report.id: report for report in reports}
    cells: dict[UUID, dict[str, SlotCell]] = {pod.id: {} for pod in rows.pods}
    for row in rows.assignments:
        cells.setdefault(row.pod, {})[row.queue] = SlotCell(row.running, row.target, row.held)
    return [_pod(pod, cells[pod.id], by_id.get(str(pod.id)), speed.of(str(pod.id))) for pod in rows.pods]


def done_by_name(reports: Iterable[PodReport]) -> dict[str, int]:
    """Jobs done under the name of each queue and the id of each pod, to take their speed."""
    done: dict[str, int] = {}
    for report in reports:
        done[report.id] = report.ended("done")
        for name, queue in report.queues.items():
            done[name] = done.get(name, 0) + queue.ended.get("done", 0)
    return done


def _jobs(rows: Rows, queue: str, state: JobState) -> int:
    return sum(count.jobs for count in rows.counts if (count.queue, count.state) == (queue, state))


def _ended(reports: Iterable[PodReport], queue: str, outcome: str) -> int:
    return sum(report.queues[queue].ended.get(outcome, 0) for report in reports if queue in report.queues)


def _pod(pod: PodRow, cells: Mapping[str, SlotCell], report: PodReport | None, rate: float) -> PodLine:
    if report is None:
        return PodLine(pod.name, pod.state, cells, pod.leads)
    return PodLine(pod.name, pod.state, cells, pod.leads, report.pid, rate)
