"""The words every part shares, as types: an id of one thing is never taken for another's."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType
from uuid import UUID

JobId = NewType("JobId", int)
ClaimNo = NewType("ClaimNo", int)
"""Raised by every claim of a job; fences every later write about that run."""
BatchNo = NewType("BatchNo", int)
"""Numbers the claims a pod sends; kept on the job row, to settle claims whose answer never came."""
PodId = NewType("PodId", UUID)
Incarnation = NewType("Incarnation", int)
Epoch = NewType("Epoch", int)
"""Numbers the tenures of leaders; fences every write of one."""
QueueName = NewType("QueueName", str)
Kind = NewType("Kind", str)


class JobState(StrEnum):
    """Where a job is in its life; the last three are ends."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (JobState.DONE, JobState.DEAD, JobState.CANCELLED)
