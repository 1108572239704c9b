"""The judge itself: histories it must accept, and histories it must reject."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.chaos.history import CapChange, Claimed, Ended, Fact, Freed, Gone, History, Run, runs_of
from rota.chaos.invariants import (
    CapInForce,
    attempts_burned,
    cap_broken,
    expired_early,
    handlers_outside,
    judge,
    most_at_once,
    not_ended_once,
    raised_late,
    several_writers,
)

Q = "emails"


def run(job: int, started: int, ended: int | None, *, claim: int = 1, queue: str = Q, pod: str = "a") -> Run:
    return Run(queue, job, claim, pod, 1, started, ended)


def cap(slots: int, asked_at: int, in_force_at: int | None = -1, queue: str = Q) -> CapChange:
    """A change of the cap, in force at once unless told otherwise."""
    return CapChange(queue, slots, asked_at, asked_at if in_force_at == -1 else in_force_at)


TWO = [cap(2, 0)]


class TestTheCap:
    @pytest.mark.parametrize(
        "runs",
        [
            pytest.param([run(1, 1, 9), run(2, 1, 9)], id="as many as the cap"),
            pytest.param([run(1, 1, 5), run(2, 1, 9), run(3, 5, 9)], id="a slot is handed on in one instant"),
            pytest.param([run(1, 1, 9), run(2, 2, 9), run(3, 3, 9, queue="other")], id="another queue"),
            pytest.param([run(1, 1, None), run(2, 2, 4), run(3, 4, None)], id="runs that go on"),
            pytest.param([run(1, 5, 5), run(2, 5, 5), run(3, 5, 9)], id="runs shorter than an instant"),
        ],
    )
    def test_holds_where_no_job_starts_beyond_it(self, runs: list[Run]) -> None:
        assert cap_broken(runs, [*TWO, cap(1, 0, queue="other")]) == []

    @pytest.mark.parametrize(
        "runs",
        [
            pytest.param([run(1, 1, 9), run(2, 1, 9), run(3, 1, 9)], id="three in one instant"),
            pytest.param([run(1, 1, 9), run(2, 2, 9), run(3, 3, 9)], id="one too many"),
            pytest.param([run(1, 1, 5), run(2, 1, 9), run(3, 4, 9)], id="overlapping by an instant"),
            pytest.param([run(1, 1, None), run(2, 2, None), run(3, 99, None)], id="beside runs that go on"),
            pytest.param([run(3, 3, 9), run(2, 2, 9), run(1, 1, 9)], id="written in another order"),
            pytest.param([run(1, 1, 9), run(1, 2, 9, claim=2), run(1, 3, 9, claim=3)], id="one job thrice"),
            pytest.param([run(1, 1, 2, queue="unheard of")], id="a queue nobody gave a cap"),
        ],
    )
    def test_is_broken_by_one_start_too_many(self, runs: list[Run]) -> None:
        assert len(cap_broken(runs, TWO)) == 1

    def test_is_told_with_the_job_the_pod_and_the_numbers(self) -> None:
        [told] = cap_broken([run(1, 1, 9), run(2, 2, 9), run(3, 3, 9, pod="b")], TWO)
        assert told == (
            "job 3 of emails started (claim 1, pod b, at 3) while 2 ran and the cap in force was 2"
        )

    def test_lowered_and_in_force_lets_what_runs_finish(self) -> None:
        runs = [run(1, 1, 20), run(2, 1, 20), run(3, 20, 30)]
        assert cap_broken(runs, [*TWO, cap(1, 5, 7)]) == []

    @pytest.mark.parametrize("started", [8, 19])
    def test_lowered_and_in_force_is_broken_by_a_start_beside_it(self, started: int) -> None:
        runs = [run(1, 1, 20), run(2, 1, started), run(3, started, 30)]
        assert len(cap_broken(runs, [*TWO, cap(1, 5, 7)])) == 1

    @pytest.mark.parametrize("started", [6, 7], ids=["before", "in the instant it is in force"])
    def test_lowered_and_not_yet_in_force_may_be_filled(self, started: int) -> None:
        runs = [run(1, 1, 20), run(2, started, 20)]
        assert cap_broken(runs, [*TWO, cap(1, 5, 7)]) == []

    def test_lowered_and_never_in_force_counts_for_nothing(self) -> None:
        runs = [run(1, 1, 90), run(2, 50, 90)]
        assert cap_broken(runs, [*TWO, cap(1, 5, None)]) == []
        assert len(cap_broken([*runs, run(3, 51, 90)], [*TWO, cap(1, 5, None)])) == 1

    def test_overtaken_by_a_change_in_force_is_over(self) -> None:
        changes = [*TWO, cap(9, 5, None), cap(1, 6, 8)]
        assert cap_broken([run(job, 7, 20) for job in range(9)], changes) == []
        assert len(cap_broken([run(job, 9, 20) for job in range(9)], changes)) == 8

    def test_raised_may_be_filled_from_then_on_and_not_before(self) -> None:
        changes = [*TWO, cap(3, 5)]
        full = [run(1, 1, 20), run(2, 1, 20)]
        assert cap_broken([*full, run(3, 5, 20)], changes) == []
        assert len(cap_broken([*full, run(3, 4, 20)], changes)) == 1
        assert len(cap_broken([*full, run(3, 5, 20), run(4, 6, 20)], changes)) == 1

    def test_of_a_paused_queue_is_nothing(self) -> None:
        changes = [*TWO, cap(0, 5, 6), cap(2, 9)]
        assert len(cap_broken([run(1, 7, 8)], changes)) == 1
        assert cap_broken([run(1, 5, 8), run(2, 9, 12)], changes) == []

    def test_before_anybody_gave_one_is_nothing(self) -> None:
        assert len(cap_broken([run(1, 3, 4)], [cap(2, 5)])) == 1

    def test_in_force_is_the_greatest_of_what_may_count(self) -> None:
        force = CapInForce([cap(10, 0), cap(2, 5, None), cap(5, 6, 20)])
        assert [force.after(at) for at in (-1, 0, 5, 6, 19, 20, 21)] == [0, 10, 10, 10, 10, 5, 5]
        assert [force.greatest(at) for at in (0, 19, 20, 21)] == [10, 10, 10, 5]

    @given(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=12),
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 6) | st.none()), max_size=4),
    )
    def test_is_judged_as_by_counting_every_start_by_hand(
        self, spans: list[tuple[int, int]], asked: list[tuple[int, int, int | None]]
    ) -> None:
        """Against the definition, run by run, over instants so few that nearly all meet."""
        runs = [run(job, start, start + length) for job, (start, length) in enumerate(spans)]
        changes, now = [], 0
        for slots, later, wait in asked:
            now += later
            changes.append(cap(slots, now, None if wait is None else now + wait))
        in_order = sorted(runs, key=lambda run: run.started)
        broken = 0
        for place, one in enumerate(in_order):
            beside = sum(1 for other in in_order[:place] if (other.ended or 0) > one.started)
            broken += beside >= max(by_hand(changes, one.started - 1), by_hand(changes, one.started))
        assert len(cap_broken(runs, changes)) == broken

    def test_was_reached_as_the_most_at_once_says(self) -> None:
        runs = [run(1, 1, 5), run(2, 4, 9), run(3, 5, 9), run(4, 1, 2, queue="other")]
        assert most_at_once(runs) == {Q: 2, "other": 1}


def by_hand(changes: list[CapChange], at: int) -> int:
    forced = [
        place for place, one in enumerate(changes) if one.in_force_at is not None and one.in_force_at <= at
    ]
    first = max(forced, default=0)
    counting = [one for place, one in enumerate(changes) if place >= first and one.asked_at <= at]
    return max((one.cap for one in counting), default=0)


class TestARaise:
    def test_is_in_force_at_once(self) -> None:
        assert raised_late([cap(2, 0), cap(5, 3), cap(1, 4, 9), cap(5, 6)]) == []
        assert raised_late([cap(10, 0), cap(2, 4, None), cap(5, 6, 20)]) == []

    @pytest.mark.parametrize("in_force_at", [None, 4], ids=["never", "an instant later"])
    def test_that_waits_is_rejected(self, in_force_at: int | None) -> None:
        assert len(raised_late([cap(2, 0), cap(5, 3, in_force_at)])) == 1
        assert len(raised_late([cap(2, 0), cap(1, 2, None), cap(2, 3, in_force_at)])) == 1


class TestHandlers:
    RUNS = (run(1, 10, 20), run(2, 10, None))

    def test_run_within_their_runs(self) -> None:
        seen = [run(1, 10, 20), run(2, 15, None)]
        assert handlers_outside(seen, self.RUNS) == []

    @pytest.mark.parametrize(
        "seen",
        [
            pytest.param([run(1, 9, 20)], id="before the claim"),
            pytest.param([run(1, 10, 21)], id="after the end"),
            pytest.param([run(1, 10, None)], id="without end"),
            pytest.param([run(1, 10, 20, claim=2)], id="under a claim nobody gave"),
            pytest.param([run(1, 10, 20, pod="b")], id="on another pod"),
            pytest.param([run(1, 10, 12), run(1, 13, 14)], id="twice"),
        ],
    )
    def test_outside_of_their_run_are_rejected(self, seen: list[Run]) -> None:
        assert len(handlers_outside(seen, self.RUNS)) == 1


def claimed(at: int, job: int = 1, claim: int = 1, pod: str = "a", incarnation: int = 1) -> Claimed:
    return Claimed(at, job, claim, Q, pod, incarnation)


def done(at: int, job: int = 1, claim: int = 1, attempt: int = 1, rescues: int = 0) -> list[Fact]:
    return [Freed(at, job, claim), Ended(at, job, "done", claim, attempt, rescues, claim)]


def gone(at: int, *, expires_at: int = 0, draining: bool = False, replaced: bool = False) -> Gone:
    return Gone(at, "a", 1, expires_at, draining, replaced)


def history(*facts: Fact, jobs: tuple[int, ...] = (1,), harmed: tuple[str, ...] = ()) -> History:
    return History(frozenset(jobs), facts, (cap(9, 0),), (), frozenset(harmed))


PLAIN = history(claimed(1), *done(2))
RELEASED = history(claimed(1), Freed(2, 1, 1), claimed(3, claim=2, pod="b"), *done(4, claim=2))
RESCUED = history(
    claimed(1),
    gone(9, expires_at=8),
    Freed(9, 1, 1),
    claimed(11, claim=2, pod="b"),
    *done(12, claim=2, attempt=2, rescues=1),
    harmed=("a",),
)
DRAINED = history(
    claimed(1),
    gone(9, expires_at=9, draining=True),
    Freed(9, 1, 1),
    claimed(11, claim=2, pod="b"),
    *done(12, claim=2, attempt=1, rescues=1),
    harmed=("a",),
)
LAST_ATTEMPT = history(claimed(1), gone(9), Freed(9, 1, 1), Ended(9, 1, "dead", 1, 1, 0, None), harmed=("a",))


@pytest.mark.parametrize("kept", [PLAIN, RELEASED, RESCUED, DRAINED, LAST_ATTEMPT])
def test_a_history_in_which_all_went_well_is_accepted(kept: History) -> None:
    assert judge(kept) == []


def test_a_run_counts_until_its_pod_is_gone_though_it_is_rescued_later() -> None:
    [lost] = runs_of([claimed(1), gone(5), Freed(9, 1, 1)])
    assert (lost.ended, lost.lost) == (5, True)
    [own] = runs_of([claimed(1), Freed(4, 1, 1), gone(5)])
    assert (own.ended, own.lost) == (4, False)
    [other] = runs_of([claimed(1, incarnation=2), gone(5)])
    assert (other.ended, other.lost) == (None, False)


Law = Callable[[History], list[str]]


def burned(of: History) -> list[str]:
    return attempts_burned(of, runs_of(of.facts))


@pytest.mark.parametrize(
    ("law", "of"),
    [
        pytest.param(
            several_writers, history(claimed(1), claimed(2, claim=2), *done(3, claim=2)), id="claimed twice"
        ),
        pytest.param(several_writers, history(claimed(1), *done(2), Freed(3, 1, 1)), id="freed twice"),
        pytest.param(several_writers, history(Freed(2, 1, 1)), id="ended without a run"),
        pytest.param(
            several_writers, history(claimed(1, claim=2), *done(2, claim=2)), id="a claim number left out"
        ),
        pytest.param(
            several_writers,
            history(claimed(1), Freed(2, 1, 1), claimed(3, pod="b"), *done(4)),
            id="one claim number given twice",
        ),
        pytest.param(
            several_writers,
            history(claimed(1), Freed(2, 1, 1), claimed(3, claim=2), Freed(4, 1, 1)),
            id="an earlier claim ends the later run",
        ),
        pytest.param(
            several_writers,
            history(claimed(1), Freed(2, 1, 1), Ended(2, 1, "done", 1, 1, 0, told=7)),
            id="the outcome of another claim",
        ),
        pytest.param(not_ended_once, history(claimed(1), Freed(2, 1, 1)), id="never ended"),
        pytest.param(not_ended_once, history(), id="lost without a trace"),
        pytest.param(not_ended_once, history(claimed(1), *done(2), done(3)[1]), id="ended twice"),
        pytest.param(not_ended_once, history(claimed(1), *done(2), jobs=()), id="from nowhere"),
        pytest.param(
            not_ended_once, history(claimed(1), *done(2), claimed(3, claim=2)), id="runs after its end"
        ),
        pytest.param(burned, history(claimed(1), *done(2, attempt=2)), id="an attempt too many"),
        pytest.param(burned, history(claimed(1), *done(2, rescues=1)), id="a rescue that was none"),
        pytest.param(
            burned,
            history(claimed(1), Freed(2, 1, 1), claimed(3, claim=2), *done(4, claim=2, attempt=2)),
            id="a release that cost an attempt",
        ),
        pytest.param(
            burned,
            history(*RESCUED.facts),
            id="a rescue from a pod that nobody harmed",
        ),
        pytest.param(
            burned,
            history(*RESCUED.facts[:-1], Ended(12, 1, "done", 2, 1, 0, 2), harmed=("a",)),
            id="a rescue that cost nothing",
        ),
        pytest.param(
            burned,
            history(*DRAINED.facts[:-1], Ended(12, 1, "done", 2, 2, 1, 2), harmed=("a",)),
            id="a drain that cost an attempt",
        ),
        pytest.param(
            expired_early,
            history(claimed(1), gone(7, expires_at=8), Freed(7, 1, 1)),
            id="an instant too early",
        ),
    ],
)
def test_a_history_that_breaks_a_promise_is_rejected(law: Law, of: History) -> None:
    assert len(law(of)) == 1
    assert set(law(of)) <= set(judge(of))


@pytest.mark.parametrize(
    "early",
    [
        pytest.param(gone(7, expires_at=8, replaced=True), id="replaced by a later boot"),
        pytest.param(gone(2, expires_at=8), id="left with nothing running"),
    ],
)
def test_a_pod_may_be_gone_before_its_time_if(early: Gone) -> None:
    freed = Freed(1, 1, 1) if not early.replaced else Freed(early.at, 1, 1)
    assert expired_early(history(claimed(0), freed, early)) == []


def test_handlers_are_judged_by_the_same_cap() -> None:
    seen = tuple(run(job, 1, 2) for job in (1, 2))
    facts = (claimed(1), claimed(1, job=2), *done(2), *done(2, job=2))
    told = judge(History(frozenset({1, 2}), facts, (cap(1, 0),), seen))
    assert [wrong.startswith("by its handlers, job 2 of emails started") for wrong in told] == [False, True]
