"""An operator resizes or pauses a queue while a leader plans it: in both orders, one behind the other."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rota.cluster.view import Assignment
from rota.storage.rows import Tenure
from tests.integration.cluster.stage import Stage, honest
from tests.integration.storage.stage import QUEUE, Pod

CAP = 4


class Cast(NamedTuple):
    """A queue with a pod to work it, and its leader."""

    pod: Pod
    tenure: Tenure


@pytest.fixture
async def cast(stage: Stage) -> Cast:
    await stage.declare(**{QUEUE: CAP})
    pod = await stage.now.join()
    return Cast(pod, await stage.now.lead(pod, 1_000.0))


async def test_a_plan_that_waits_for_a_resize_is_capped_by_the_new_one(stage: Stage, cast: Cast) -> None:
    operator, planner = await stage.actor(), await stage.actor()
    change = await operator.begin()
    assert await operator.resize(1), "nothing is held yet"
    async with stage.blocked(planner.plan(cast.tenure, {cast.pod: CAP}), on=planner.connection):
        await change.commit()
    assert await stage.row(cast.pod) == Assignment(1, 1, 1)


async def test_a_plan_that_waits_for_a_resize_which_is_undone_is_capped_by_the_old_one(
    stage: Stage, cast: Cast
) -> None:
    operator, planner = await stage.actor(), await stage.actor()
    change = await operator.begin()
    await operator.resize(1)
    async with stage.blocked(planner.plan(cast.tenure, {cast.pod: CAP}), on=planner.connection):
        await change.rollback()
    assert await stage.row(cast.pod) == Assignment(CAP, CAP, CAP)


async def test_a_resize_that_waits_for_a_plan_is_not_in_force_over_what_was_granted(
    stage: Stage, cast: Cast
) -> None:
    planner, operator = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.pod: CAP})
    async with stage.blocked(operator.resize(1), on=operator.connection) as in_force:
        await plan.commit()
    assert not in_force.result()


async def test_a_resize_that_waits_for_a_plan_which_is_undone_is_in_force_at_once(
    stage: Stage, cast: Cast
) -> None:
    planner, operator = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.pod: CAP})
    async with stage.blocked(operator.resize(1), on=operator.connection) as in_force:
        await plan.rollback()
    assert in_force.result()


async def test_a_plan_that_waits_for_a_pause_revokes_all(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    operator, planner = await stage.actor(), await stage.actor()
    change = await operator.begin()
    await operator.queues.change_queue(QUEUE, paused=True)
    async with stage.blocked(planner.plan(cast.tenure, {cast.pod: CAP}), on=planner.connection):
        await change.commit()
    assert await stage.row(cast.pod) == Assignment(0, CAP, CAP)


async def test_two_resizes_at_once_are_two_changes_and_the_later_overtakes(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    one, two = await stage.actor(), await stage.actor()
    first = await one.begin()
    lower = await one.queues.change_queue(QUEUE, max_workers=1)
    raising = two.queues.change_queue(QUEUE, max_workers=9)
    async with stage.blocked(raising, on=two.connection) as second:
        await first.commit()
    raised = second.result()
    assert lower is not None
    assert raised is not None
    assert (lower.in_force, raised.in_force) == (False, True)
    assert lower.change is not None
    status = await stage.queues.read_cap_change(lower.change)
    assert status is not None
    assert (status.in_force, status.overtaken) == (False, True)


async def test_a_resize_back_that_waits_for_the_resize_it_takes_back_is_a_change_of_its_own(
    stage: Stage, cast: Cast
) -> None:
    """The cap is what it was when it asked, but not what it was when it was heard."""
    await stage.granted(cast.tenure, {cast.pod: CAP})
    one, two = await stage.actor(), await stage.actor()
    first = await one.begin()
    await one.resize(1)
    async with stage.blocked(two.queues.change_queue(QUEUE, max_workers=CAP), on=two.connection) as second:
        await first.commit()
    back = second.result()
    assert back is not None
    assert (back.change is None, back.cap, back.in_force) == (False, CAP, True)


async def test_a_plan_that_waits_for_the_last_acknowledgement_puts_the_lowered_cap_into_force(
    stage: Stage, cast: Cast
) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await stage.now.resize(1)
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.hear_once(cast.pod)
    beater, planner = await stage.actor(), await stage.actor()
    beat = await beater.begin()
    await beater.beat(cast.pod, honest(told))
    async with stage.blocked(planner.plan(cast.tenure, {cast.pod: 1}), on=planner.connection):
        await beat.commit()
    change = await stage.queues.change_queue(QUEUE)
    assert change is not None
    assert change.in_force


async def test_a_plan_before_the_last_acknowledgement_leaves_the_lowered_cap_waiting(
    stage: Stage, cast: Cast
) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await stage.now.resize(1)
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.hear_once(cast.pod)
    planner, beater = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.pod: 1})
    async with stage.blocked(beater.beat(cast.pod, honest(told)), on=beater.connection):
        await plan.commit()
    change = await stage.queues.change_queue(QUEUE)
    assert change is not None
    assert not change.in_force, "until the plan that the beat asks for"
    assert await stage.row(cast.pod) == Assignment(1, 1, 1)
