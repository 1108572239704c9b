"""Where the next claim may start to look."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.runtime.hints import Hints
from rota.storage.rows import NO_HINT, Hint
from rota.testing import ManualClock

KINDS = ("a", "b")
Row = tuple[int, None, None, None, int, None, str]


def row(id: int, kind: str = "a", priority: int = 0) -> Row:
    """A claimed job, as far as hints read one."""
    return (id, None, None, None, priority, None, kind)


def made(clock: ManualClock | None = None) -> Hints:
    return Hints(KINDS, clock or ManualClock())


def test_at_first_every_kind_is_looked_for_from_the_beginning() -> None:
    assert made().current() == [NO_HINT, NO_HINT]


def test_after_a_full_claim_the_next_starts_behind_it() -> None:
    hints = made()
    assert hints.learn([row(7), row(5)], most=2)
    assert hints.current() == [Hint(0, 8), NO_HINT]


def test_a_hint_is_per_kind_and_in_the_order_of_the_kinds() -> None:
    hints = made()
    hints.learn([row(9, "b"), row(3, "a")], most=2)
    assert hints.current() == [Hint(0, 4), Hint(0, 10)]


def test_a_lower_priority_is_further_on_than_any_id_of_a_higher() -> None:
    hints = made()
    hints.learn([row(900, priority=5), row(3, priority=1)], most=2)
    assert hints.current()[0] == Hint(-1, 4)


def test_a_hint_never_moves_back() -> None:
    hints = made()
    hints.learn([row(50)], most=1)
    hints.learn([row(20)], most=1)
    assert hints.current()[0] == Hint(0, 51)


def test_a_hint_lives_for_a_second_from_its_first_use() -> None:
    clock = ManualClock()
    hints = made(clock)
    hints.learn([row(5)], most=1)
    clock.advance(0.9)
    hints.learn([row(6)], most=1)
    assert hints.current()[0] == Hint(0, 7)
    clock.advance(0.2)
    assert hints.current() == [NO_HINT, NO_HINT]


def test_a_short_claim_under_a_hint_is_asked_again_without() -> None:
    hints = made()
    hints.learn([row(5)], most=1)
    assert hints.learn([], most=1), "there may be more before the hint"
    assert hints.current() == [NO_HINT, NO_HINT]


def test_a_short_claim_without_a_hint_found_all_there_was() -> None:
    assert not made().learn([row(5)], most=2)
    assert not made().learn([], most=1)


def test_a_forgotten_hint_starts_a_new_life() -> None:
    clock = ManualClock()
    hints = made(clock)
    hints.learn([row(5)], most=1)
    clock.advance(0.9)
    hints.forget()
    hints.learn([row(2)], most=1)
    clock.advance(0.9)
    assert hints.current()[0] == Hint(0, 3)


@given(
    st.lists(
        st.tuples(st.integers(1, 100), st.sampled_from(KINDS), st.integers(-3, 3)), min_size=1, max_size=20
    )
)
def test_a_hint_never_passes_over_what_the_claim_did_not_reach(taken: list[tuple[int, str, int]]) -> None:
    hints = made()
    hints.learn([row(*job) for job in taken], most=len(taken))
    for kind, hint in zip(KINDS, hints.current(), strict=True):
        reached = [(-priority, id) for id, of, priority in taken if of == kind]
        assert (hint.rank, hint.id - 1) == max(reached) if reached else hint == NO_HINT
