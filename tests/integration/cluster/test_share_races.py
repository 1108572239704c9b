"""Pods without an assignment take a share, while others do, while a leader plans, and while operators resize.

All of them lock the queue's row, so that each sees what the one before it left of the cap.
"""

from __future__ import annotations

import pytest

from rota.cluster.view import Assignment
from rota.storage.rows import Report
from tests.integration.cluster.stage import Stage
from tests.integration.storage.stage import QUEUE

SHARE = Report(sharing=[QUEUE])


@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_pods_that_share_a_cap_of_one_at_once_one_gets_it(stage: Stage, first: int) -> None:
    await stage.declare(**{QUEUE: 1})
    pods = [await stage.now.join(), await stage.now.join()]
    one, two = await stage.actor(), await stage.actor()
    share = await one.begin()
    assert (await one.beat(pods[first], SHARE)).targets == {QUEUE: 1}
    async with stage.blocked(two.beat(pods[1 - first], SHARE), on=two.connection) as late:
        await share.commit()
    assert late.result().targets == {}
    assert await stage.rows() == {pods[first].id: Assignment(1, 1, 1)}


async def test_a_pod_whose_share_waits_for_one_that_is_undone_gets_it(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 1})
    gone, pod = await stage.now.join(), await stage.now.join()
    one, two = await stage.actor(), await stage.actor()
    share = await one.begin()
    await one.beat(gone, SHARE)
    async with stage.blocked(two.beat(pod, SHARE), on=two.connection) as late:
        await share.rollback()
    assert late.result().targets == {QUEUE: 1}


async def test_two_beats_of_one_pod_take_one_share(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod, _other = await stage.now.join(), await stage.now.join()
    one, two = await stage.actor(), await stage.actor()
    share = await one.begin()
    assert (await one.beat(pod, SHARE)).targets == {QUEUE: 2}
    async with stage.blocked(two.beat(pod, SHARE), on=two.connection) as late:
        await share.commit()
    assert late.result().targets == {QUEUE: 2}
    assert await stage.rows() == {pod.id: Assignment(2, 2, 2)}


async def test_a_share_that_waits_for_a_plan_takes_only_what_the_plan_left(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    planned, new = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(planned)
    planner, beater = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(tenure, {planned: 3})
    async with stage.blocked(beater.beat(new, SHARE), on=beater.connection) as late:
        await plan.commit()
    assert late.result().targets == {QUEUE: 1}
    assert await stage.held() == 4


async def test_a_share_that_waits_for_a_plan_of_its_own_pod_takes_the_plan(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod = await stage.now.join()
    tenure = await stage.now.lead(pod)
    planner, beater = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(tenure, {pod: 1})
    async with stage.blocked(beater.beat(pod, SHARE), on=beater.connection) as late:
        await plan.commit()
    assert late.result().targets == {QUEUE: 1}
    assert await stage.row(pod) == Assignment(1, 1, 1)


async def test_a_plan_that_waits_for_a_share_grants_only_what_the_share_left(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    planned, new = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(planned)
    beater, planner = await stage.actor(), await stage.actor()
    share = await beater.begin()
    assert (await beater.beat(new, SHARE)).targets == {QUEUE: 2}
    async with stage.blocked(planner.plan(tenure, {planned: 4}), on=planner.connection):
        await share.commit()
    assert await stage.rows() == {
        planned.id: Assignment(2, 2, 2),
        new.id: Assignment(0, 2, 2),
    }, "the new pod's is revoked, and counts until it has given it back"


async def test_a_share_that_waits_for_a_resize_is_of_the_new_cap(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod = await stage.now.join()
    operator, beater = await stage.actor(), await stage.actor()
    change = await operator.begin()
    await operator.resize(1)
    async with stage.blocked(beater.beat(pod, SHARE), on=beater.connection) as late:
        await change.commit()
    assert late.result().targets == {QUEUE: 1}


async def test_a_share_that_waits_for_a_pause_takes_nothing(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod = await stage.now.join()
    operator, beater = await stage.actor(), await stage.actor()
    change = await operator.begin()
    await operator.queues.change_queue(QUEUE, paused=True)
    async with stage.blocked(beater.beat(pod, SHARE), on=beater.connection) as late:
        await change.commit()
    assert late.result().targets == {}


async def test_a_resize_that_waits_for_a_share_is_not_in_force_over_it(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod = await stage.now.join()
    beater, operator = await stage.actor(), await stage.actor()
    share = await beater.begin()
    await beater.beat(pod, SHARE)
    async with stage.blocked(operator.resize(1), on=operator.connection) as change:
        await share.commit()
    assert not change.result()


async def test_shares_of_several_queues_are_locked_by_name_so_that_they_cannot_block_each_other(
    stage: Stage,
) -> None:
    await stage.declare(a=1, b=1)
    pods = [await stage.now.join(queues=["a", "b"]) for _ in range(2)]
    one, two = await stage.actor(), await stage.actor()
    share = await one.begin()
    await one.beat(pods[0], Report(sharing=["a"]))
    async with stage.blocked(two.beat(pods[1], Report(sharing=["b", "a"])), on=two.connection) as late:
        await one.connection.execute("SELECT FROM rota.queue WHERE name = 'b' FOR UPDATE")
        await share.commit()
    assert late.result().targets == {"b": 1}


async def test_a_share_of_a_pod_that_was_drained_while_it_waited_is_nothing(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod = await stage.now.join()
    operator, beater = await stage.actor(), await stage.actor()
    drain = await operator.begin()
    assert await operator.pods.drain_pod(pod.id)
    async with stage.blocked(beater.beat(pod, SHARE), on=beater.connection) as late:
        await drain.commit()
    assert (late.result().draining, late.result().targets) == (True, {})


async def test_a_drain_that_waits_for_a_share_leaves_it_to_be_given_back(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 4})
    pod = await stage.now.join()
    tenure = await stage.now.lead(pod)
    beater, operator = await stage.actor(), await stage.actor()
    share = await beater.begin()
    await beater.beat(pod, SHARE)
    async with stage.blocked(operator.pods.drain_pod(pod.id), on=operator.connection) as drain:
        await share.commit()
    assert drain.result()
    await stage.now.plan(tenure, {})
    assert await stage.row(pod) == Assignment(0, 4, 4)
