"""Which queue a kind goes to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota import by_prefix, to_queue

words = st.text(alphabet="ab.", max_size=5)


def test_one_queue_for_all() -> None:
    assert {to_queue("mails")(kind) for kind in ("a", "b", "")} == {"mails"}


def test_the_longest_prefix_wins_whatever_the_order() -> None:
    for routes in ({"a.": "short", "a.b.": "long"}, {"a.b.": "long", "a.": "short"}):
        route = by_prefix(routes, default="rest")
        assert [route(kind) for kind in ("a.x", "a.b.x", "a.b", "a", "b")] == [
            "short",
            "long",
            "short",
            "rest",
            "rest",
        ]


@given(st.dictionaries(words, words), words)
def test_a_route_is_the_best_of_those_that_fit(routes: dict[str, str], kind: str) -> None:
    fitting = [prefix for prefix in routes if kind.startswith(prefix)]
    expected = routes[max(fitting, key=len)] if fitting else "rest"
    assert by_prefix(routes, default="rest")(kind) == expected


def test_routes_are_read_when_they_are_given() -> None:
    routes = {"a": "one"}
    route = by_prefix(routes, default="rest")
    assert route("ab") == "one"
