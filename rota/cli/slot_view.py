"""Who has the slots, for people: by queue and pod, with a line that adds up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.table import Table

from rota.cli.output import plain
from rota.storage.rows import AssignmentRow


def slot_table(rows: Sequence[AssignmentRow]) -> Table:
    """What each pod should have, holds and runs, queue by queue."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("queue", "pod", "state", "target", "held", "running", ""):
        table.add_column(name, justify="right" if name in ("target", "held", "running") else "left")
    for queue, found in groupby(rows, key=lambda row: row.queue):
        group = list(found)
        for place, row in enumerate(group):
            name = plain(queue) if place == 0 else ""
            table.add_row(name, plain(row.name), row.state, *_numbers([row]), awaited(row))
        if len(group) > 1:
            table.add_row("", "total", "", *_numbers(group), "", style="bold")
    if len({row.queue for row in rows}) > 1:
        table.add_row("all queues", "", "", *_numbers(rows), "", style="bold")
    return table


def awaited(row: AssignmentRow) -> str:
    """What this pod is waited for, in words."""
    return f"giving back {row.held - row.target}" if row.held > row.target else ""


def slot_json(row: AssignmentRow) -> dict[str, Any]:
    """One line for machines."""
    return {**asdict(row), "pod": str(row.pod)}


def _numbers(rows: Iterable[AssignmentRow]) -> list[str]:
    rows = list(rows)
    return [str(sum(getattr(row, name) for row in rows)) for name in ("target", "held", "running")]
