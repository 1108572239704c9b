"""Every fact worth telling, as frozen values.

Code tells what happened (`tell(PodRegistered(...))`); `telemetry.py` alone knows log
levels, metric names and spans. Facts about single jobs come in batches, so that a busy
pod pays per batch and not per job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


class Run(Protocol):
    """One run of one job, as far as telling it goes; times are seconds."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def claim(self) -> int: ...
    @property
    def waited(self) -> float:
        """From when it was due until it was claimed."""

    @property
    def ran(self) -> float:
        """From the handler's start to its end."""

    @property
    def outcome(self) -> str:
        """done, retry, dead, cancelled, release or throttle."""

    @property
    def reason(self) -> str | None:
        """What went wrong, where something did."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fact."""


@dataclass(frozen=True, slots=True)
class JobsEnqueued(Event):
    """Jobs came in by this process; `skipped` had a twin waiting or running."""

    jobs: int
    skipped: int


@dataclass(frozen=True, slots=True)
class JobsClaimed(Event):
    """A claim took jobs into slots."""

    queue: str
    jobs: int


@dataclass(frozen=True, slots=True)
class JobsEnded(Event):
    """Runs whose outcome the database has acknowledged."""

    queue: str
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True)
class JobsLost(Event):
    """Runs that were no longer this pod's when it wanted to write their outcome."""

    queue: str
    jobs: Sequence[int]


@dataclass(frozen=True, slots=True)
class JobOverdue(Event):
    """A handler was told to stop and has not; it keeps its slot until it ends."""

    queue: str
    kind: str
    job: int
    why: str


@dataclass(frozen=True, slots=True)
class JobAlone(Event):
    """A job is on its last chance: this pod empties itself and runs it alone."""

    queue: str
    job: int


@dataclass(frozen=True, slots=True)
class OutcomeRefused(Event):
    """Postgres refused the very data of one outcome; the job fails with that reason."""

    queue: str
    job: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchesSettled(Event):
    """Claims whose answer never came were given up; so many jobs were released."""

    released: int


@dataclass(frozen=True, slots=True)
class HookFailed(Event):
    """A state-change hook raised; the job is not touched by it."""

    hook: str
    reason: str


@dataclass(frozen=True, slots=True)
class KindUnknown(Event):
    """Jobs are ready whose kind no live pod of their queue can run."""

    queue: str
    kind: str


@dataclass(frozen=True, slots=True)
class RetryRefused(Event):
    """A queue's row names a retry policy that cannot be used; the one before stays in use."""

    queue: str
    reason: str


@dataclass(frozen=True, slots=True)
class PodRegistered(Event):
    """This pod has joined."""

    pod: UUID
    incarnation: int
    name: str
    queues: Sequence[str]


@dataclass(frozen=True, slots=True)
class PodWaits(Event):
    """An earlier boot of this pod may still be alive on another machine; this one waits for its TTL."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PodFenced(Event):
    """No beat was answered for so long that this pod stops what it runs; a new boot follows."""

    silent: float


@dataclass(frozen=True, slots=True)
class PodExits(Event):
    """This process ends, because what it runs could not be stopped before others may be given it."""

    reason: str


@dataclass(frozen=True, slots=True)
class PodDraining(Event):
    """This pod claims nothing new and waits for what runs."""

    running: int
    grace: float


@dataclass(frozen=True, slots=True)
class PodLeft(Event):
    """This pod has gone; not clean when handlers would not stop and the row is left to expire."""

    clean: bool
    released: int


@dataclass(frozen=True, slots=True)
class PodsExpired(Event):
    """Pods fell silent; their jobs were rescued."""

    pods: Sequence[UUID]
    rescued: int


@dataclass(frozen=True, slots=True)
class LeaseTaken(Event):
    """This pod leads."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LeaseGone(Event):
    """This pod leads no more."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class NobodyLeads(Event):
    """No pod has held the lease for so long: slots are not divided, and due jobs not made ready."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RoleUnbounded(Event):
    """The database role has no such timeouts: a client stopped inside a statement could hold up others."""

    timeouts: Sequence[str]


@dataclass(frozen=True, slots=True)
class ClocksParted(Event):
    """What the server says of time cannot be trusted: the leader expires no pod for a while."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class QueuePlanned(Event):
    """The leader moved slots of a queue; the sentence says which and why."""

    queue: str
    granted: int
    revoked: int
    sentence: str


@dataclass(frozen=True, slots=True)
class SlotsChanged(Event):
    """This pod was told another number of slots for a queue."""

    queue: str
    slots: int


@dataclass(frozen=True, slots=True)
class DatabaseLost(Event):
    """The database does not answer; this is tried again."""

    doing: str
    reason: str
    again_in: float


@dataclass(frozen=True, slots=True)
class DatabaseFound(Event):
    """The database answers again."""

    doing: str


@dataclass(frozen=True, slots=True)
class ListenProbed(Event):
    """Whether notices reach this pod, or it polls."""

    works: bool
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaMigrated(Event):
    """Migrations were applied."""

    schema: str
    versions: Sequence[int]


Tell = Callable[[Event], None]


def untold(event: Event) -> None:
    """Where nobody listens."""
