"""How long a pod trusts what it was told, and how one boot follows another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from rota.cluster.membership import Membership
from rota.cluster.slots import Slots
from rota.errors import PodRetired, PodTwin
from rota.events import PodFenced, PodRegistered, PodWaits
from rota.settings import PodSettings
from rota.storage.pods import Pods
from rota.storage.rows import BeatAnswer, Boot, Report
from rota.testing import ManualClock, Recorder
from rota.words import Incarnation, PodId

TERMS = PodSettings(ttl=10.0, beat=2.0)
FREE = BeatAnswer(draining=False)


class Answers:
    """In place of the database: each call takes `delay` on the pod's clock and gives what is due."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.delay = 0.0
        self.answer: BeatAnswer | None = FREE
        self.failure: Exception | None = None
        self.standing = Incarnation(0)
        self.refusals: list[Boot] = []
        self.registered: list[dict[str, Any]] = []
        self.reports: list[Report] = []
        self.during: Callable[[], None] = lambda: None

    async def read_incarnation(self, pod: PodId) -> Incarnation:
        return self.standing

    async def register_pod(self, pod: PodId, **given: Any) -> Boot:
        self._clock.advance(self.delay)
        self.registered.append(given)
        if self.refusals:
            return self.refusals.pop(0)
        self.standing = Incarnation(self.standing + 1)
        return Boot(self.standing, None, self.standing)

    async def beat(self, pod: PodId, incarnation: Incarnation, report: Report) -> BeatAnswer | None:
        self.reports.append(report)
        self._clock.advance(self.delay)
        self.during()
        if self.failure is not None:
            raise self.failure
        return self.answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def answers(clock: ManualClock) -> Answers:
    return Answers(clock)


@pytest.fixture
def slots() -> Slots:
    return Slots(["q"], capacity=100)


@pytest.fixture
def told() -> Recorder:
    return Recorder()


@pytest.fixture
def membership(answers: Answers, slots: Slots, clock: ManualClock, told: Recorder) -> Membership:
    return Membership(
        cast("Pods", answers), TERMS, slots, queues=["q"], kinds=["k"], max_rescues=3, clock=clock, tell=told
    )


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    delays: list[float] = []

    async def sleep(delay: float) -> None:
        delays.append(delay)

    monkeypatch.setattr("rota.cluster.membership.asyncio.sleep", sleep)
    return delays


def test_a_pod_that_has_not_registered_may_start_nothing(membership: Membership) -> None:
    assert not membership.trusted
    assert membership.fence_in <= 0


async def test_trust_lasts_half_a_ttl_the_fence_falls_at_seven_tenths_and_nine_are_the_end(
    membership: Membership, clock: ManualClock
) -> None:
    await membership.register()
    clock.advance(4.9)
    assert membership.trusted
    clock.advance(0.2)
    assert not membership.trusted
    assert membership.fence_in == pytest.approx(1.9)
    assert membership.deadline_in == pytest.approx(3.9)
    clock.advance(2.0)
    assert membership.fence_in < 0 < membership.deadline_in
    clock.advance(2.0)
    assert membership.deadline_in < 0


@pytest.mark.parametrize("ask", [Membership.register, Membership.beat])
async def test_trust_is_counted_from_the_question_not_the_answer(
    membership: Membership, answers: Answers, clock: ManualClock, ask: Callable[[Membership], Any]
) -> None:
    await membership.register()
    answers.delay = 4.0
    await ask(membership)
    assert membership.fence_in == pytest.approx(3.0)
    clock.advance(1.1)
    assert not membership.trusted


async def test_a_beat_renews_trust(membership: Membership, clock: ManualClock) -> None:
    await membership.register()
    clock.advance(6.0)
    assert not membership.trusted
    assert await membership.beat() is not None
    assert membership.trusted


async def test_a_beat_that_says_this_boot_is_over_renews_nothing(
    membership: Membership, answers: Answers, clock: ManualClock
) -> None:
    await membership.register()
    answers.answer = None
    clock.advance(4.0)
    assert await membership.beat() is None
    assert membership.fence_in == pytest.approx(3.0)


