"""A pod's own side of the slots: what is used never exceeds what it was told and what it says."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Lock, current_thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cluster.rules import NOTHING, Said, after_beat, after_plan
from rota.cluster.slots import Heeded, Slots
from rota.cluster.view import Assignment
from rota.storage.rows import Report

Q, R = "q", "r"


def told(slots: Slots, answer: int = 1, **targets: int) -> Heeded:
    return slots.heed(1, answer, targets)


def with_target(target: int, *, capacity: int = 100) -> Slots:
    slots = Slots([Q, R], capacity)
    told(slots, q=target)
    return slots


def run(slots: Slots, jobs: int, queue: str = Q) -> None:
    """So many jobs were claimed and run."""
    assert slots.take(queue, 0, jobs) == jobs
    slots.give(queue, jobs, jobs, flew=True)


def said(slots: Slots, queue: str = Q) -> Said:
    """What a beat sent now says of a queue."""
    report = slots.report(sharing=False, digest="")
    return {
        name: Said(acts, uses) for name, acts, uses in zip(report.busy, report.acts, report.uses, strict=True)
    }.get(queue, Said())


def test_nothing_may_be_taken_before_a_target_was_told() -> None:
    slots = Slots([Q], 100)
    assert slots.may_take(Q) == slots.take(Q, 0, 5) == 0
    assert slots.report(sharing=False, digest="x") == Report(0, 0, (), (), (), (), "x")


def test_slots_are_taken_up_to_the_target_and_not_beyond() -> None:
    slots = with_target(3)
    assert slots.may_take(Q) == 3
    assert slots.take(Q, 0, 2) == 2
    assert slots.take(Q, 0, 2) == 1
    assert slots.take(Q, 0, 2) == 0
    assert slots.used(Q) == 3


def test_slots_are_in_use_from_before_the_claim_is_sent() -> None:
    slots = with_target(3)
    slots.take(Q, 0, 3)
    assert said(slots) == (3, 3)
    slots.give(Q, 3, 1, flew=True)
    assert slots.used(Q) == 1
    assert said(slots) == (3, 1)


def test_a_claim_may_fill_the_slots_of_the_runs_it_ends() -> None:
    slots = with_target(3)
    run(slots, 3)
    assert slots.take(Q, 2, 9) == 2
    assert slots.used(Q) == 3
    slots.give(Q, 2, 1, flew=True)
    assert slots.used(Q) == 2


@pytest.mark.parametrize(("giving", "most", "taken"), [(3, 1, 3), (1, 1, 1), (0, 1, 1)])
def test_until_the_answer_the_greater_of_what_ends_and_what_is_claimed_is_in_use(
    giving: int, most: int, taken: int
) -> None:
    slots = with_target(4)
    run(slots, 3)
    assert slots.take(Q, giving, 1) == most
    assert slots.used(Q) == 3 - giving + taken


def test_while_it_shrinks_ended_runs_are_given_back_and_no_more_is_claimed_than_the_target() -> None:
    slots = with_target(5)
    run(slots, 5)
    told(slots, 2, q=2)
    assert slots.take(Q, 2, 5) == 0
    slots.give(Q, 2, 0, flew=False)
    assert slots.used(Q) == 3
    assert slots.take(Q, 2, 5) == 1, "one of the two ended runs' slots stays"


def test_capacity_is_shared_by_all_queues() -> None:
    slots = Slots([Q, R], capacity=5)
    told(slots, q=4, r=4)
    assert slots.take(Q, 0, 9) == 4
    assert slots.take(R, 0, 9) == 1
    assert slots.take(R, 1, 9) == 1


def test_runs_whose_outcome_did_not_get_through_stay_in_use_beside_the_claim() -> None:
    slots = with_target(3)
    run(slots, 3)
    assert slots.take(Q, 2, 2) == 2
    slots.keep(Q, 2)
    assert slots.used(Q) == 5, "the claim may have been made, and the runs are to be written again"
    assert slots.may_take(Q) == 0
    slots.give(Q, 2, 0, flew=True)
    assert slots.used(Q) == 3


def test_an_answer_says_which_queues_rise_and_which_fall() -> None:
    slots = Slots([Q, R], 100)
    assert told(slots, 1, q=3, r=3) == Heeded((Q, R), ())
    assert told(slots, 2, q=3, r=3) == Heeded()
    assert told(slots, 3, q=4, r=1) == Heeded((Q,), (R,))
    assert told(slots, 4) == Heeded((), (Q, R)), "a queue that is left out has no slots"


def test_an_answer_older_than_one_that_was_heard_is_ignored() -> None:
    slots = with_target(3)
    assert slots.heed(1, 3, {Q: 1}) == Heeded((), (Q,))
    for timeline, answer in [(1, 3), (1, 2), (0, 9)]:
        assert slots.heed(timeline, answer, {Q: 5}) == Heeded()
    assert slots.target(Q) == 1
    assert slots.heed(2, 1, {Q: 5}) == Heeded((Q,), ()), "a new timeline counts from the beginning"


def test_a_report_names_the_answer_that_was_heard_last() -> None:
    slots = with_target(3)
    slots.heed(7, 42, {Q: 2})
    assert slots.report(sharing=False, digest="d") == Report(7, 42, (Q,), (2,), (0,), (), "d")


def test_a_share_is_asked_for_only_of_queues_without_an_assignment() -> None:
    slots = with_target(0)
    assert list(slots.report(sharing=True, digest="").sharing) == [R]
    assert list(slots.report(sharing=False, digest="").sharing) == []


def test_while_a_claim_is_under_way_a_report_says_what_it_was_sent_under() -> None:
    """A target that falls meanwhile is acknowledged when the claim has been answered, not before."""
    slots = with_target(5)
    run(slots, 1)
    slots.take(Q, 0, 4)
    told(slots, 2, q=2)
    assert said(slots) == (5, 5)
    assert slots.give(Q, 4, 1, flew=True), "others wait for what was given back"
    assert said(slots) == (2, 2)


def test_what_others_wait_for_is_said_at_once_and_nothing_else() -> None:
    slots = with_target(5)
    run(slots, 5)
    slots.take(Q, 2, 2)
    assert not slots.give(Q, 2, 0, flew=True), "nobody waits"
    told(slots, 2, q=1)
    slots.take(Q, 1, 0)
    assert slots.give(Q, 1, 0, flew=False)
    slots.take(Q, 1, 0)
    assert slots.give(Q, 1, 0, flew=False)
    slots.take(Q, 1, 0)
    assert not slots.give(Q, 1, 0, flew=False), "it has its target"


def test_closed_slots_take_nothing_more() -> None:
    slots = with_target(5)
    run(slots, 2)
    slots.close()
    assert slots.may_take(Q) == slots.take(Q, 2, 5) == 0


def test_a_new_boot_has_heard_nothing_but_keeps_what_it_uses() -> None:
    slots = with_target(5)
    run(slots, 2)
    slots.begin()
    assert slots.may_take(Q) == 0
    assert slots.report(sharing=True, digest="") == Report(0, 0, (Q,), (0,), (2,), [Q, R], "")
    assert slots.heed(1, 1, {Q: 3}) == Heeded((Q,), ()), "answers are counted from the beginning"


def test_a_job_that_runs_alone_is_taken_by_an_empty_pod_only() -> None:
    slots = with_target(5)
    slots.hush(True)
    assert slots.take(Q, 0, 5) == 0
    assert slots.take_alone(Q)
    assert not slots.take_alone(Q)
    assert said(slots) == (5, 1)
    slots.give(Q, 1, 0, flew=True)
    slots.hush(False)
    run(slots, 1)
    assert not slots.take_alone(Q)
    assert not slots.take_alone(R)


numbers = st.integers(0, 6)


@given(numbers, numbers, numbers, numbers, numbers)
def test_no_claim_asks_for_more_than_the_target_leaves(
    first: int, runs: int, then: int, giving: int, wanting: int
) -> None:
    slots = with_target(first)
    runs = slots.take(Q, 0, runs)
    slots.give(Q, runs, runs, flew=runs > 0)
    told(slots, 2, q=then)
    giving = min(giving, runs)
    most = slots.take(Q, giving, wanting)
    assert 0 <= most <= wanting
    if most:
        assert runs - giving + most <= then
    assert slots.used(Q) == runs - giving + max(giving, most)


class Worker:
    """The thread that runs handlers: claims come and go, in any number."""

    def __init__(self, slots: Slots, seed: int) -> None:
        self._slots = slots
        self._any = random.Random(seed)
        self._runs = 0
        self._away: list[tuple[int, int]] = []

    def work(self, operations: int) -> None:
        for _ in range(operations):
            self._any.choice((self._send, self._send, self._land))()
        while self._away:
            self._land()

    def _send(self) -> None:
        giving = self._any.randint(0, self._runs)
        most = self._slots.take(Q, giving, self._any.randint(0, 4))
        self._runs -= giving
        self._away.append((max(giving, most), most))

    def _land(self) -> None:
        if self._away:
            taken, most = self._away.pop(self._any.randrange(len(self._away)))
            rows = self._any.randint(0, most)
            self._runs += rows
            self._slots.give(Q, taken, rows, flew=most > 0)


class Beater:
    """The thread that beats, and behind it the database: one queue, this pod and a greedy other."""

    CAP = 6

    def __init__(self, slots: Slots, seed: int) -> None:
        self._slots = slots
        self._any = random.Random(seed)
        self._rows = {"us": NOTHING, "other": NOTHING}
        self._answer = 0

    def beat(self) -> None:
        spoken = said(self._slots)
        self._see(max(spoken), "a report covers whatever is used under it")
        row = after_beat(self._rows["us"], spoken, latest=True, learns=False)
        assert row is not None
        self._rows["us"] = row
        self._plan()
        self._see(self._rows["us"].held, "the database never believes that less is used")
        self._answer += 1
        self._slots.heed(1, self._answer, {Q: self._rows["us"].target})
        self._see(self._rows["us"].held, "nor when a new target is acted on")

    def _plan(self) -> None:
        ours = self._any.randint(0, self.CAP)
        self._rows = after_plan(self._rows, {"us": ours, "other": self.CAP - ours}, self.CAP)
        other = self._rows["other"]
        # The other gives back at once, and takes at once what it is given.
        self._rows["other"] = Assignment(other.target, other.target, other.target)
        assert sum(row.held for row in self._rows.values()) <= self.CAP

    def _see(self, most: int, claim: str) -> None:
        for _ in range(3):
            assert self._slots.used(Q) <= most, claim


class Contested:
    """A lock before and after which one of the threads dawdles, so that the other gets far."""

    def __init__(self, slow: str) -> None:
        self._lock = Lock()
        self._slow = slow

    def __enter__(self) -> None:
        self._dawdle()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()
        self._dawdle()

    def _dawdle(self) -> None:
        if current_thread().name.startswith(self._slow):
            time.sleep(0.0002)


@pytest.fixture
def in_turns() -> Iterator[None]:
    """Threads take turns as often as they can, so that the slow one does not wait for the other."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("in_turns")
@pytest.mark.parametrize("slow", ["worker", "MainThread"])
@pytest.mark.parametrize("seed", range(2))
def test_two_threads_never_use_more_than_the_database_believes(
    slow: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.cluster.slots.Lock", partial(Contested, slow))
    slots = Slots([Q], 100)
    worker, beater, over = Worker(slots, seed), Beater(slots, seed + 1_000), Event()

    def work() -> None:
        try:
            worker.work(300 if slow == "worker" else 20_000)
        finally:
            over.set()

    with ThreadPoolExecutor(1, thread_name_prefix="worker") as thread:
        working = thread.submit(work)
        try:
            for _ in range(100_000):
                if over.is_set():
                    break
                beater.beat()
        finally:
            working.result()
    assert slots.used(Q) == worker._runs
