"""Who a pod is, what it is called, and how long it trusts what it was told."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cluster.membership import Membership, identity, label
from rota.events import PodRegistered
from rota.settings import PodSettings
from rota.storage.pods import Pods
from rota.storage.rows import BeatAnswer
from rota.testing import ManualClock, Recorder
from rota.words import PodId

POD = PodId(uuid.UUID("abcd0000-0000-4000-8000-000000000000"))
PLAIN = PodSettings()
TERMS = PodSettings(ttl=10.0, beat=2.0)
parts = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        (PLAIN, "rota-worker-abcd"),
        (replace(PLAIN, version="1.2"), "rota-worker-1.2-abcd"),
        (replace(PLAIN, prefix="shop", version="1.2", id="7"), "shop-worker-1.2-7"),
        (replace(PLAIN, prefix="shop", id="7"), "shop-worker-7"),
        (replace(PLAIN, prefix=""), "worker-abcd"),
    ],
)
def test_a_pod_is_labelled_by_prefix_version_and_id(terms: PodSettings, name: str) -> None:
    assert label(terms, POD) == name


def test_without_a_kubernetes_uid_every_boot_is_another_pod() -> None:
    assert len({identity(PLAIN) for _ in range(100)}) == 100


def test_the_same_container_of_the_same_kubernetes_pod_is_the_same_pod() -> None:
    terms = replace(PLAIN, uid="u-1", container="worker")
    assert identity(terms) == identity(replace(terms, version="2", prefix="other", id="9"))


@given(st.tuples(parts.filter(bool), parts), st.tuples(parts.filter(bool), parts))
def test_another_uid_or_container_is_another_pod(one: tuple[str, str], other: tuple[str, str]) -> None:
    same = identity(replace(PLAIN, uid=one[0], container=one[1])) == identity(
        replace(PLAIN, uid=other[0], container=other[1])
    )
    assert same == (one == other)


def test_a_name_is_no_identity() -> None:
    assert identity(replace(PLAIN, id="web-1")) != identity(replace(PLAIN, id="web-1"))


class Answers:
    """In place of the database: each call takes `delay` on the pod's clock and gives what is due."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.delay = 0.0
        self.answer: BeatAnswer | None = BeatAnswer(draining=False)
        self.failure: Exception | None = None
        self.registered: list[dict[str, Any]] = []

    async def register_pod(self, pod: PodId, **given: Any) -> int:
        self._clock.advance(self.delay)
        self.registered.append(given)
        return len(self.registered)

    async def beat(self, *given: Any) -> BeatAnswer | None:
        self._clock.advance(self.delay)
        if self.failure is not None:
            raise self.failure
        return self.answer


Setting = tuple[Membership, Answers, ManualClock, Recorder]


@pytest.fixture
def setting() -> Setting:
    clock, told = ManualClock(100.0), Recorder()
    answers = Answers(clock)
    membership = Membership(
        cast("Pods", answers), TERMS, queues=["q"], kinds=["k"], max_rescues=3, clock=clock, tell=told
    )
    return membership, answers, clock, told


def test_a_pod_that_has_not_registered_may_start_nothing(setting: Setting) -> None:
    membership, *_ = setting
    assert not membership.trusted
    assert membership.fence_in <= 0


async def test_trust_lasts_half_a_ttl_and_the_fence_falls_at_seven_tenths(setting: Setting) -> None:
    membership, _, clock, _ = setting
    await membership.register()
    clock.advance(4.9)
    assert membership.trusted
    clock.advance(0.2)
    assert not membership.trusted
    assert membership.fence_in == pytest.approx(1.9)
    clock.advance(2.0)
    assert membership.fence_in < 0


@pytest.mark.parametrize("ask", [Membership.register, Membership.beat])
async def test_trust_is_counted_from_the_question_not_the_answer(
    setting: Setting, ask: Callable[[Membership], Any]
) -> None:
    membership, answers, clock, _ = setting
    await membership.register()
    answers.delay = 4.0
    await ask(membership)
    assert membership.fence_in == pytest.approx(3.0)
    clock.advance(1.1)
    assert not membership.trusted


async def test_a_beat_renews_trust(setting: Setting) -> None:
    membership, _, clock, _ = setting
    await membership.register()
    clock.advance(6.0)
    assert not membership.trusted
    assert await membership.beat() is not None
    assert membership.trusted


async def test_a_beat_that_says_this_boot_is_over_renews_nothing(setting: Setting) -> None:
    membership, answers, clock, _ = setting
    await membership.register()
    answers.answer = None
    clock.advance(4.0)
    assert await membership.beat() is None
    assert membership.fence_in == pytest.approx(3.0)


@pytest.mark.parametrize("failure", [OSError(), asyncio.CancelledError()])
async def test_a_beat_that_fails_renews_nothing(setting: Setting, failure: Any) -> None:
    membership, answers, clock, _ = setting
    await membership.register()
    answers.failure = failure
    clock.advance(4.0)
    with pytest.raises(type(failure)):
        await membership.beat()
    assert membership.fence_in == pytest.approx(3.0)


async def test_registering_is_told_with_the_incarnation_it_got(setting: Setting) -> None:
    membership, answers, _, told = setting
    await membership.register()
    await membership.register()
    assert [event.incarnation for event in told.all(PodRegistered)] == [1, 2] == [1, membership.incarnation]
    assert answers.registered[0]["ttl"] == TERMS.ttl
    assert answers.registered[0]["name"] == membership.name