@pytest.mark.parametrize("failure", [OSError(), asyncio.CancelledError()])
async def test_a_beat_that_fails_renews_nothing(
    membership: Membership, answers: Answers, clock: ManualClock, failure: Any
) -> None:
    await membership.register()
    answers.failure = failure
    clock.advance(4.0)
    with pytest.raises(type(failure)):
        await membership.beat()
    assert membership.fence_in == pytest.approx(3.0)


async def test_an_answer_that_comes_to_a_boot_that_was_fenced_meanwhile_changes_nothing(
    membership: Membership, answers: Answers, slots: Slots, clock: ManualClock
) -> None:
    await membership.register()
    clock.advance(7.0)
    answers.answer = replace(FREE, answer=1, targets={"q": 5})
    answers.during = membership.fence
    assert await membership.beat() is None
    assert slots.target("q") == 0
    assert membership.fence_in == pytest.approx(0.0)
    assert not membership.trusted


async def test_a_fence_is_told_once_and_lasts_until_the_next_boot(
    membership: Membership, clock: ManualClock, told: Recorder
) -> None:
    await membership.register()
    clock.advance(7.0)
    membership.fence()
    membership.fence()
    assert [event.silent for event in told.all(PodFenced)] == [7.0]
    await membership.register()
    assert membership.trusted


async def test_a_new_boot_has_heard_nothing_and_keeps_what_it_still_uses(
    membership: Membership, answers: Answers, slots: Slots
) -> None:
    await membership.register()
    answers.answer = replace(FREE, answer=4, timeline=1, targets={"q": 5}, lease_in=1.0)
    await membership.beat()
    slots.take("q", 0, 2)
    await membership.register()
    assert (slots.target("q"), slots.used("q")) == (0, 2)
    await membership.beat()
    assert answers.reports[-1]._replace(digest="") == Report(0, 0, ("q",), (0,), (2,), ["q"])


async def test_a_share_is_asked_for_by_a_first_beat_and_while_nobody_leads(
    membership: Membership, answers: Answers
) -> None:
    await membership.register()
    for lease_in in (0.0, 4.0, 0.0, 0.0):
        answers.answer = replace(FREE, lease_in=lease_in)
        await membership.beat()
    assert [list(report.sharing) for report in answers.reports] == [["q"], ["q"], [], ["q"]]


async def test_a_beat_says_which_settings_it_knows(membership: Membership, answers: Answers) -> None:
    await membership.register()
    answers.answer = replace(FREE, digest="one")
    await membership.beat()
    await membership.beat()
    assert [report.digest for report in answers.reports] == ["", "one"]


async def test_registering_is_told_with_the_incarnation_it_got(
    membership: Membership, answers: Answers, told: Recorder
) -> None:
    await membership.register()
    await membership.register()
    assert [event.incarnation for event in told.all(PodRegistered)] == [1, 2] == [1, membership.incarnation]
    assert [given["replaces"] for given in answers.registered] == [0, 1]
    assert answers.registered[0]["ttl"] == TERMS.ttl
    assert answers.registered[0]["name"] == membership.name


async def test_a_boot_that_came_in_between_is_looked_at_again(
    membership: Membership, answers: Answers
) -> None:
    answers.refusals = [Boot(None, None, 3)]
    await membership.register()
    assert len(answers.registered) == 2


async def test_an_earlier_boot_on_another_machine_is_waited_for(
    membership: Membership, answers: Answers, slept: list[float], told: Recorder
) -> None:
    answers.standing = Incarnation(3)
    answers.refusals = [Boot(None, 6.0, 3)]
    await membership.register()
    assert slept == [6.0] == [event.seconds for event in told.all(PodWaits)]
    assert membership.incarnation == 4


async def test_an_earlier_boot_that_outlives_the_wait_is_a_twin(
    membership: Membership, answers: Answers, slept: list[float]
) -> None:
    answers.standing = Incarnation(3)
    answers.refusals = [Boot(None, 6.0, 3), Boot(None, 9.0, 3)]
    with pytest.raises(PodTwin, match="ROTA_POD_UID"):
        await membership.register()
    assert slept == [6.0]


async def test_a_boot_that_was_retired_does_not_register_again(
    membership: Membership, answers: Answers
) -> None:
    await membership.register()
    answers.standing = Incarnation(7)
    with pytest.raises(PodRetired):
        await membership.register()
    assert len(answers.registered) == 1
