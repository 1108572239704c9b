"""What holds of every plan, whatever the cluster looks like (docs/decisions/0006-the-planner.md)."""

from __future__ import annotations

from itertools import permutations
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.cluster.planner import Plan, plan
from rota.cluster.view import ClusterView, PodView
from rota.words import QueueName
from tests.support.cluster_views import in_all, revoked, targets, views, with_targets
from tests.support.plan_reference import exact_shares, fair_totals, fits, pod_totals

often = settings(max_examples=120, deadline=None)


def totals(wanted: Plan) -> dict[QueueName, int]:
    return {queue: sum(row.values()) for queue, row in wanted.items()}


def has_room(pod: PodView, queue: QueueName, wanted: Plan) -> bool:
    """Whether the pod could have one more slot of this queue."""
    return wanted[queue].get(pod.id, 0) < pod.room_for(queue) and in_all(wanted, pod.id) < pod.capacity


def alike(one: PodView, other: PodView) -> bool:
    return (one.queues, one.capacity, one.capacities) == (other.queues, other.capacity, other.capacities)


@often
@given(views())
def test_no_pod_has_more_than_its_capacity_or_of_a_queue_than_its_room(view: ClusterView) -> None:
    wanted = plan(view)
    for pod in view.pods:
        assert in_all(wanted, pod.id) <= (0 if pod.draining else pod.capacity)
        assert all(row.get(pod.id, 0) <= pod.room_for(queue) for queue, row in wanted.items())


@often
@given(views())
def test_no_queue_has_more_than_its_cap_and_a_paused_one_nothing(view: ClusterView) -> None:
    wanted = plan(view)
    assert wanted.keys() == {queue.name for queue in view.queues}
    assert all(totals(wanted)[queue.name] <= queue.cap for queue in view.queues)


@often
@given(views())
def test_a_plan_names_only_pods_that_get_slots(view: ClusterView) -> None:
    assert all(slots > 0 for row in plan(view).values() for slots in row.values())


@often
@given(views())
def test_where_everything_fits_every_queue_has_its_cap_or_all_there_is(view: ClusterView) -> None:
    assume(fits(view))
    assert totals(plan(view)) == {
        queue.name: min(queue.cap, sum(pod.room_for(queue.name) for pod in view.pods))
        for queue in view.queues
    }


@often
@given(views(caps=(0, 20)))
def test_as_many_slots_are_granted_as_can_be_placed(view: ClusterView) -> None:
    assert sum(totals(plan(view)).values()) == sum(fair_totals(view).values())


@often
@given(views(caps=(0, 20)))
def test_competing_queues_have_as_equal_totals_as_can_be(view: ClusterView) -> None:
    assert sorted(totals(plan(view)).values()) == sorted(fair_totals(view).values())


@often
@given(views())
def test_where_everything_fits_no_pod_is_a_whole_slot_off_its_exact_share(view: ClusterView) -> None:
    assume(fits(view))
    wanted = plan(view)
    for queue, row in exact_shares(view).items():
        assert all(abs(wanted[queue].get(pod, 0) - share) < 1 for pod, share in row.items())


@often
@given(views(caps=(0, 20)))
def test_no_pod_is_ahead_of_one_that_has_room_by_more_than_a_slot(view: ClusterView) -> None:
    wanted = plan(view)
    for queue, row in wanted.items():
        for one in view.pods:
            for other in view.pods:
                if row.get(one.id, 0) and has_room(other, queue, wanted):
                    assert (row[one.id] - 1) * other.capacity < (row.get(other.id, 0) + 1) * one.capacity
                    if one.capacity == other.capacity:
                        assert row[one.id] <= row.get(other.id, 0) + 1


@often
@given(views(caps=(0, 20)))
def test_like_pods_have_equal_totals_but_for_one_slot(view: ClusterView) -> None:
    wanted = plan(view)
    live = [pod for pod in view.pods if not pod.draining]
    for one, other in permutations(live, 2):
        if alike(one, other):
            assert in_all(wanted, one.id) <= in_all(wanted, other.id) + 1


@often
@given(views(caps=(0, 20)))
def test_like_pods_have_equally_much_of_every_queue_but_for_one_slot(view: ClusterView) -> None:
    wanted = plan(view)
    live = [pod for pod in view.pods if not pod.draining]
    for one, other in permutations(live, 2):
        if alike(one, other):
            assert all(row.get(one.id, 0) <= row.get(other.id, 0) + 1 for row in wanted.values())


@often
@given(views())
def test_where_everything_fits_no_pod_is_a_whole_slot_off_its_exact_total(view: ClusterView) -> None:
    assume(fits(view))
    wanted = plan(view)
    for pod, total in pod_totals(exact_shares(view)).items():
        assert abs(in_all(wanted, pod) - total) < 1


@often
@given(views(caps=(0, 20)))
def test_a_plan_that_was_carried_out_is_not_changed(view: ClusterView) -> None:
    wanted = plan(view)
    assert plan(with_targets(view, wanted)) == wanted


@often
@given(views(caps=(0, 20)), st.data())
def test_a_plan_that_is_only_partly_carried_out_revokes_nothing_more(
    view: ClusterView, data: st.DataObject
) -> None:
    assume(fits(view))
    wanted = plan(view)
    partly = {
        queue: {pod: data.draw(st.integers(0, slots)) for pod, slots in row.items()}
        for queue, row in wanted.items()
    }
    again = plan(with_targets(view, partly))
    assert revoked(partly, again) == 0


@often
@given(views(caps=(0, 20)), st.integers())
def test_a_plan_that_is_carried_out_bit_by_bit_comes_to_rest(view: ClusterView, seed: int) -> None:
    random = Random(seed)
    now: Plan = targets(view)
    for _ in range(100):
        wanted = plan(with_targets(view, now))
        if now == wanted:
            return
        # Revoked at once; granted as far as there happens to be something to grant.
        now = {
            queue: {
                pod: some
                for pod, slots in row.items()
                if (some := random.randint(min(slots, now[queue].get(pod, 0)), slots))
            }
            for queue, row in wanted.items()
        }
    raise AssertionError("slots still move after a hundred plans")


@often
@given(views(caps=(0, 20)), st.data())
def test_the_order_in_which_things_are_told_does_not_matter(view: ClusterView, data: st.DataObject) -> None:
    other = ClusterView(
        tuple(data.draw(st.permutations(view.queues))),
        tuple(data.draw(st.permutations(view.pods))),
        dict(data.draw(st.permutations(list(view.assignments.items())))),
    )
    assert plan(other) == plan(view)
