"""What no step may do to the rows, whatever the script: those promises that rows can break. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rota.cluster.view import Assignment
from rota.words import PodId
from tests.integration.cluster.model import Key, Rows

NOTHING = Assignment()


def broken(before: Rows, after: Rows, *, beating: PodId | None, learns: bool) -> list[str]:
    """One sentence for each promise that the step from one to the other broke.

    `beating` is the pod whose beat the step was; `learns`: it beat after a failover, and the server only
    learns what it had granted before.
    """
    return [
        *_caps(before, after, learns),
        *_rows(after),
        *_own_beats(before, after, beating),
        *_lease(before, after),
    ]


def _caps(before: Rows, after: Rows, learns: bool) -> Iterator[str]:
    for queue, (workers, paused) in after.queues.items():
        cap, had, holds = 0 if paused else workers, held(before, queue), held(after, queue)
        if holds > max(cap, had) and not learns:
            yield f"{queue}: held rose from {had} to {holds} over a cap of {cap}"
        granted = any(
            row.held > before.assignments.get(key, NOTHING).held
            for key, row in after.assignments.items()
            if key[0] == queue
        )
        if granted and holds > cap and not learns:
            yield f"{queue}: slots were granted before others gave theirs back"


def _rows(after: Rows) -> Iterator[str]:
    for key, row in after.assignments.items():
        if not 0 <= row.target <= row.acting <= row.held:
            yield f"{key}: {row} is not in order"


def _own_beats(before: Rows, after: Rows, beating: PodId | None) -> Iterator[str]:
    for key, row in before.assignments.items():
        later = after.assignments.get(key)
        if not lives_on(key, before, after):
            continue
        if later is None:
            yield f"{key}: the row is gone and the pod is not"
        elif (later.held < row.held or later.acting < row.acting) and key[1] != beating:
            yield f"{key}: fell from {row} to {later} without a beat of its pod"
        elif later.target != row.target and beating is not None:
            yield f"{key}: a beat changed the target of {row} to {later.target}"


def _lease(before: Rows, after: Rows) -> Iterator[str]:
    if after.lease.epoch < before.lease.epoch:
        yield "the epoch fell"
    if after.lease.epoch == before.lease.epoch and after.lease.holder not in (before.lease.holder, None):
        yield "one epoch has two leaders"


def held(rows: Rows, queue: str) -> int:
    return sum(row.held for (name, _), row in rows.assignments.items() if name == queue)


def lives_on(key: Key, before: Rows, after: Rows) -> bool:
    """Whether the pod is the same boot as before."""
    earlier, later = before.pods.get(key[1]), after.pods.get(key[1])
    return earlier is not None and later is not None and earlier.incarnation == later.incarnation
