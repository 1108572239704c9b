"""A queue's settings as people type them."""

from __future__ import annotations

import pytest

from rota.cli.queue_settings import read_retry, read_settings, read_whole, say_retry
from rota.errors import BadOption
from rota.runtime.backoff import Exponential, Fixed, Linear, NoRetry, Retry


def test_several_settings_are_read_at_once() -> None:
    assert read_settings(["max-workers=40", "paused=no", "retry=fixed:wait=30s"]) == {
        "max_workers": 40,
        "paused": False,
        "retry": Fixed(30),
    }


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["colour=red"], "'colour' is no setting of a queue; max_workers, paused, retry can be set."),
        (["max_workers"], "write NAME=VALUE, with one of max_workers, paused, retry."),
        ([], "Nothing is to be set; write NAME=VALUE"),
        (["paused=maybe"], "paused is 'maybe'; it must be true or false."),
        (["paused=true", "paused=true"], "paused is given twice."),
        (["retry=sometimes"], "take one of default, none, fixed, linear, exponential."),
        (["retry=fixed:wait"], "write it as wait=30s or factor=2."),
        (["retry=fixed:wait=long"], "write it as wait=30s or factor=2."),
        (["retry=exponential:factor=two"], "write it as wait=30s or factor=2."),
        (["retry=fixed:pause=3s"], "Retry policy fixed takes wait, not pause."),
        (["retry=fixed:wait=9999w"], "must be between 0 and a year"),
        (["retry=exponential:factor=nan"], "must be between 0 and a year"),
        (["retry={"], "The retry policy is not JSON"),
        (['retry={"policy": "odd"}'], "'odd' is no retry policy"),
    ],
)
def test_what_cannot_be_set_is_refused_in_one_sentence(pairs: list[str], said: str) -> None:
    with pytest.raises(BadOption) as error:
        read_settings(pairs)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("default", None),
        ("none", NoRetry()),
        ("fixed", Fixed()),
        ("linear:step=1m, longest=1h", Linear(60, 3600)),
        ("exponential:base=2s,factor=1.5,longest=10m", Exponential(2, 1.5, 600)),
        ('{"policy": "fixed", "wait": 5}', Fixed(5)),
    ],
)
def test_a_policy_is_read_as_it_is_said(text: str, policy: Retry | None) -> None:
    assert read_retry(text) == policy
    if policy is not None:
        assert read_retry(say_retry(policy.to_json())) == policy


def test_a_queue_without_a_policy_has_the_default_one() -> None:
    assert say_retry(None) == "default (exponential:base=1s,factor=2,longest=15m)"


@pytest.mark.parametrize(("text", "number"), [("40", 40), ("-5", -5), ("0", 0), ("4.0", "4.0"), ("x", "x")])
def test_whole_numbers_are_read_and_the_rest_left_to_be_refused(text: str, number: object) -> None:
    assert read_whole(text) == number
