"""How long a failed job waits."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import BadOption
from rota.runtime.backoff import (
    DEFAULT,
    JITTER,
    LONGEST,
    Exponential,
    Fixed,
    Linear,
    NoRetry,
    Retry,
    policy_from_json,
    spread,
)

seconds = st.floats(0, LONGEST)
attempts = st.integers(1, 32_000)
chances = st.floats(0, 1)
fixed = st.builds(Fixed, wait=seconds)
linear = st.builds(Linear, step=seconds, longest=seconds)
exponential = st.builds(Exponential, base=seconds, factor=st.floats(0, 1_000), longest=seconds)
growing = st.builds(Exponential, base=seconds, factor=st.floats(1, 1_000), longest=seconds)
policies: st.SearchStrategy[Retry] = st.one_of(st.just(NoRetry()), fixed, linear, exponential)


def test_by_default_a_second_doubles_up_to_a_quarter_of_an_hour() -> None:
    assert [DEFAULT.delay(attempt) for attempt in (1, 2, 3, 10, 11, 5_000)] == [1, 2, 4, 512, 900, 900]


def test_linear_adds_one_step_per_attempt_up_to_its_longest() -> None:
    assert [Linear(step=10, longest=25).delay(attempt) for attempt in (1, 2, 3, 4)] == [10, 20, 25, 25]


def test_fixed_waits_the_same_every_time() -> None:
    assert {Fixed(7).delay(attempt) for attempt in (1, 2, 100)} == {7}


def test_the_policy_of_twenty_retries_is_expressible() -> None:
    cja = Exponential(base=4, factor=2, longest=LONGEST)
    assert [cja.delay(attempt) for attempt in (1, 2, 3)] == [2 ** (n + 1) for n in (1, 2, 3)]


def test_only_no_retry_does_not_retry() -> None:
    assert not NoRetry().retries
    assert all(policy.retries for policy in (Fixed(), Linear(), Exponential()))


@given(policies, attempts)
def test_a_delay_is_a_number_from_nothing_to_a_year(policy: Retry, attempt: int) -> None:
    delay = policy.delay(attempt)
    assert 0 <= delay <= LONGEST
    assert not math.isnan(delay)


@given(st.one_of(linear, exponential), attempts)
def test_a_delay_never_exceeds_the_longest(policy: Linear | Exponential, attempt: int) -> None:
    assert policy.delay(attempt) <= policy.longest


@given(st.one_of(fixed, linear, growing), attempts, attempts)
def test_a_later_attempt_never_waits_less(policy: Retry, one: int, other: int) -> None:
    earlier, later = sorted((one, other))
    assert policy.delay(earlier) <= policy.delay(later)


@given(attempts)
def test_a_policy_without_a_base_never_waits(attempt: int) -> None:
    assert Exponential(base=0).delay(attempt) == 0


@given(seconds, chances)
def test_jitter_keeps_a_delay_within_a_quarter(delay: float, chance: float) -> None:
    assert delay * (1 - JITTER) <= spread(delay, chance) <= delay * (1 + JITTER) * (1 + 1e-12)
    assert JITTER == 0.25


@given(seconds, chances, chances)
def test_more_chance_is_more_delay(delay: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert spread(delay, less) <= spread(delay, more)


def test_jitter_reaches_both_ends_and_its_middle_is_the_delay_itself() -> None:
    assert [spread(100, chance) for chance in (0, 0.5, 1)] == [75, 100, 125]


@pytest.mark.parametrize("wrong", [-1, -0.001, LONGEST * 1.01, math.nan, math.inf, -math.inf, "60", None])
def test_a_policy_out_of_range_is_refused_with_its_field(wrong: Any) -> None:
    with pytest.raises(BadOption, match="wait of Fixed"):
        Fixed(wrong)
    with pytest.raises(BadOption, match="step of Linear"):
        Linear(step=wrong)
    with pytest.raises(BadOption, match="longest of Exponential"):
        Exponential(longest=wrong)


@given(policies)
def test_a_policy_survives_the_queue_row(policy: Retry) -> None:
    assert policy_from_json(policy.to_json()) == policy


def test_a_queue_row_without_a_policy_has_none() -> None:
    assert policy_from_json(None) is None


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"policy": "sometimes"}, "'sometimes' is no retry policy"),
        ({}, "no retry policy"),
        ({"wait": 5}, "no retry policy"),
        ({"policy": "fixed", "weight": 5}, "Retry policy fixed takes wait, not weight"),
        ({"policy": "none", "wait": 5}, "Retry policy none takes nothing, not wait"),
        ({"policy": "fixed", "wait": "soon"}, "wait of Fixed is 'soon'"),
    ],
)
def test_what_a_queue_row_says_wrong_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        policy_from_json(told)


@pytest.mark.parametrize("told", [5, "fixed", ["fixed"], {"policy": ["fixed"]}])
def test_a_queue_row_with_something_quite_else_is_refused_and_not_a_bug(told: Any) -> None:
    with pytest.raises(BadOption):
        policy_from_json(told)
