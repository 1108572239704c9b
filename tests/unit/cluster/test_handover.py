"""How far a queue's slots have come."""

from __future__ import annotations

from uuid import UUID

import pytest

from rota.cluster.handover import Standing, rehearse, standing
from rota.cluster.view import Assignment, ClusterView, Picture, PodView, QueueView
from rota.words import PodId, QueueName

EMAILS = QueueName("emails")
A, B = (PodId(UUID(int=number)) for number in (1, 2))
NAMES = {A: "rota-a", B: "rota-b"}


def picture(
    cap: int,
    *rows: tuple[PodId, int, int],
    capacity: int = 10,
    gone: tuple[PodId, ...] = (),
    silent: tuple[PodId, ...] = (),
    paused: bool = False,
) -> Picture:
    """Two pods; rows are (pod, target, held)."""
    pods = tuple(
        PodView(pod, frozenset({EMAILS}), capacity, draining=pod in (*gone, *silent), joined=place)
        for place, pod in enumerate((A, B))
    )
    assignments = {(EMAILS, pod): Assignment(target, held, target) for pod, target, held in rows}
    view = ClusterView((QueueView(EMAILS, cap, paused),), pods, assignments)
    return Picture(view, NAMES, frozenset(silent))


def stands(*arguments: object, **more: object) -> Standing:
    found = standing(picture(*arguments, **more), "emails")  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_queue_that_is_not_there_stands_nowhere() -> None:
    assert standing(picture(4), "reports") is None
    assert rehearse(picture(4), "reports", max_workers=1, cause="a test") is None


def test_slots_are_settled_when_all_are_granted_and_none_is_to_be_given_back() -> None:
    assert stands(4, (A, 2, 2), (B, 2, 2)).settled


@pytest.mark.parametrize(
    "rows",
    [
        [(A, 2, 2)],
        [(A, 2, 2), (B, 2, 3)],
        [(A, 0, 2), (B, 2, 2)],
        [],
    ],
)
def test_slots_on_their_way_are_not_settled(rows: list[tuple[PodId, int, int]]) -> None:
    assert not stands(4, *rows).settled


def test_a_cap_above_all_capacity_settles_at_the_capacity_and_says_what_is_short() -> None:
    where = stands(40, (A, 6, 6), (B, 6, 6), capacity=6)
    assert where.settled
    assert where.shortage == "pods can hold 12 of 40"


def test_what_a_pod_has_of_other_queues_is_not_grantable() -> None:
    queues = (QueueView(EMAILS, 10), QueueView(QueueName("reports"), 10))
    pod = PodView(A, frozenset(queue.name for queue in queues), capacity=10)
    where = standing(Picture(ClusterView(queues, (pod,))), "emails")
    assert where is not None
    assert where.shortage == "pods can hold 5 of 10"


def test_a_paused_queue_settles_at_nothing_and_is_short_of_nothing() -> None:
    where = stands(40, paused=True)
    assert where.settled
    assert where.shortage is None


def test_nobody_is_waited_for_where_only_silent_pods_hold_slots() -> None:
    where = stands(1, (A, 3, 3), (B, 3, 3), silent=(A, B))
    assert where.deserted
    assert where.shortage == "no live pod serves it"


def test_a_draining_pod_is_waited_for() -> None:
    where = stands(1, (A, 0, 3), gone=(A, B))
    assert not where.deserted
    assert where.shortage == "no live pod serves it"


def test_who_gives_most_back_is_told_first() -> None:
    assert stands(2, (A, 1, 3), (B, 1, 6)).left() == "rota-b gives back 5, rota-a gives back 2"
    assert stands(2, (A, 1, 3), (B, 1, 6)).left(most=1) == "rota-b gives back 5 and 1 more pods"
    assert stands(2, (A, 0, 3), silent=(A,)).left() == "rota-a fell silent with 3"


def test_what_no_pod_is_waited_for_is_told_too() -> None:
    assert stands(4, (A, 1, 1)).left() == "1 of 4 are granted"
    assert stands(4, (A, 5, 5), (B, 5, 5)).left() == "6 are to be taken back by the leader's next plan"


def test_a_rehearsal_shows_the_plan_of_the_changed_cap_and_changes_nothing() -> None:
    before = picture(4, (A, 2, 2), (B, 2, 2))
    plan = rehearse(before, "emails", max_workers=7, cause="emails was resized")
    assert plan is not None
    assert sum(move.after for move in plan.moves) == 7
    assert [(move.name, move.before, move.held) for move in plan.moves] == [
        ("rota-a", 2, 2),
        ("rota-b", 2, 2),
    ]
    assert plan.standing.queue.max_workers == 7
    assert "emails" in plan.sentence
    assert before.view.queues[0].max_workers == 4


def test_a_rehearsal_names_pods_that_would_lose_all_or_get_their_first() -> None:
    plan = rehearse(picture(4, (A, 4, 4), gone=(A,)), "emails", max_workers=2, cause="a test")
    assert plan is not None
    assert [(move.name, move.before, move.after) for move in plan.moves] == [
        ("rota-a", 4, 0),
        ("rota-b", 0, 2),
    ]
