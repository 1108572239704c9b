"""Spans of time as people type them."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.durations import UNITS, parse_duration, say_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("2h", 7_200),
        ("1d", 86_400),
        ("1w", 604_800),
        ("500ms", 0.5),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("1.5h", 5_400),
        ("90", 90),
        ("0.25", 0.25),
        ("0", 0),
        (" 5M ", 300),
    ],
)
def test_a_duration_is_read_in_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-5s", "5x", "s", "5 minutes", "1e3", "nan", "inf", "1h-5m", "٣s"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="30s, 5m, 2h"):
        parse_duration(text)


@given(st.integers(1, 999), st.sampled_from(sorted(UNITS)))
def test_a_number_and_a_unit_is_their_product(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == pytest.approx(number * UNITS[unit])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0042, "4ms"),
        (1, "1s"),
        (2.5, "2.5s"),
        (59.99, "60s"),
        (60, "1m"),
        (5_400, "1h30m"),
        (90_061, "1d1h"),
    ],
)
def test_a_duration_is_said_in_at_most_two_units(seconds: float, said: str) -> None:
    assert say_duration(seconds) == said


@given(st.integers(60, 10_000_000))
def test_what_is_said_can_be_read_again(seconds: int) -> None:
    assert parse_duration(say_duration(seconds)) == pytest.approx(seconds, rel=0.05)
