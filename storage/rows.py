"""What storage gives to the rest: rows as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from rota.words import JobState


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


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What a pod needs to know of a queue it serves."""

    max_workers: int
    paused: bool
    retry: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What a pod hears when it beats."""

    draining: bool
    cancels: tuple[int, ...] = ()
    ready: tuple[str, ...] = ()
    queues: Mapping[str, QueueTerms] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobCount:
    """Jobs of one queue, kind and state that have not ended."""

    queue: str
    kind: str
    state: JobState
    jobs: int
    oldest: float
