"""A claim's steps: asked, committed, answered, or given up and settled; and the end of its run."""

from __future__ import annotations

from collections.abc import Iterator

from ..cluster.rules import PodBoot
from .beating import side_of
from .protocol import Ground, Move, Pod, Process, Setting
from .rulebook import Claims, Rulebook


def claiming(pod: Pod, ground: Ground, setting: Setting, rules: Rulebook) -> Iterator[Move]:
    """What can happen to the claims and runs of one pod."""
    me = pod.process
    if me is None:
        return
    steps: list[tuple[str, Claims, int]] = []
    if _claimable(pod.row, me, ground):
        steps += _commits(me.claims)
    if me.up:
        steps += _asks(me, setting, rules)
        steps += _ends(me.claims)
        steps += _given_up(me.claims) if setting.giving_up else ()
    for words, claims, starts in steps:
        yield Move(words, pod._replace(process=me._replace(claims=claims)), starts)


def _claimable(row: PodBoot | None, me: Process, ground: Ground) -> bool:
    """Whether the database lets this process claim. A row that only the lost server renewed has expired
    by the time the failover has settled."""
    return (
        row is not None
        and row.incarnation == me.incarnation
        and not row.draining
        and not ground.paused
        and (ground.settling or row.timeline == ground.timeline)
    )


def _commits(claims: Claims) -> Iterator[tuple[str, Claims, int]]:
    asked, taken, _, riding, lost, stray = claims
    if asked:
        yield "{} starts a job: its claim commits", claims._replace(asked=asked - 1, taken=taken + 1), 1
    if riding:
        after = claims._replace(riding=riding - 1, taken=taken + 1)
        yield "{} starts a job: its claim commits, with the outcome of a run", after, -1
    if lost:
        after = claims._replace(lost=lost - 1, stray=stray + 1)
        yield "{} starts a job: a claim commits that it has given up", after, 1


def _asks(me: Process, setting: Setting, rules: Rulebook) -> Iterator[tuple[str, Claims, int]]:
    claims, side = me.claims, side_of(me, rules)
    if rules.may_take(side) > 0:
        yield "{} asks for a job", claims._replace(asked=claims.asked + 1), 0
    if setting.riding and claims.running and rules.may_take(side._replace(used=side.used - 1)) > 0:
        after = claims._replace(running=claims.running - 1, riding=claims.riding + 1)
        yield "a run of {} has ended: it sends the outcome and asks for a job", after, 0


def _ends(claims: Claims) -> Iterator[tuple[str, Claims, int]]:
    """Answers. A claim that is given up and settled ends as one that took nothing, or as its run does."""
    asked, taken, running, riding, _, _ = claims
    if asked:
        yield "{} hears that its claim took nothing", claims._replace(asked=asked - 1), 0
    if riding:
        yield (
            "{} hears that its outcome is written; its claim took nothing",
            claims._replace(riding=riding - 1),
            0,
        )
    if taken:
        yield "{} hears what its claim took", claims._replace(taken=taken - 1, running=running + 1), 0
    if running:
        yield "a run of {} ends", claims._replace(running=running - 1), 0


def _given_up(claims: Claims) -> Iterator[tuple[str, Claims, int]]:
    asked, taken, _, _, lost, stray = claims
    if asked:
        yield "{} gives a claim up", claims._replace(asked=asked - 1, lost=lost + 1), 0
    if taken:
        yield "{} gives a claim up that has committed", claims._replace(taken=taken - 1, stray=stray + 1), 0
    if lost or stray:
        yield "{} settles what it gave up", claims._replace(lost=0, stray=0), 0
