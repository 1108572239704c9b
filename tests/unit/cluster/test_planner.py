"""What the planner does in clusters one can follow by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from rota.cluster.planner import Plan, plan
from rota.cluster.view import Assignment, ClusterView, PodView, QueueView
from rota.words import PodId, QueueName
from tests.support.cluster_views import in_all, pod_id, revoked, targets, uniform, with_targets

A, B, C = pod_id(0), pod_id(1), pod_id(2)
EMAILS, REPORTS = QueueName("emails"), QueueName("reports")
BOTH = frozenset({EMAILS, REPORTS})


def cluster(caps: dict[QueueName, int], *pods: PodView) -> ClusterView:
    return ClusterView(tuple(QueueView(name, cap) for name, cap in caps.items()), pods)


def pod(id: PodId, capacity: int = 10, *queues: QueueName, joined: int = 0, version: str = "1") -> PodView:
    return PodView(id, frozenset(queues or {EMAILS}), capacity, joined=joined, version=version)


def carried_out(view: ClusterView) -> ClusterView:
    return with_targets(view, plan(view))


def joined(view: ClusterView, version: str = "1") -> ClusterView:
    """One like pod more."""
    number = 1 + max(one.joined for one in view.pods)
    fresh = replace(view.pods[0], id=pod_id(number), joined=number, version=version)
    return replace(view, pods=(*view.pods, fresh))


def left(view: ClusterView, id: PodId) -> ClusterView:
    return replace(view, pods=tuple(one for one in view.pods if one.id != id))


def resized(view: ClusterView, cap: int, name: QueueName = EMAILS) -> ClusterView:
    queues = (replace(queue, max_workers=cap) if queue.name == name else queue for queue in view.queues)
    return replace(view, queues=tuple(queues))


def test_like_pods_share_alike_and_the_odd_slot_goes_to_one() -> None:
    assert sorted(plan(uniform({"emails": 40}, 3))[EMAILS].values()) == [13, 13, 14]


def test_pods_of_different_size_share_in_proportion() -> None:
    assert plan(cluster({EMAILS: 15}, pod(A, 10), pod(B, 20))) == {EMAILS: {A: 5, B: 10}}


def test_a_pod_that_bounds_a_queue_leaves_the_rest_to_the_others() -> None:
    bound = replace(pod(A), capacities={EMAILS: 1})
    assert plan(cluster({EMAILS: 9}, bound, pod(B), pod(C))) == {EMAILS: {A: 1, B: 4, C: 4}}


def test_a_hundred_queues_of_one_worker_do_not_land_on_one_pod() -> None:
    view = uniform([1] * 100, 10)
    assert {in_all(plan(view), one.id) for one in view.pods} == {10}


def test_nor_do_they_when_every_pod_has_another_size() -> None:
    view = uniform([1] * 93, 3)
    view = replace(
        view, pods=tuple(replace(one, capacity=100 + 10 * place) for place, one in enumerate(view.pods))
    )
    wanted = plan(view)
    exact = [93 * one.capacity / 330 for one in view.pods]
    assert all(abs(in_all(wanted, one.id) - share) < 1 for one, share in zip(view.pods, exact, strict=True))


def test_draining_pods_and_paused_queues_get_nothing() -> None:
    view = cluster({EMAILS: 6, REPORTS: 6}, pod(A, 10, *BOTH), replace(pod(B, 10, *BOTH), draining=True))
    paused = replace(view.queues[1], paused=True)
    assert plan(replace(view, queues=(view.queues[0], paused))) == {EMAILS: {A: 6}, REPORTS: {}}


def test_without_pods_there_is_nothing_to_plan() -> None:
    assert plan(cluster({EMAILS: 5})) == {EMAILS: {}}
    assert plan(ClusterView()) == {}


def test_a_pod_of_a_deleted_queue_and_a_row_of_a_deleted_pod_do_not_matter() -> None:
    view = cluster({EMAILS: 4}, pod(A, 10, EMAILS, QueueName("gone")))
    rows = {(QueueName("gone"), A): Assignment(3, 3, 3), (EMAILS, C): Assignment(4, 4, 4)}
    assert plan(replace(view, assignments=rows)) == {EMAILS: {A: 4}}


# Queues that compete.


def test_a_modest_queue_gets_all_it_wants_and_a_greedy_one_the_rest() -> None:
    wanted = plan(uniform({"modest": 5, "greedy": 1_000}, 10, capacity=10))
    assert {queue: sum(row.values()) for queue, row in wanted.items()} == {"modest": 5, "greedy": 95}


def test_queues_that_all_want_more_than_there_is_get_the_same() -> None:
    wanted = plan(uniform([1_000, 500, 200], 10, capacity=10))
    assert sorted(sum(row.values()) for row in wanted.values()) == [33, 33, 34]


def test_a_queue_makes_way_for_one_that_has_nowhere_else_to_go() -> None:
    view = cluster({EMAILS: 10, REPORTS: 10}, pod(A, 10, *BOTH), pod(B, 10, EMAILS))
    assert plan(view) == {EMAILS: {B: 10}, REPORTS: {A: 10}}


def test_where_a_queue_had_to_make_way_the_pods_with_room_still_share_alike() -> None:
    view = cluster({EMAILS: 10, REPORTS: 8}, pod(A, 10, *BOTH), pod(B, 10), pod(C, 10))
    assert plan(view) == {EMAILS: {A: 2, B: 4, C: 4}, REPORTS: {A: 8}}


def test_a_crowd_somewhere_leaves_the_rest_of_the_cluster_alone() -> None:
    solo = QueueName("solo")
    apart = (pod(B, 20, solo), pod(C, 40, solo))
    alone = plan(cluster({solo: 30}, *apart))
    assert plan(cluster({EMAILS: 99, REPORTS: 99, solo: 30}, pod(A, 10, *BOTH), *apart))[solo] == alone[solo]


# Changes.


def test_a_pod_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    before = carried_out(uniform({"emails": 40}, 4))
    after = plan(joined(before))
    assert sorted(after[EMAILS].values()) == [8] * 5
    assert revoked(targets(before), after) == 8


def test_the_slots_of_a_pod_that_leaves_go_to_the_others_and_nobody_loses_any() -> None:
    before = carried_out(uniform({"emails": 41, "reports": 7}, 5))
    gone = before.pods[2].id
    after = plan(left(before, gone))
    assert revoked(targets(before), after) == in_all(targets(before), gone)


@pytest.mark.parametrize("cap", range(41))
def test_a_raised_cap_revokes_nothing_and_a_lowered_one_grants_nothing(cap: int) -> None:
    small, great = (
        carried_out(resized(uniform({"emails": 0}, 7), 20)),
        resized(uniform({"emails": 0}, 7), cap),
    )
    after = plan(replace(great, assignments=small.assignments))
    assert revoked(targets(small), after) == max(0, 20 - cap)
    assert revoked(after, targets(small)) == max(0, cap - 20)


def test_a_plan_half_carried_out_goes_on_as_it_was_meant() -> None:
    before = carried_out(uniform({"emails": 40}, 4))
    view = joined(before)
    meant = plan(view)
    lowered = {
        EMAILS: {id: min(slots, meant[EMAILS].get(id, 0)) for id, slots in targets(before)[EMAILS].items()}
    }
    assert plan(with_targets(view, lowered)) == meant


def test_where_a_lowered_cap_zeroed_all_targets_what_is_held_is_what_a_pod_has() -> None:
    view = cluster({EMAILS: 1}, *(pod(one, 10, joined=place) for place, one in enumerate([A, B, C])))
    for holder in (A, B, C):
        busy = replace(view, assignments={(EMAILS, holder): Assignment(0, 2, 0)})
        assert plan(busy) == {EMAILS: {holder: 1}}


def test_otherwise_what_is_held_does_not_matter() -> None:
    view = cluster({EMAILS: 1}, *(pod(one, 10, joined=place) for place, one in enumerate([A, B, C])))
    rows = {(EMAILS, A): Assignment(0, 2, 0), (EMAILS, C): Assignment(1, 1, 1)}
    assert plan(replace(view, assignments=rows)) == {EMAILS: {C: 1}}


# A rollout.


def test_the_odd_slots_of_a_fresh_plan_go_to_the_version_that_joined_last() -> None:
    mixed = (pod(A, joined=1, version="2"), pod(B, joined=3, version="1"), pod(C, joined=2, version="1"))
    assert plan(cluster({EMAILS: 5}, *mixed)) == {EMAILS: {A: 1, B: 2, C: 2}}


def test_a_slot_that_is_free_goes_to_the_version_that_joined_last() -> None:
    before = carried_out(uniform({"emails": 3}, 4))
    leaver = next(iter(targets(before)[EMAILS]))
    view = joined(before, version="2")
    assert plan(left(view, leaver))[EMAILS][view.pods[-1].id] == 1


def rollout(view: ClusterView) -> tuple[ClusterView, int]:
    """Replace pod by pod, the new one first; also how many slots were revoked on the way."""
    moved = 0
    for old in view.pods:
        with_new = joined(view, version="2")
        for changed in (with_new, left(with_new, old.id)):
            after = plan(replace(changed, assignments=view.assignments))
            moved += revoked(targets(view), after)
            view = with_targets(changed, after)
    return view, moved


def test_in_a_rollout_of_small_queues_every_slot_moves_once() -> None:
    view, moved = rollout(carried_out(uniform([1] * 10, 10)))
    assert {one.version for one in view.pods} == {"2"}
    assert moved == 10


def test_in_a_rollout_of_large_queues_no_more_moves_than_the_shares_of_those_who_come_and_go() -> None:
    before = carried_out(uniform({"emails": 110}, 10))
    _, moved = rollout(before)
    assert moved == 10 * (10 + 10)  # each new pod takes 110/11, and each old one gives up as many


# What comes first when not everything can be had; see docs/decisions/0006-the-planner.md.


def test_fair_comes_before_level() -> None:
    view = cluster({EMAILS: 4, REPORTS: 4}, pod(A, 10, *BOTH), pod(B, 10, EMAILS))
    assert plan(view) == {EMAILS: {A: 2, B: 2}, REPORTS: {A: 4}}


def test_level_comes_before_sticky() -> None:
    view = cluster({EMAILS: 1, REPORTS: 1}, pod(A, 10, *BOTH), pod(B, 10, *BOTH, joined=1))
    rows = {(EMAILS, A): Assignment(1, 1, 1), (REPORTS, A): Assignment(1, 1, 1)}
    wanted = plan(replace(view, assignments=rows))
    assert sorted(in_all(wanted, one) for one in (A, B)) == [1, 1]


def test_complete_comes_before_fair() -> None:
    view = cluster({EMAILS: 8, REPORTS: 8}, pod(A, 10, *BOTH), pod(B, 10, EMAILS))
    assert plan(view) == {EMAILS: {A: 2, B: 6}, REPORTS: {A: 8}}


# Speed, in calls, which do not depend on the machine.


def calls(run: Callable[[], Plan]) -> int:
    counted = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("capacity", [1_000, 10], ids=["roomy", "crowded"])
@pytest.mark.parametrize("what", ["cold", "join", "leave", "resize"])
def test_four_times_the_pods_are_at_most_some_five_times_the_work(what: str, capacity: int) -> None:
    def work(pods: int) -> int:
        view = uniform([7 * pods // (1 + place) for place in range(20)], pods, capacity=capacity)
        changes = {
            "cold": lambda: view,
            "join": lambda: joined(carried_out(view)),
            "leave": lambda: left(carried_out(view), view.pods[3].id),
            "resize": lambda: resized(carried_out(view), 5 * pods, view.queues[0].name),
        }
        changed = changes[what]()
        return calls(lambda: plan(changed))

    assert work(400) <= 5.5 * work(100)
