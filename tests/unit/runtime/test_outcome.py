"""What becomes of a job whose run did not simply return."""

from __future__ import annotations

import math
import pickle
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.runtime.backoff import DEFAULT, Exponential, Fixed, NoRetry
from rota.runtime.outcome import (
    COOL_DOWN,
    Cancelled,
    Dead,
    Failed,
    Outcome,
    Policy,
    Release,
    Throttled,
    TimedOut,
    judge,
)

YEAR = 366 * 86_400.0
FIRST_OF_FIVE = Policy(attempt=1, max_attempts=5, retry=DEFAULT)
LAST_OF_FIVE = Policy(attempt=5, max_attempts=5, retry=DEFAULT)
MIDDLE = 0.5
"""The chance that leaves a delay as it is."""


def raised(error: BaseException) -> BaseException:
    """The error with a traceback, as one that was really raised has."""
    try:
        raise error
    except BaseException as caught:
        return caught


class NoWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("an error that cannot be told")


def test_release_hands_back_after_its_delay_and_is_no_error() -> None:
    verdict = judge(Release(3), FIRST_OF_FIVE, MIDDLE)
    assert (verdict.outcome, verdict.delay, verdict.error) == ("release", 3, None)


def test_throttled_keeps_to_the_upstreams_hint() -> None:
    verdict = judge(Throttled(7), FIRST_OF_FIVE, MIDDLE)
    assert (verdict.outcome, verdict.delay, verdict.error) == ("throttle", 7, None)


def test_throttled_without_a_hint_cools_down_for_a_minute() -> None:
    assert judge(Throttled(), FIRST_OF_FIVE, MIDDLE).delay == COOL_DOWN == 60


def test_a_hint_of_no_time_at_all_is_a_hint() -> None:
    assert judge(Throttled(0), FIRST_OF_FIVE, MIDDLE).delay == 0


@pytest.mark.parametrize("policy", [FIRST_OF_FIVE, LAST_OF_FIVE])
@pytest.mark.parametrize(("outcome", "word"), [(Dead, "dead"), (Cancelled, "cancelled")])
def test_dead_and_cancelled_end_the_job_at_once(policy: Policy, outcome: type[Outcome], word: str) -> None:
    verdict = judge(outcome("no such user"), policy, MIDDLE)
    assert (verdict.outcome, verdict.reason) == (word, "no such user")


@pytest.mark.parametrize("error", [Release(), Throttled(1)])
def test_what_is_not_counted_goes_back_even_after_the_last_attempt(error: Outcome) -> None:
    assert judge(error, LAST_OF_FIVE, MIDDLE).outcome in ("release", "throttle")


@pytest.mark.parametrize(
    "error", [Failed("known"), ValueError("x"), TimedOut("late"), SystemExit(3), KeyboardInterrupt()]
)
def test_any_other_exception_is_retried_while_attempts_are_left(error: BaseException) -> None:
    assert judge(error, FIRST_OF_FIVE, MIDDLE).outcome == "retry"
    assert judge(error, LAST_OF_FIVE, MIDDLE).outcome == "dead"


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_failure_is_retried_exactly_until_its_attempts_are_used_up(attempt: int, most: int) -> None:
    verdict = judge(ValueError(), Policy(attempt, most, DEFAULT), MIDDLE)
    assert verdict.outcome == ("retry" if attempt < most else "dead")


def test_a_retry_waits_as_its_policy_says_with_jitter() -> None:
    third = Policy(attempt=3, max_attempts=5, retry=Exponential(base=10, factor=3))
    assert [judge(ValueError(), third, chance).delay for chance in (0, MIDDLE, 1)] == [67.5, 90, 112.5]


def test_a_policy_that_does_not_retry_makes_the_first_failure_the_last() -> None:
    assert judge(ValueError(), Policy(1, 5, NoRetry()), MIDDLE).outcome == "dead"


def test_a_fatal_error_is_not_retried_nor_is_its_subclass() -> None:
    policy = Policy(1, 5, DEFAULT, fatal=(LookupError,))
    assert judge(KeyError("x"), policy, MIDDLE).outcome == "dead"
    assert judge(ValueError("x"), policy, MIDDLE).outcome == "retry"


def test_a_release_is_a_release_though_all_errors_are_fatal() -> None:
    policy = Policy(1, 5, DEFAULT, fatal=(Exception,))
    assert judge(Release(), policy, MIDDLE).outcome == "release"


