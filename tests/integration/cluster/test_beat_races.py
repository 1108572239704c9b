"""A pod beats while its leader plans, and beats twice at once: in both orders, one waiting for the other.

A target is handed out only in an answer, and never more than is held; what is held falls only to what the
pod acts on, uses or is being told.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rota.cluster.view import Assignment
from rota.storage.rows import BeatAnswer, Report, Tenure
from tests.integration.cluster.stage import Stage, honest
from tests.integration.storage.stage import QUEUE, Pod

CAP = 4


class Cast(NamedTuple):
    """A pod that has the whole cap and acts on it, with its latest answer; and another that has nothing."""

    pod: Pod
    other: Pod
    tenure: Tenure
    answer: BeatAnswer


@pytest.fixture
async def cast(stage: Stage) -> Cast:
    await stage.declare(**{QUEUE: CAP})
    pod, other = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(pod, 1_000.0)
    await stage.now.plan(tenure, {pod: CAP})
    answer = await stage.hear(pod)
    assert await stage.row(pod) == Assignment(CAP, CAP, CAP)
    return Cast(pod, other, tenure, answer)


async def test_a_beat_that_waits_for_its_pods_row_hands_out_what_was_planned_meanwhile(
    stage: Stage, cast: Cast
) -> None:
    holder, beater = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute("SELECT FROM rota.pod WHERE id = $1 FOR NO KEY UPDATE", cast.pod.id)
    async with stage.blocked(beater.beat(cast.pod, honest(cast.answer)), on=beater.connection) as beat:
        await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 3})
        await lock.commit()
    assert beat.result().targets == {QUEUE: 1}
    assert await stage.row(cast.pod) == Assignment(1, CAP, CAP), "it acted on four when it sent the beat"
    assert await stage.row(cast.other) is None or (await stage.rows())[cast.other.id].held == 0


async def test_a_beat_that_waits_for_a_plan_which_raises_does_not_lower_below_the_raised_target(
    stage: Stage, cast: Cast
) -> None:
    """It asked to give back what the plan it waits for grants again."""
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.now.beat(cast.pod, honest(cast.answer))
    planner, beater = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.pod: 3})
    async with stage.blocked(beater.beat(cast.pod, honest(told)), on=beater.connection) as beat:
        await plan.commit()
    assert beat.result().targets == {QUEUE: 3}
    assert await stage.row(cast.pod) == Assignment(3, 3, 3)


async def test_a_beat_that_waits_for_a_plan_which_revokes_hands_out_the_lower_target_and_holds_on(
    stage: Stage, cast: Cast
) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: 3})
    told = await stage.now.beat(cast.pod, honest(cast.answer))
    planner, beater = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.pod: 1})
    async with stage.blocked(beater.beat(cast.pod, honest(told, **{QUEUE: 2})), on=beater.connection) as beat:
        await plan.commit()
    assert beat.result().targets == {QUEUE: 1}
    assert await stage.row(cast.pod) == Assignment(1, 3, 3), "three is what it acted on when it asked"


async def test_a_plan_that_waits_for_a_beat_grants_to_others_what_the_beat_gives_back(
    stage: Stage, cast: Cast
) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 3})
    told = await stage.now.beat(cast.pod, honest(cast.answer))
    beater, planner = await stage.actor(), await stage.actor()
    beat = await beater.begin()
    await beater.beat(cast.pod, honest(told))
    planning = planner.plan(cast.tenure, {cast.pod: 1, cast.other: 3})
    async with stage.blocked(planning, on=planner.connection) as plan:
        await beat.commit()
    written = plan.result()
    assert written is not None
    assert (written.changed, written.granted) == ((cast.other.id,), 3)
    assert await stage.held() == CAP


async def test_a_plan_that_waits_for_a_beat_which_is_undone_grants_nothing_of_it(
    stage: Stage, cast: Cast
) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 3})
    told = await stage.now.beat(cast.pod, honest(cast.answer))
    beater, planner = await stage.actor(), await stage.actor()
    beat = await beater.begin()
    await beater.beat(cast.pod, honest(told))
    planning = planner.plan(cast.tenure, {cast.pod: 1, cast.other: 3})
    async with stage.blocked(planning, on=planner.connection) as plan:
        await beat.rollback()
    written = plan.result()
    assert written is not None
    assert (written.changed, written.granted) == ((), 0)


@pytest.mark.parametrize("claims_first", [True, False])
async def test_of_two_beats_at_once_only_the_first_lowers_what_is_held(
    stage: Stage, cast: Cast, claims_first: bool
) -> None:
    """Both were sent with the same answer; what the first is told now, the second knows nothing of."""
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.now.beat(cast.pod, honest(cast.answer))
    busy, idle = honest(told, **{QUEUE: 3}), honest(told)
    order = (busy, idle) if claims_first else (idle, busy)
    one, two = await stage.actor(), await stage.actor()
    first = await one.begin()
    earlier = await one.beat(cast.pod, order[0])
    async with stage.blocked(two.beat(cast.pod, order[1]), on=two.connection) as second:
        await first.commit()
    assert second.result().answer == earlier.answer + 1
    assert await stage.row(cast.pod) == Assignment(1, 3 if claims_first else 1, 1)


async def test_a_second_beat_that_waits_while_a_plan_raises_does_not_take_the_raise_back(
    stage: Stage, cast: Cast
) -> None:
    """The first is told of the raise and the pod acts on it; the second was sent before, and says less."""
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.hear(cast.pod)
    holder, one, two = await stage.actor(), await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute("SELECT FROM rota.pod WHERE id = $1 FOR NO KEY UPDATE", cast.pod.id)
    async with stage.blocked(one.beat(cast.pod, honest(told)), on=one.connection) as first:
        await stage.now.plan(cast.tenure, {cast.pod: 4})
        async with stage.blocked(two.beat(cast.pod, honest(told)), on=two.connection) as second:
            await lock.commit()
    answers = sorted((first.result(), second.result()), key=lambda answer: answer.answer)
    assert [answer.targets for answer in answers] == [{QUEUE: 4}, {QUEUE: 4}]
    assert [answer.answer - told.answer for answer in answers] == [1, 2]
    assert await stage.row(cast.pod) == Assignment(4, 4, 4)


async def test_a_second_beat_that_waits_while_a_plan_revokes_leaves_held_to_a_beat_that_knows(
    stage: Stage, cast: Cast
) -> None:
    """While the second waits the first is told of one slot; the second says it acts on none."""
    one, two = await stage.actor(), await stage.actor()
    first = await one.begin()
    earlier = await one.beat(cast.pod, honest(cast.answer))
    assert earlier.targets == {QUEUE: CAP}
    none = Report(cast.answer.timeline, cast.answer.answer)
    async with stage.blocked(two.beat(cast.pod, none), on=two.connection) as second:
        await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 3})
        await first.commit()
    assert second.result().targets == {QUEUE: 1}
    assert await stage.row(cast.pod) == Assignment(1, CAP, CAP), "four are on their way to the pod"
    assert (await stage.rows())[cast.other.id].held == 0


async def test_a_beat_that_waits_past_its_pods_expiry_finds_it_expired(stage: Stage, cast: Cast) -> None:
    holder, beater = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute("SELECT FROM rota.pod FOR UPDATE")
    beating = beater.pods.beat(cast.pod.id, cast.pod.incarnation, honest(cast.answer))
    async with stage.blocked(beating, on=beater.connection) as beat:
        await stage.time.advance(10.0)
        await lock.commit()
    assert beat.result() is None


async def test_a_pod_is_renewed_from_when_its_beat_stopped_waiting(stage: Stage, cast: Cast) -> None:
    holder, beater = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute("SELECT FROM rota.pod FOR UPDATE")
    async with stage.blocked(beater.beat(cast.pod, honest(cast.answer)), on=beater.connection):
        await stage.time.advance(9.0)
        await lock.commit()
    (expires_in,) = [row.expires_in for row in await stage.pods.list_pods() if row.id == cast.pod.id]
    assert expires_in == 10.0


async def test_a_beat_that_waits_for_a_resize_and_a_plan_acknowledges_neither(
    stage: Stage, cast: Cast
) -> None:
    """Only what is in its answer; the cap comes into force when a later beat has acted on it."""
    holder, beater = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute("SELECT FROM rota.pod WHERE id = $1 FOR NO KEY UPDATE", cast.pod.id)
    async with stage.blocked(beater.beat(cast.pod, honest(cast.answer)), on=beater.connection) as beat:
        assert not await stage.now.resize(1)
        await stage.now.plan(cast.tenure, {cast.pod: 1})
        await lock.commit()
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    assert not await in_force(stage)
    await stage.now.beat(cast.pod, honest(beat.result()))
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    assert await in_force(stage)


async def in_force(stage: Stage) -> bool:
    return bool(
        await stage.connection.fetchval(
            "SELECT in_force_at IS NOT NULL FROM rota.cap_change ORDER BY id DESC LIMIT 1"
        )
    )
