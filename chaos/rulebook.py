"""The rules the explorer plays by: the pure ones of cluster/, gathered so that a variant can break one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..cluster import rules
from ..cluster.rules import Said, Side
from ..cluster.view import Assignment


class Claims(NamedTuple):
    """A pod's slots in use, by how far their claims are."""

    asked: int = 0
    """Sent, and not committed."""
    taken: int = 0
    """Committed, and not answered."""
    running: int = 0
    """Answered, and the outcome is not acknowledged."""
    riding: int = 0
    """Runs that have ended, whose outcome is under way together with the claim of the next."""
    lost: int = 0
    """Asked, given up, and not settled: may still commit."""
    stray: int = 0
    """Lost, and committed."""


def side(claims: Claims, timeline: int, heard: int, target: int) -> Side:
    """How the pod sees itself: every claim counts from before it is sent until it is settled."""
    used = sum(claims)
    return Side(timeline, heard, target, used, used - claims.running)


@dataclass(frozen=True)
class Rulebook:
    """Every rule by its name in cluster/rules.py."""

    after_beat: Callable[..., Assignment | None] = rules.after_beat
    after_plan: Callable[..., Mapping[Any, Assignment]] = rules.after_plan
    after_share: Callable[..., Mapping[Any, Assignment]] = rules.after_share
    after_join: Callable[..., rules.PodBoot | None] = rules.after_join
    after_answering: Callable[..., rules.PodBoot] = rules.after_answering
    after_answer: Callable[..., Side] = rules.after_answer
    after_takeover: Callable[..., tuple[rules.Lease, bool]] = rules.after_takeover
    guarded: Callable[..., bool] = rules.guarded
    in_force: Callable[..., bool] = rules.in_force
    verdict: Callable[..., rules.Verdict] = rules.verdict
    latest: Callable[..., bool] = rules.latest
    may_take: Callable[[Side], int] = rules.may_take
    said: Callable[[Side], Said] = rules.said
    side: Callable[[Claims, int, int, int], Side] = side