def test_an_exception_is_told_with_type_message_and_traceback() -> None:
    error = judge(raised(KeyError("user")), FIRST_OF_FIVE, MIDDLE).error
    assert error is not None
    assert (error["type"], error["message"]) == ("KeyError", "'user'")
    assert "in raised\n    raise error\nKeyError: 'user'" in error["traceback"]


@pytest.mark.parametrize("error", [Failed("known"), Dead("known"), TimedOut("known")])
def test_a_known_reason_needs_no_traceback(error: BaseException) -> None:
    assert judge(raised(error), LAST_OF_FIVE, MIDDLE).error == {
        "type": type(error).__name__,
        "message": "known",
    }


def test_an_exception_without_a_message_is_told_by_its_type() -> None:
    assert judge(raised(KeyboardInterrupt()), LAST_OF_FIVE, MIDDLE).reason == "KeyboardInterrupt"


def test_an_exception_that_cannot_be_told_is_a_failure_like_any_other() -> None:
    verdict = judge(raised(NoWords()), FIRST_OF_FIVE, MIDDLE)
    assert verdict.outcome == "retry"
    assert "NoWords" in str(verdict.reason)


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_whatever_a_message_holds_it_can_be_stored(text: str) -> None:
    error = judge(raised(ValueError(text)), LAST_OF_FIVE, MIDDLE).error
    stored = orjson.dumps(error).decode()
    assert "\\u0000" not in stored
    assert "\x00" not in stored


def test_a_nul_in_a_message_is_shown_not_dropped() -> None:
    assert judge(ValueError("a\x00b"), LAST_OF_FIVE, MIDDLE).reason == "a␀b"


def test_a_huge_message_is_cut() -> None:
    error = judge(raised(ValueError("x" * 10_000_000)), LAST_OF_FIVE, MIDDLE).error
    assert error is not None
    assert len(error["message"]) <= 2_000
    assert len(error["traceback"]) <= 8_000


@given(st.one_of(st.floats(), st.integers()))
def test_whatever_number_a_handler_gives_the_delay_is_within_a_year(number: float) -> None:
    for outcome in (Release(number), Throttled(number)):
        assert 0 <= judge(outcome, FIRST_OF_FIVE, MIDDLE).delay <= YEAR


@pytest.mark.parametrize(
    ("given", "taken"), [(math.nan, 0), (-5, 0), (math.inf, YEAR), (-math.inf, 0), (1e300, YEAR), (True, 1)]
)
def test_an_odd_delay_is_brought_within_reason(given: float, taken: float) -> None:
    assert judge(Release(given), FIRST_OF_FIVE, MIDDLE).delay == taken


@pytest.mark.parametrize(
    ("header", "taken"), [("120", 120), ("Wed, 21 Oct 2026 07:28:00 GMT", COOL_DOWN), (object(), COOL_DOWN)]
)
def test_a_hint_that_is_no_number_counts_as_none(header: Any, taken: float) -> None:
    """A Retry-After header may hold a date, and handlers pass it on as it came."""
    assert judge(Throttled(header), FIRST_OF_FIVE, MIDDLE).delay == taken


@pytest.mark.parametrize(
    "outcome",
    [Release(), Release(2.5), Throttled(), Throttled(9), Failed("a"), Failed(), Dead("b"), Cancelled("c")],
)
def test_an_outcome_crosses_over_from_a_child_process(outcome: Outcome) -> None:
    there_and_back = pickle.loads(pickle.dumps(outcome))
    assert judge(there_and_back, FIRST_OF_FIVE, MIDDLE) == judge(outcome, FIRST_OF_FIVE, MIDDLE)


def test_a_custom_policy_that_fails_does_not_take_the_verdict_with_it() -> None:
    class Broken(Fixed):
        def delay(self, attempt: int) -> float:
            raise ZeroDivisionError

    verdict = judge(ValueError("the job's own"), Policy(1, 5, Broken()), MIDDLE)
    assert verdict.outcome == "retry"
    assert verdict.reason == "the job's own"


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 1e300, "soon"])
def test_a_custom_policy_is_kept_within_reason(odd: Any) -> None:
    class Odd(Fixed):
        def delay(self, attempt: int) -> float:
            return odd  # type: ignore[no-any-return]

    assert 0 <= judge(ValueError(), Policy(1, 5, Odd()), MIDDLE).delay <= YEAR * 1.25
