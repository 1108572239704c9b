"""Why a job is not running yet, in one sentence. Pure: rows in, words out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.storage.rows import JobRow, PodRow, QueueRow
from rota.words import JobState


def why_waiting(job: JobRow, queues: Sequence[QueueRow], pods: Sequence[PodRow]) -> str | None:
    """What stands between a waiting job and its run; None once it runs or has ended."""
    if job.state is JobState.SCHEDULED:
        again = f" after attempt {job.attempt} of {job.max_attempts} failed" if job.attempt else ""
        return f"scheduled until {say_time(job.scheduled_at)}{again}"
    if job.state is JobState.READY:
        return f"ready since {say_time(job.scheduled_at)}, {_obstacle(job, queues, pods)}"
    return None


def no_taker(queue: str, kind: str, pods: Sequence[PodRow]) -> str | None:
    """What is missing when no pod that is up can run this kind from this queue."""
    up = [pod for pod in pods if pod.state == "up"]
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


def _obstacle(job: JobRow, queues: Sequence[QueueRow], pods: Sequence[PodRow]) -> str:
    queue = next((queue for queue in queues if queue.name == job.queue), None)
    if queue is not None and queue.paused:
        return "and its queue is paused"
    if queue is not None and queue.max_workers == 0:
        return "and its queue has max_workers 0"
    if queue is not None and queue.cooling:
        return "and its queue cools down after a throttle"
    if (missing := no_taker(job.queue, job.kind, pods)) is not None:
        return f"but {missing}"
    return "behind what is before it in its queue"
