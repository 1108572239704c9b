"""Rules that were broken on purpose: each is simpler than the one that holds, and each is caught.

Every rule that docs/design.md marks with a flag has its simpler form here, and so has every rule that the
explorer itself asked for. A variant replaces one rule and names the smallest setting that catches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..cluster import rules
from ..cluster.rules import NOTHING, PodBoot, Said, Side
from ..cluster.view import Assignment
from .protocol import CAP_BROKEN, LEADER_BROKEN, Setting
from .rulebook import Claims, Rulebook

SMALL = Setting(slots=1, resizes=False, pauses=False, drains=False, ends=False, caps=(1,), plans="any")
LOWERING = SMALL._replace(resizes=True)
FALLING = SMALL._replace(failover=True)


class Variant(NamedTuple):
    """A rule that is broken, in words; the setting that catches it, and what it breaks."""

    words: str
    setting: Setting
    rules: Rulebook
    breaks: str = CAP_BROKEN


def _trusts_reported_use(row: Assignment | None, said: Said, **known: bool) -> Assignment | None:
    return rules.after_beat(row, Said(0, said.uses), **known)


def _grants_at_once(
    rows: Mapping[int, Assignment], wanted: Mapping[int, int], cap: int, *, unsure: bool
) -> dict[int, Assignment]:
    return {
        pod: Assignment(slots, max(row.held, slots), max(row.acting, slots))
        for pod in rows.keys() | wanted.keys()
        for row, slots in [(rows.get(pod, NOTHING), wanted.get(pod, 0))]
    }


def _shares_blindly(
    rows: Mapping[int, Assignment], pod: int, cap: int, **known: Any
) -> Mapping[int, Assignment]:
    return {**rows, **rules.after_share({}, pod, cap, **known)}


def _never_falls_to_0(
    rows: Mapping[int, Assignment], wanted: Mapping[int, int], cap: int, *, unsure: bool
) -> Mapping[int, Assignment]:
    if sum(row.held for row in rows.values()) <= cap:
        return rules.after_plan(rows, wanted, cap, unsure=unsure)
    return {pod: row._replace(target=min(row.target, wanted.get(pod, 0))) for pod, row in rows.items()}


def _acknowledged(rows: Mapping[int, Assignment], cap: int, *, force: int, unsure: bool) -> bool:
    return cap >= force or sum(row.acting for row in rows.values()) <= cap


def _any_boot(row: PodBoot | None, incarnation: int, **known: Any) -> rules.Verdict:
    return "expired" if row is None else "beaten"


def _newest_boot(row: PodBoot | None, replaces: int, incarnation: int, **known: Any) -> PodBoot | None:
    return rules.after_join(row, row.incarnation if row else 0, incarnation, **known)


def _any_answer(side: Side, timeline: int, answer: int, target: int) -> Side:
    return side._replace(timeline=timeline, heard=answer, target=target)


def _counts_runs_only(claims: Claims, timeline: int, heard: int, target: int) -> Side:
    return Side(timeline, heard, target, claims.running, 0)


def _forgets_given_up(claims: Claims, timeline: int, heard: int, target: int) -> Side:
    used = sum(claims) - claims.lost - claims.stray
    return Side(timeline, heard, target, used, used - claims.running)


def _lands_given_up(claims: Claims, timeline: int, heard: int, target: int) -> Side:
    return Side(timeline, heard, target, sum(claims), claims.asked + claims.taken + claims.riding)


def _knows_no_timeline(row: Assignment | None, said: Said, **known: bool) -> Assignment | None:
    return rules.after_beat(row, said, latest=known["latest"], learns=False)


REAL = Rulebook()

VARIANTS: Mapping[str, Variant] = {
    "reported-use": Variant(
        "held falls to the use a pod reports, whatever it acts on",
        SMALL,
        replace(REAL, after_beat=_trusts_reported_use),
    ),
    "grant-first": Variant(
        "a plan grants before others have given back", SMALL, replace(REAL, after_plan=_grants_at_once)
    ),
    "blind-share": Variant(
        "a fair share is taken whether it is free or not", SMALL, replace(REAL, after_share=_shares_blindly)
    ),
    "any-answer-lowers": Variant(
        "a beat lowers held though the pod had not heard the latest answer",
        SMALL._replace(beats=2),
        replace(REAL, latest=lambda row, heard, heard_on, timeline: True),
    ),
    "older-answer": Variant(
        "a pod heeds an answer older than one it has",
        SMALL._replace(beats=2),
        replace(REAL, after_answer=_any_answer),
    ),
    "one-snapshot": Variant(
        "a beat is one statement: its snapshot is older than its lock",
        SMALL._replace(snapshots=True),
        REAL,
    ),
    "notice": Variant("a plan tells targets by notice", SMALL._replace(notices=True), REAL),
    "uncounted-claim": Variant(
        "a claim under way is not counted as use", SMALL, replace(REAL, side=_counts_runs_only)
    ),
    "forgotten-claim": Variant(
        "a claim that was given up is not counted, though it is not settled",
        SMALL._replace(giving_up=True),
        replace(REAL, side=_forgets_given_up),
    ),
    "busy-slots": Variant(
        "a lowered cap is in force when acknowledged, though busy slots hold more",
        LOWERING._replace(slots=2, caps=(2,)),
        replace(REAL, after_plan=_never_falls_to_0, in_force=_acknowledged),
    ),
    "unsaid-flight": Variant(
        "a pod acknowledges a lower target while a claim is under way",
        LOWERING,
        replace(REAL, said=lambda side: Said(side.target, side.used)),
    ),
    "landed-claim": Variant(
        "a claim that was given up counts as use, but no longer as under way",
        LOWERING._replace(giving_up=True),
        replace(REAL, side=_lands_given_up),
    ),
    "earlier-boot": Variant(
        "late beats of an earlier boot are accepted",
        SMALL._replace(beats=2, ends=True),
        replace(REAL, verdict=_any_boot),
    ),
    "unnamed-boot": Variant(
        "a registration does not name the boot it replaces",
        SMALL._replace(late_boots=True),
        replace(REAL, after_join=_newest_boot),
    ),
    "no-epoch": Variant(
        "a leader's write is not guarded by its epoch",
        SMALL._replace(plans="sent"),
        replace(REAL, guarded=lambda *_, **__: True),
        LEADER_BROKEN,
    ),
    "no-timeline": Variant(
        "after a failover a beat lowers held as ever",
        FALLING,
        replace(
            REAL,
            after_beat=_knows_no_timeline,
            latest=lambda row, heard, heard_on, timeline: heard == row.answer,
        ),
    ),
    "no-settling": Variant(
        "slots are granted while a failover settles",
        FALLING,
        replace(
            REAL,
            after_plan=lambda rows, wanted, cap, unsure: rules.after_plan(rows, wanted, cap),
            after_share=lambda rows, pod, cap, live, empty, unsure: rules.after_share(
                rows, pod, cap, live=live, empty=empty
            ),
        ),
    ),
    "returned-target": Variant(
        "a target that returned with the older rows is told while a failover settles",
        FALLING,
        replace(
            REAL,
            after_beat=lambda row, said, latest, learns, unsure: rules.after_beat(
                row, said, latest=latest, learns=learns
            ),
        ),
    ),
    "hasty-cap": Variant(
        "a lowered cap is in force while a failover settles, if the older rows say so",
        FALLING._replace(resizes=True),
        replace(
            REAL,
            in_force=lambda rows, cap, force, unsure: rules.in_force(rows, cap, force=force, unsure=False),
        ),
    ),
    "revived-row": Variant(
        "a row of the lost server counts for ever, however old it is",
        FALLING._replace(resizes=True, ends=True),
        replace(
            REAL,
            verdict=lambda row, incarnation, now, timeline, unsure: rules.verdict(
                row, incarnation, now=now, timeline=timeline
            ),
        ),
    ),
}
