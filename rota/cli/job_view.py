"""Jobs for people: one with all that is known of it, or many in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rota.cli.durations import say_duration
from rota.cli.output import plain
from rota.cli.waiting import say_time
from rota.storage.rows import JobRow
from rota.words import JobState

STYLES = {
    JobState.SCHEDULED: "blue",
    JobState.READY: "cyan",
    JobState.RUNNING: "yellow",
    JobState.DONE: "green",
    JobState.DEAD: "bold red",
    JobState.CANCELLED: "magenta",
}


def job_table(jobs: Sequence[JobRow]) -> Table:
    """Many jobs, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "state", "queue", "kind", "attempt", "priority", "created", "last error"):
        right = name in ("id", "priority")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "last error")
    for job in jobs:
        table.add_row(
            str(job.id),
            _state(job),
            plain(job.queue),
            plain(job.kind),
            f"{job.attempt}/{job.max_attempts}",
            str(job.priority),
            say_time(job.created_at),
            _first_line(job.errors[-1].get("message")) if job.errors else "",
        )
    return table


def job_details(job: JobRow, why: str | None) -> RenderableType:
    """One job, with everything that is known of it."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for name, value in _facts(job, why):
        facts.add_row(name, value)
    parts: list[RenderableType] = [facts, *_document("payload", job.payload)]
    for name, value in (("progress", job.progress), ("result", job.result)):
        if value is not None:
            parts += _document(name, value)
    if job.errors:
        parts += [_title("errors"), _errors(job.errors)]
        if trace := job.errors[-1].get("traceback"):
            parts += [_title("last traceback"), Text(plain(str(trace)).rstrip())]
    return Group(*parts)


def _facts(job: JobRow, why: str | None) -> Iterator[tuple[str, RenderableType]]:
    yield "job", str(job.id)
    yield "state", _state(job)
    if why is not None:
        yield "waiting", plain(why)
    yield "queue", plain(job.queue)
    yield "kind", plain(job.kind)
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    yield "priority", str(job.priority)
    for name, value in _optional(job):
        if value:
            yield name, plain(value)
    yield from _timings(job)


def _optional(job: JobRow) -> Iterator[tuple[str, str | None]]:
    yield "timeout", say_duration(job.timeout) if job.timeout is not None else None
    yield "dedupe", job.dedupe
    yield "tags", ", ".join(job.tags)
    yield "note", job.note
    yield "pod", str(job.pod) if job.pod else None
    yield "claim", str(job.claim) if job.claim else None
    yield "rescues", str(job.rescues) if job.rescues else None
    yield "trace", job.trace


def _timings(job: JobRow) -> Iterator[tuple[str, str]]:
    yield "created", say_time(job.created_at)
    if job.scheduled_at != job.created_at:
        yield "due", say_time(job.scheduled_at)
    if job.claimed_at is not None:
        waited = say_duration((job.claimed_at - job.scheduled_at).total_seconds())
        yield "claimed", f"{say_time(job.claimed_at)}, having waited {waited}"
    if job.ended_at is not None:
        ran = (job.ended_at - job.claimed_at).total_seconds() if job.claimed_at else None
        yield (
            "ended",
            say_time(job.ended_at) + (f", having run {say_duration(ran)}" if ran is not None else ""),
        )


def _state(job: JobRow) -> Text:
    said = f"{job.state}, cancel requested" if job.cancelling else str(job.state)
    return Text(said, style=STYLES[job.state])


def _document(name: str, value: Any) -> list[RenderableType]:
    written = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return [_title(name), Text(plain(written))]


def _title(name: str) -> Text:
    return Text(f"\n{name}", style="bold")


def _errors(errors: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("attempt", "at", "type", "message"):
        table.add_column(name, no_wrap=name != "message")
    for error in errors:
        table.add_row(
            str(error.get("attempt", "")),
            _time(error.get("at")),
            plain(str(error.get("type", ""))),
            plain(str(error.get("message", ""))),
        )
    return table


def _time(at: object) -> str:
    """An error's time, which Postgres wrote into JSON."""
    try:
        return say_time(datetime.fromisoformat(str(at)))
    except ValueError:
        return plain(str(at or ""))


def _first_line(message: object) -> str:
    return plain(str(message or "").partition("\n")[0])
