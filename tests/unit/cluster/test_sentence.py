"""A plan of one queue, as people read it."""

from __future__ import annotations

from hypothesis import given, settings

from rota.cluster.planner import plan
from rota.cluster.sentence import Moves, changes, sentence
from rota.cluster.view import ClusterView
from rota.words import PodId, QueueName
from tests.support.cluster_views import pod_id, targets, views

EMAILS = QueueName("emails")
NAMES = {pod_id(number): f"rota-worker-{letter}" for number, letter in enumerate("abcdefghij")}
PODS = list(NAMES)


def said(before: dict[PodId, int], after: dict[PodId, int], cause: str = "a pod joined") -> str:
    return sentence(EMAILS, before, after, NAMES, cause)


def test_it_says_what_there_is_what_moves_and_why() -> None:
    before, after = {PODS[0]: 16, PODS[1]: 20, PODS[2]: 4}, {PODS[0]: 20, PODS[1]: 16, PODS[2]: 4}
    assert said(before, after) == (
        "emails: 40 slots over 3 pods; rota-worker-a +4, rota-worker-b -4, because a pod joined."
    )


def test_the_greatest_changes_come_first_and_the_rest_is_counted() -> None:
    after = {pod: 1 + number for number, pod in enumerate(PODS)}
    assert said({}, after, "the queue was resized") == (
        "emails: 55 slots over 10 pods; rota-worker-j +10, rota-worker-i +9, rota-worker-h +8,"
        " rota-worker-g +7 and 6 more, because the queue was resized."
    )


def test_one_is_not_many() -> None:
    assert said({}, {PODS[0]: 1}) == ("emails: 1 slot over 1 pod; rota-worker-a +1, because a pod joined.")


def test_a_queue_can_end_up_with_nothing() -> None:
    assert said({PODS[0]: 1_500}, {}, "the queue was paused") == (
        "emails: no slots; rota-worker-a -1500, because the queue was paused."
    )


def test_without_a_change_there_is_no_cause() -> None:
    assert said({PODS[0]: 1_500}, {PODS[0]: 1_500}) == "emails: 1,500 slots over 1 pod, as before."
    assert said({}, {}) == "emails: no slots, as before."


def test_a_pod_that_left_is_called_by_its_id() -> None:
    assert sentence(EMAILS, {PODS[3]: 2}, {}, {}, "a pod left") == (
        "emails: no slots; 00000000 -2, because a pod left."
    )


def test_changes_are_counted_over_all_queues() -> None:
    before = {EMAILS: {PODS[0]: 3, PODS[1]: 1}, QueueName("old"): {PODS[0]: 2}}
    after = {EMAILS: {PODS[0]: 1, PODS[2]: 5}, QueueName("new"): {PODS[0]: 7}}
    assert changes(before, after) == Moves(granted=12, revoked=5)


@settings(deadline=None)
@given(views())
def test_what_is_granted_less_what_is_revoked_is_the_difference(view: ClusterView) -> None:
    before, after = targets(view), plan(view)
    moves = changes(before, after)
    assert moves.granted - moves.revoked == sum(
        sum(after[queue].values()) - sum(row.values()) for queue, row in before.items()
    )
    assert changes(after, after) == Moves(0, 0)
