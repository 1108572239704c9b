"""Why a job is not running yet, in one sentence. Pure: rows in, words out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from rota.storage.rows import AssignmentRow, JobRow, PodRow, QueueRow
from rota.words import JobState


def why_waiting(
    job: JobRow, queues: Sequence[QueueRow], pods: Sequence[PodRow], slots: Sequence[AssignmentRow]
) -> str | None:
    """What stands between a waiting job and its run; None once it runs or has ended."""
    if job.state is JobState.SCHEDULED:
        again = f" after attempt {job.attempt} of {job.max_attempts} failed" if job.attempt else ""
        return f"scheduled until {say_time(job.scheduled_at)}{again}"
    if job.state is JobState.READY:
        return f"ready since {say_time(job.scheduled_at)}, {_obstacle(job, queues, pods, slots)}"
    return None


def no_taker(queue: str, kind: str, pods: Sequence[PodRow]) -> str | None:
    """What is missing when no pod that is up can run this kind from this queue."""
    up = [pod for pod in pods if pod.up]
    serving = [pod for pod in up if queue in pod.queues]
    if not up:
        return "no pod is up"
    if not serving:
        return f'no pod that is up serves queue "{queue}"'
    if not any(kind in pod.kinds for pod in serving):
        return f'no pod that serves queue "{queue}" runs kind "{kind}"'
    return None


def say_time(at: datetime) -> str:
    """A time of the database, in this terminal's time zone."""
    return at.astimezone().isoformat(sep=" ", timespec="milliseconds")


def _obstacle(
    job: JobRow, queues: Sequence[QueueRow], pods: Sequence[PodRow], slots: Sequence[AssignmentRow]
) -> str:
    queue = next((queue for queue in queues if queue.name == job.queue), None)
    if queue is not None and queue.paused:
        return "and its queue is paused"
    if queue is not None and queue.max_workers == 0:
        return "and its queue has max_workers 0"
    if queue is not None and queue.cooling:
        return "and its queue cools down after a throttle"
    if (missing := no_taker(job.queue, job.kind, pods)) is not None:
        return f"but {missing}"
    takers = {pod.id for pod in pods if pod.up and job.kind in pod.kinds}
    mine = [row for row in slots if row.queue == job.queue]
    cap = queue.max_workers if queue is not None else None
    return _want_of_slots(cap, mine, [row for row in mine if row.pod in takers]) or (
        "behind what is before it in its queue"
    )


def _want_of_slots(
    cap: int | None, slots: Sequence[AssignmentRow], takers: Sequence[AssignmentRow]
) -> str | None:
    """Who has the slots that it would need; `takers` are those of pods that run its kind."""
    running = sum(row.running for row in slots)
    if cap is not None and running >= cap:
        return f"and all {cap} slots of its queue are in use: {_each(slots, 'runs', _running)}"
    if any(row.running < row.target for row in takers):
        return None
    if any(_giving_back(row) for row in slots):
        return f"and slots of its queue are being handed over: {_each(slots, 'gives back', _giving_back)}"
    if not any(row.target for row in takers):
        others = _each(slots, "has", _target)
        return "but its queue has no slots on a pod that runs its kind" + (f": {others}" if others else "")
    return f"and the slots of pods that run its kind are in use: {_each(takers, 'runs', _running)}"


def _each(
    slots: Sequence[AssignmentRow], does: str, number: Callable[[AssignmentRow], int], most: int = 5
) -> str:
    """What pods do in numbers, the greatest first."""
    rows = sorted((row for row in slots if number(row)), key=number, reverse=True)
    more = f" and {len(rows) - most} more pods" if len(rows) > most else ""
    return ", ".join(f"{row.name} {does} {number(row)}" for row in rows[:most]) + more


def _running(row: AssignmentRow) -> int:
    return row.running


def _target(row: AssignmentRow) -> int:
    return row.target


def _giving_back(row: AssignmentRow) -> int:
    return max(0, row.held - row.target)
