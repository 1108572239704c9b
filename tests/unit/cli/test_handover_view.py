"""A change of a cap as people see it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from rota.cli.handover_view import (
    MOST_PODS,
    hand_over_json,
    hand_over_line,
    hand_over_table,
    outcome,
    rehearsal_json,
    rehearsal_table,
    shown,
)
from rota.cli.options import Aim
from rota.cli.output import console
from rota.cluster.handover import Holder, Standing, rehearse
from rota.cluster.view import Assignment, ClusterView, Picture, PodView, QueueView
from rota.runtime.queues import Change, HandOver
from rota.words import PodId, QueueName

EMAILS = QueueName("emails")
A, B = (PodId(UUID(int=number)) for number in (1, 2))


def hand_over(
    *holders: tuple[PodId, int, int],
    cap: int = 4,
    in_force: bool = True,
    change: int | None = 7,
    took: float = 0.25,
    paused: bool = False,
    capacity: int = 9,
    live: bool = True,
) -> HandOver:
    """Holders are (pod, target, held)."""
    queue = QueueView(EMAILS, cap, paused)
    pods = tuple(PodView(pod, frozenset({EMAILS}), capacity) for pod in (A, B)) if live else ()
    names = {A: "rota-a", B: "rota-b"}
    held = tuple(Holder(pod, names[pod], target, held, silent=not live) for pod, target, held in holders)
    standing = Standing(queue, held, len(pods), ClusterView((queue,), pods))
    return HandOver(Change("emails", queue.cap, change, in_force), in_force, False, standing, took, 1.5)


UNDER_WAY = hand_over((A, 2, 6), (B, 2, 3), in_force=False)
BUSY = hand_over((A, 0, 6), (B, 0, 1))
SETTLED = hand_over((A, 2, 2), (B, 2, 2))


@pytest.mark.parametrize(
    ("now", "aim", "said"),
    [
        (SETTLED, None, "cap 4 in force."),
        (SETTLED, Aim.IN_FORCE, "cap 4 in force after 250ms."),
        (SETTLED, Aim.SETTLED, "cap 4 in force after 250ms, settled after 1.5s."),
        (hand_over((A, 2, 2), (B, 2, 2), took=0.0), Aim.IN_FORCE, "cap 4 in force at once."),
        (hand_over((A, 2, 2), (B, 2, 2), change=None), Aim.SETTLED, "cap 4 in force, settled."),
        (BUSY, Aim.IN_FORCE, "cap 4 in force after 250ms; 7 slots are still busy with what runs."),
        (
            UNDER_WAY,
            None,
            (
                "cap 4 asked for, not in force yet; rota-a gives back 4, rota-b gives back 1; "
                "--wait waits for it."
            ),
        ),
        (
            hand_over((A, 6, 6), (B, 6, 6), cap=40, capacity=6),
            None,
            "cap 40 in force; pods can hold 12 of 40.",
        ),
        (hand_over(live=False), Aim.SETTLED, "cap 4 in force after 250ms; no live pod serves it."),
        (
            hand_over((A, 6, 6), live=False, in_force=False, cap=1),
            Aim.IN_FORCE,
            (
                "cap 1 asked for, not in force yet; rota-a fell silent with 6; no live pod serves it; "
                "the next pod takes them back, or rota rescue."
            ),
        ),
    ],
)
def test_an_outcome_is_one_sentence(now: HandOver, aim: Aim | None, said: str) -> None:
    assert outcome(now, aim) == f'Queue "emails": {said}'


def test_a_paused_queue_says_so_and_what_counts_once_it_is_resumed() -> None:
    now = hand_over((A, 0, 1), cap=40, paused=True)
    assert outcome(now, Aim.IN_FORCE) == (
        'Queue "emails" is paused: cap 0 in force after 250ms; 1 slot is still busy with what runs; '
        "max_workers is 40."
    )


def test_a_hand_over_under_way_says_who_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    line = 'Queue "emails": cap 4 not in force yet, 9 slots held: rota-a gives back 4, rota-b gives back 1.'
    assert hand_over_line(UNDER_WAY) == line
    console().print(hand_over_table(UNDER_WAY))
    first, _, *lines = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    assert (first, lines) == (line, ["rota-a 2 6 giving back 4", "rota-b 2 3 giving back 1"])


def test_a_table_of_many_pods_ends_before_the_screen_does(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(hand_over_table(hand_over(*[(A, 1, 1)] * (MOST_PODS + 3))))
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1].strip()) == (MOST_PODS + 3, "and 3 more pods")


def test_lines_are_said_once_each_and_none_when_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(Aim.SETTLED, quiet=False) as see:
        for now in (UNDER_WAY, UNDER_WAY, BUSY, SETTLED):
            see(now)
    assert capsys.readouterr().err.splitlines() == [hand_over_line(UNDER_WAY), hand_over_line(BUSY)]


def test_nothing_is_said_where_machines_listen(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(Aim.SETTLED, quiet=True) as see:
        see(UNDER_WAY)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_table_that_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with shown(Aim.SETTLED, quiet=False) as see:
        see(UNDER_WAY)
    assert "giving back 4" in capsys.readouterr().err


def test_an_outcome_is_told_to_machines() -> None:
    told: dict[str, Any] = hand_over_json(BUSY)
    expected = {
        "queue": "emails", "max_workers": 4, "paused": False, "cap": 4, "change": 7, "in_force": True,
        "took": 0.25, "settled": False, "granted": 0, "held": 7, "grantable": 4, "pods": 2, "short": None,
    }  # fmt: skip
    assert {name: told[name] for name in expected} == expected
    assert told["slots"][0] == {"pod": str(A), "name": "rota-a", "target": 0, "held": 6}


def test_a_dry_run_shows_the_plan_and_what_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    pods = tuple(PodView(pod, frozenset({EMAILS}), 6) for pod in (A, B))
    view = ClusterView((QueueView(EMAILS, 4),), pods, {(EMAILS, A): Assignment(4, 4, 4)})
    plan = rehearse(Picture(view, {A: "rota-a", B: "rota-b"}), "emails", max_workers=40, cause="a test")
    assert plan is not None
    console().print(rehearsal_table(plan))
    first, _, *lines = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    assert first.startswith("Dry run, nothing is changed. ")
    assert lines == ["rota-a 4 4 6", "rota-b 0 0 6", "Short: pods can hold 12 of 40."]
    told = rehearsal_json(plan)
    assert (told["dry_run"], told["cap"], told["grantable"]) == (True, 40, 12)
    assert told["slots"][1] == {"pod": str(B), "name": "rota-b", "before": 0, "held": 0, "after": 6}
