"""What happened, as a recorder beside Rota saw it. Pure.

Every fact has the instant of its commit, in whole microseconds on the database's clock, and facts
stand in the order in which they were written. Of one job that is also the order in which they
happened, since each locks its row; of different jobs only the instants say which came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Instant = int
Claim = tuple[int, int]
"""A job and its claim number: one run."""


class Claimed(NamedTuple):
    """A job began to run."""

    at: Instant
    job: int
    claim: int
    queue: str
    pod: str
    incarnation: int


class Freed(NamedTuple):
    """A job runs no more, for whatever reason."""

    at: Instant
    job: int
    claim: int


class Gone(NamedTuple):
    """A boot of a pod is no longer registered: it left, expired, or a later one took its place."""

    at: Instant
    pod: str
    incarnation: int
    expires_at: Instant
    draining: bool = False
    replaced: bool = False


class Ended(NamedTuple):
    """A job ended for good, after so many attempts; `told` is the claim its handler returned."""

    at: Instant
    job: int
    state: str
    claim: int
    attempt: int
    rescues: int
    told: int | None = None


Fact = Claimed | Freed | Gone | Ended


class CapChange(NamedTuple):
    """A cap was asked for, and is in force since then; None: never, or not yet."""

    queue: str
    cap: int
    asked_at: Instant
    in_force_at: Instant | None


class Run(NamedTuple):
    """One run, or one handler as seen from outside; None: it goes on."""

    queue: str
    job: int
    claim: int
    pod: str
    incarnation: int
    started: Instant
    ended: Instant | None
    lost: bool = False
    """Whether its pod was gone before it was freed."""
    given_back: bool = False
    """Whether it was lost by a pod that drained, and so is no attempt."""


@dataclass(frozen=True, slots=True)
class History:
    """All that a judge is told."""

    jobs: frozenset[int]
    """Every job whose enqueue returned."""
    facts: tuple[Fact, ...]
    changes: tuple[CapChange, ...]
    """Of each queue in the order in which they were asked for."""
    handlers: tuple[Run, ...] = ()
    """What the handlers themselves wrote down."""
    harmed: frozenset[str] = field(default_factory=frozenset)
    """Pods that were killed, stopped, cut off or retired on purpose."""


def runs_of(facts: Iterable[Fact]) -> list[Run]:
    """Every run, from its claim until it was freed or its pod was gone, whichever came first."""
    claimed: list[Claimed] = []
    freed: dict[Claim, Freed] = {}
    gone: dict[tuple[str, int], Gone] = {}
    for fact in facts:
        if isinstance(fact, Claimed):
            claimed.append(fact)
        elif isinstance(fact, Freed):
            freed.setdefault((fact.job, fact.claim), fact)
        elif isinstance(fact, Gone):
            gone.setdefault((fact.pod, fact.incarnation), fact)
    return [_run(start, freed, gone) for start in claimed]


def _run(start: Claimed, freed: Mapping[Claim, Freed], gone: Mapping[tuple[str, int], Gone]) -> Run:
    end, loss = freed.get((start.job, start.claim)), gone.get((start.pod, start.incarnation))
    lost = loss is not None and (end is None or loss.at <= end.at)
    return Run(
        start.queue,
        start.job,
        start.claim,
        start.pod,
        start.incarnation,
        start.at,
        min((fact.at for fact in (end, loss) if fact is not None), default=None),
        lost,
        lost and loss is not None and loss.draining,
    )
