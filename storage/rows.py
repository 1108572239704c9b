"""What storage gives to the rest: rows as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from rota.words import Epoch, Incarnation, JobState, PodId


@dataclass(frozen=True, slots=True)
class Shape:
    """All that jobs of one enqueue may share; only payload and dedupe key are a job's own."""

    queue: str
    kind: str
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None
    max_attempts: int = 5
    timeout: float | None = None
    trace: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()


class Request(NamedTuple):
    """One job to be enqueued: its shape, its payload as JSON text, its dedupe key."""

    shape: Shape
    payload: str
    dedupe: str | None = None

    def traced(self, trace: str) -> Request:
        """The same in a trace."""
        return self._replace(shape=replace(self.shape, trace=trace))


class Ending(NamedTuple):
    """How one run ended, for every outcome but a plain `done`."""

    id: int
    claim: int
    outcome: str
    """dead, cancelled, retry, release or throttle"""
    delay: float = 0.0
    error: Mapping[str, Any] | None = None
    result: str | None = None


class Hint(NamedTuple):
    """Where a claim of one kind may start to look; rank is -priority."""

    rank: int = -40_000
    id: int = 0


NO_HINT = Hint()


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it stands in the database, waiting, running or ended."""

    id: int
    queue: str
    kind: str
    state: JobState
    payload: Any
    priority: int
    attempt: int
    max_attempts: int
    claim: int
    rescues: int
    cancelling: bool
    created_at: datetime
    scheduled_at: datetime
    claimed_at: datetime | None
    ended_at: datetime | None
    pod: UUID | None
    timeout: float | None
    dedupe: str | None
    trace: str | None
    note: str | None
    tags: tuple[str, ...]
    progress: Any
    errors: tuple[dict[str, Any], ...]
    result: Any


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue as operators see it."""

    name: str
    max_workers: int
    paused: bool
    cooling: bool
    retry: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod as the others see it."""

    id: UUID
    incarnation: int
    name: str
    state: str
    zone: str
    version: str
    capacity: int
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    running: int
    age: float
    expires_in: float
    leads: bool = False

    @property
    def silent(self) -> bool:
        """Whether its time has run out: nothing of it runs any more, and a leader will remove it."""
        return self.expires_in <= 0

    @property
    def up(self) -> bool:
        """Whether it may take jobs."""
        return self.state == "up" and not self.silent


@dataclass(frozen=True, slots=True)
class AssignmentRow:
    """What one pod (up, draining or silent) should have, may act on, holds and runs of a queue it serves."""

    queue: str
    pod: UUID
    name: str
    state: str
    target: int
    held: int
    acting: int
    running: int


@dataclass(frozen=True, slots=True)
class PlanRow:
    """What the leader decided for one queue, and why."""

    at: datetime
    epoch: int
    queue: str
    granted: int
    revoked: int
    cause: str
    sentence: str


@dataclass(frozen=True, slots=True)
class CapChange:
    """A change of a queue's cap; `change` is None where the cap stayed what it was."""

    change: int | None
    cap: int
    in_force: bool


@dataclass(frozen=True, slots=True)
class CapStatus:
    """How far a change of a cap has come; it may hold a moment before that is noted as in force."""

    in_force: bool
    holds: bool
    overtaken: bool
    took: float
    """Seconds from being asked for to being in force, or so far."""
    age: float
    """Seconds since it was asked for."""


@dataclass(frozen=True, slots=True)
class CapChangeRow:
    """A change of a cap as it is kept; one that was overtaken is never in force."""

    id: int
    cap: int
    asked_at: datetime
    in_force_at: datetime | None


@dataclass(frozen=True, slots=True)
class Boot:
    """What registering came to: an incarnation, or seconds to wait, or another boot in between."""

    incarnation: Incarnation | None
    wait_in: float | None
    found: int


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What a pod needs to know of a queue it serves."""

    max_workers: int
    paused: bool
    retry: dict[str, Any] | None


class Report(NamedTuple):
    """What a pod says when it beats: the answer it has, and what its queues act on and use.

    Queues that do neither are left out. `sharing` are queues of which it would take a share.
    """

    timeline: int = 0
    heard: int = 0
    busy: Sequence[str] = ()
    acts: Sequence[int] = ()
    uses: Sequence[int] = ()
    sharing: Sequence[str] = ()
    digest: str = ""
    """Of the queues' terms it knows; they are sent only when they differ."""


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What a pod hears when it beats."""

    draining: bool
    answer: int = 0
    timeline: int = 0
    targets: Mapping[str, int] = field(default_factory=dict)
    cancels: tuple[int, ...] = ()
    ready: tuple[str, ...] = ()
    lone: tuple[str, int] | None = None
    """A job, with its queue, that this pod should run alone: it is on its last chance."""
    terms: Mapping[str, QueueTerms] | None = None
    digest: str = ""
    leader: UUID | None = None
    lease_in: float = 0.0


class Tenure(NamedTuple):
    """A leader's right to act: who, in which epoch, on which timeline of the server."""

    pod: PodId
    epoch: Epoch
    timeline: int


@dataclass(frozen=True, slots=True)
class Stand:
    """What came of standing for the lease: a tenure, or how long the other's lasts (None: unknown)."""

    tenure: Tenure | None
    expires_in: float | None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a leader hears when it renews; times of the server, for comparison only."""

    clock: float
    started: float
    settling: bool
    expiry_in: float | None


@dataclass(frozen=True, slots=True)
class JobCount:
    """Jobs of one queue, kind and state that have not ended."""

    queue: str
    kind: str
    state: JobState
    jobs: int
    oldest: float
