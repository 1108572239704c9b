"""The goals: which figure over which, and the bar. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.figures import Figures
from bench.sizes import Sizes
from bench.words import (
    CAPPED,
    CEILING,
    CPU_PER_JOB,
    FOLLOWER_KILLED,
    LEADER_KILLED,
    LEADER_LEAVES,
    PGQUEUER,
    PICKUP_P50,
    PICKUP_P95,
    RESIZE_P99,
    RESTARTED,
    ROTA,
    UNCAPPED,
    WAL_PER_JOB,
    Works,
    beside,
    planner,
    still,
)

Sense = Literal[">=", "<="]
FLAT = 1.05
"""What counts as flat: memory after the long haul over memory after its first tenth."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure over another, and how they must stand to each other."""

    name: str
    over: tuple[str, str]
    under: tuple[str, str] | None
    """None: the figure itself has to meet the bar."""
    sense: Sense
    bar: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, judged."""

    goal: str
    ratio: float
    bar: float
    sense: Sense
    met: bool


def judge(figures: Figures, sizes: Sizes) -> list[Verdict]:
    """Every goal for which this run has both figures."""
    return [verdict for goal in (*goals(sizes), *cluster_goals(sizes)) if (verdict := _judge(goal, figures))]


def goals(sizes: Sizes) -> Iterator[Goal]:
    """The table of the first issue, line by line."""
    works = Works(sizes)
    plain = (works.plain, ROTA)
    yield Goal("drain, 1 process", plain, (works.plain, PGQUEUER), ">=", 2.0)
    yield Goal("drain, 1 process", plain, (works.plain, CEILING), ">=", 0.75)
    yield Goal("drain, 2 processes", (works.pair, ROTA), (works.pair, PGQUEUER), ">=", 2.0)
    for crowded in (works.backlog, works.future, works.ended, works.foreign):
        yield Goal(crowded, (crowded, ROTA), (beside(crowded), ROTA), ">=", 0.9)
    yield Goal(works.snapshot, (works.snapshot, ROTA), (works.long, ROTA), ">=", 0.7)
    for work, bar in ((works.one_by_one, 1.2), (works.concurrent, 10.0), (works.bulk, 1.8)):
        yield Goal(work, (work, ROTA), (work, PGQUEUER), ">=", bar)
    for work in (PICKUP_P50, PICKUP_P95):
        yield Goal(work, (work, ROTA), (work, PGQUEUER), "<=", 1.1)
    yield Goal(CPU_PER_JOB, (CPU_PER_JOB, ROTA), (CPU_PER_JOB, PGQUEUER), "<=", 0.35)
    yield Goal(works.memory, (works.memory, ROTA), (works.memory, PGQUEUER), "<=", 1.0)
    yield Goal("memory: flat", (works.flat, ROTA), (works.flat_base, ROTA), "<=", FLAT)
    yield Goal(WAL_PER_JOB, (WAL_PER_JOB, ROTA), (WAL_PER_JOB, CEILING), "<=", 1.1)


def cluster_goals(sizes: Sizes) -> Iterator[Goal]:
    """The table of the second issue, line by line."""
    for work, bar in (
        (RESIZE_P99, 250.0),
        (LEADER_LEAVES, 100.0),
        (LEADER_KILLED, 1.0),
        (FOLLOWER_KILLED, 1.0),
        (RESTARTED, 1.0),
        *((still("follower", queues), 0.6) for queues in sizes.still_queues),
        *((still("leader", queues), 2.0) for queues in sizes.still_queues),
        *((planner(name), 500.0) for name in ("cold start", "one join", "one leave", "one resize")),
    ):
        yield Goal(work, (work, ROTA), None, "<=", bar)
    yield Goal(CAPPED, (CAPPED, ROTA), (UNCAPPED, ROTA), ">=", 0.95)


def _judge(goal: Goal, figures: Figures) -> Verdict | None:
    over = figures.find(*goal.over)
    if goal.under is None:
        if over is None:
            return None
        return Verdict(goal.name, over.value, goal.bar, goal.sense, over.value <= goal.bar)
    under = figures.find(*goal.under)
    if over is None or under is None:
        return None
    # Round by round, because a machine that slows down for a while does so for both.
    ratio = median(ours / theirs for ours, theirs in zip(over.values, under.values, strict=True))
    met = ratio >= goal.bar if goal.sense == ">=" else ratio <= goal.bar
    return Verdict(_title(goal), ratio, goal.bar, goal.sense, met)


def _title(goal: Goal) -> str:
    """The goal's name and what the figure is held against."""
    assert goal.under is not None
    (work, contender), (other_work, other_contender) = goal.over, goal.under
    against = other_contender if other_contender != contender else other_work
    return f"{goal.name} / {against}" if against != work else goal.name
