"""Queues for people: many in a table, or one with all that is known of it. Pure: rows in, tables out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.durations import say_duration
from rota.cli.output import plain
from rota.cli.queue_settings import say_retry
from rota.cli.slot_view import slot_json, slot_table
from rota.cli.waiting import say_time
from rota.storage.rows import AssignmentRow, CapChangeRow, JobCount, PlanRow, PodRow, QueueRow
from rota.words import JobState


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue at a glance: its cap, its slots in all pods, what waits, and how many pods serve it."""

    queue: str
    max_workers: int
    paused: bool
    cooling: bool
    granted: int
    held: int
    running: int
    ready: int
    scheduled: int
    pods: int

    @property
    def state(self) -> str:
        said = [word for word, true in (("paused", self.paused), ("cooling", self.cooling)) if true]
        return ", ".join(said) or ("" if self.pods else "unserved")


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """One queue with who has its slots, and its latest changes and plans."""

    summary: QueueSummary
    retry: dict[str, Any] | None
    slots: Sequence[AssignmentRow]
    changes: Sequence[CapChangeRow]
    plans: Sequence[PlanRow]


def summarize(
    queues: Sequence[QueueRow],
    slots: Sequence[AssignmentRow],
    pods: Sequence[PodRow],
    counts: Sequence[JobCount],
) -> list[QueueSummary]:
    """Every queue at a glance, in the given order."""

    def jobs(queue: str, state: JobState) -> int:
        return sum(count.jobs for count in counts if (count.queue, count.state) == (queue, state))

    return [
        QueueSummary(
            queue.name,
            queue.max_workers,
            queue.paused,
            queue.cooling,
            granted=sum(row.target for row in slots if row.queue == queue.name),
            held=sum(row.held for row in slots if row.queue == queue.name),
            running=jobs(queue.name, JobState.RUNNING),
            ready=jobs(queue.name, JobState.READY),
            scheduled=jobs(queue.name, JobState.SCHEDULED),
            pods=sum(pod.up and queue.name in pod.queues for pod in pods),
        )
        for queue in queues
    ]


def unserved(queues: Sequence[QueueSummary], most: int = 10) -> str | None:
    """A warning of queues that nobody serves, if there are any."""
    names = [queue.queue for queue in queues if not queue.pods]
    if not names:
        return None
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"Warning: no pod that is up serves {', '.join(names[:most])}{more}."


def queue_table(queues: Sequence[QueueSummary]) -> Table:
    """Many queues, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("queue", "cap", "state", "granted", "held", "running", "ready", "scheduled", "pods"):
        table.add_column(name, justify="left" if name in ("queue", "state") else "right", no_wrap=True)
    for queue in queues:
        table.add_row(
            plain(queue.queue),
            str(queue.max_workers),
            Text(queue.state, style="yellow"),
            *map(str, (queue.granted, queue.held, queue.running, queue.ready, queue.scheduled, queue.pods)),
        )
    return table


def queue_details(queue: QueueDetails) -> RenderableType:
    """One queue, with everything that is known of it."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for name, value in _facts(queue):
        facts.add_row(name, value)
    parts: list[RenderableType] = [facts]
    if queue.slots:
        parts += [_title("slots"), slot_table(queue.slots)]
    if queue.changes:
        parts += [_title("cap changes"), _changes(queue.changes)]
    if queue.plans:
        parts += [_title("plans"), _plans(queue.plans)]
    return Group(*parts)


def queue_json(queue: QueueDetails) -> dict[str, Any]:
    """The same for machines."""
    return {
        **asdict(queue.summary),
        "retry": queue.retry,
        "slots": [slot_json(row) for row in queue.slots],
        "changes": queue.changes,
        "plans": queue.plans,
    }


def _facts(queue: QueueDetails) -> Iterator[tuple[str, str]]:
    at_a_glance = queue.summary
    yield "queue", plain(at_a_glance.queue)
    yield "max_workers", str(at_a_glance.max_workers)
    yield "state", at_a_glance.state or "open"
    yield "retry", plain(say_retry(queue.retry))
    yield "slots", f"{at_a_glance.granted} granted, {at_a_glance.held} held, {at_a_glance.running} running"
    yield "waiting", f"{at_a_glance.ready} ready, {at_a_glance.scheduled} scheduled"
    yield "pods", f"{at_a_glance.pods} up"


def _changes(changes: Sequence[CapChangeRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("asked", "cap", "in force"):
        table.add_column(name, justify="right" if name == "cap" else "left", no_wrap=True)
    for place, change in enumerate(changes):
        table.add_row(say_time(change.asked_at), str(change.cap), _in_force(change, latest=place == 0))
    return table


def _in_force(change: CapChangeRow, *, latest: bool) -> str:
    if change.in_force_at is None:
        return "not yet" if latest else "never, overtaken by the next"
    took = (change.in_force_at - change.asked_at).total_seconds()
    return f"after {say_duration(took)}" if took else "at once"


def _plans(plans: Sequence[PlanRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("at", no_wrap=True)
    table.add_column("plan")
    for plan in plans:
        table.add_row(say_time(plan.at), plain(plan.sentence))
    return table


def _title(name: str) -> Text:
    return Text(f"\n{name}", style="bold")
