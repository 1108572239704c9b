"""Pods for people, and which of them a few letters mean. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from rota.cli.durations import say_duration
from rota.cli.output import plain
from rota.errors import BadInput, PodNotFound
from rota.storage.rows import AssignmentRow, PodRow

STYLES = {"up": "green", "draining": "yellow", "silent": "bold red"}


def find_pod(wanted: str, pods: Sequence[PodRow]) -> PodRow:
    """The pod of this name or id, or the only one that begins so."""
    exact = [pod for pod in pods if wanted in (pod.name, str(pod.id))]
    found = exact or [pod for pod in pods if pod.name.startswith(wanted) or str(pod.id).startswith(wanted)]
    if not wanted or not found:
        raise PodNotFound(wanted, [_label(pod) for pod in pods])
    if len(found) > 1:
        some = ", ".join(_label(pod) for pod in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise BadInput(f'"{wanted}" may be {some}{more}; write more of the name, or of the id.')
    return found[0]


def pod_table(pods: Sequence[PodRow], slots: Sequence[AssignmentRow]) -> Table:
    """Pods, a line each; the leader is marked."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "pod",
        "id",
        "state",
        "version",
        "zone",
        "queues",
        "held/target",
        "running/cap.",
        "age",
        "expires",
    ):
        right = name in ("held/target", "running/cap.", "age", "expires")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "queues")
    for pod in pods:
        held, target = _slots(pod, slots)
        table.add_row(
            plain(pod.name) + (" *" if pod.leads else ""),
            str(pod.id)[:8],
            Text(_state(pod), style=STYLES.get(_state(pod), "")),
            plain(pod.version),
            plain(pod.zone),
            plain(", ".join(pod.queues)),
            f"{held}/{target}",
            f"{pod.running}/{pod.capacity}",
            say_duration(pod.age),
            f"in {say_duration(pod.expires_in)}"
            if not pod.silent
            else f"{say_duration(-pod.expires_in)} ago",
        )
    return table


def pod_json(pod: PodRow, slots: Sequence[AssignmentRow]) -> dict[str, Any]:
    """One pod for machines."""
    held, target = _slots(pod, slots)
    return {**asdict(pod), "id": str(pod.id), "state": _state(pod), "held": held, "target": target}


def _state(pod: PodRow) -> str:
    return "silent" if pod.silent else pod.state


def _slots(pod: PodRow, slots: Sequence[AssignmentRow]) -> tuple[int, int]:
    mine = [row for row in slots if row.pod == pod.id]
    return sum(row.held for row in mine), sum(row.target for row in mine)


def _label(pod: PodRow) -> str:
    return f"{pod.name} ({str(pod.id)[:8]})"
