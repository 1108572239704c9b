"""Pods register, leave, drain and expire while they claim and are planned: in both orders.

Whoever ends a boot locks its row first and looks at jobs and assignments afterwards, so that nothing is
given to a boot that is over, and nothing of it is forgotten.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

import pytest

from rota.cluster.view import Assignment
from rota.storage.rows import Report, Tenure
from rota.words import JobState
from tests.integration.cluster.stage import TTL, Actor, Stage, honest
from tests.integration.storage.stage import QUEUE, RESCUES, Pod

CAP = 4


class Cast(NamedTuple):
    """A leader, a pod to be planned, and a job to be claimed."""

    leader: Pod
    pod: Pod
    tenure: Tenure
    job: int


@pytest.fixture
async def cast(stage: Stage) -> Cast:
    await stage.declare(**{QUEUE: CAP})
    leader, pod = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(leader, 1_000.0)
    return Cast(leader, pod, tenure, await stage.add_one())


async def silence(stage: Stage, cast: Cast) -> None:
    """Everyone but the leader falls silent for a TTL."""
    await stage.time.advance(TTL)
    await stage.connection.execute(
        "UPDATE rota.pod SET expires_at = expires_at + interval '1 hour' WHERE id = $1", cast.leader.id
    )


async def state(stage: Stage, job: int) -> JobState:
    return (await stage.job(job)).state


# A boot ends while it claims.


async def test_a_new_boot_waits_for_a_claim_of_the_old_one_and_rescues_what_it_took(
    stage: Stage, cast: Cast
) -> None:
    claimer, booter = await stage.actor(), await stage.actor()
    claim = await claimer.begin()
    assert await claimer.take_jobs(cast.pod) == [cast.job]
    booting = booter.register(cast.pod.id, replaces=cast.pod.incarnation)
    async with stage.blocked(booting, on=booter.connection) as boot:
        await claim.commit()
    assert boot.result().incarnation is not None
    assert await state(stage, cast.job) is JobState.READY


async def test_a_claim_of_the_old_boot_that_waits_for_the_new_one_takes_nothing(
    stage: Stage, cast: Cast
) -> None:
    booter, claimer = await stage.actor(), await stage.actor()
    boot = await booter.begin()
    await booter.join(cast.pod.id, replaces=cast.pod.incarnation)
    async with stage.blocked(claimer.take_jobs(cast.pod), on=claimer.connection) as claim:
        await boot.commit()
    assert claim.result() == []
    assert await state(stage, cast.job) is JobState.READY


async def test_expiry_passes_over_a_pod_whose_claim_is_being_committed_and_rescues_it_next_time(
    stage: Stage, cast: Cast
) -> None:
    claimer = await stage.actor()
    async with claimer.open():
        assert await claimer.take_jobs(cast.pod) == [cast.job]
        await silence(stage, cast)
        assert await stage.now.pods.expire_pods(cast.tenure, RESCUES) == ([], 0)
    assert await state(stage, cast.job) is JobState.RUNNING
    assert await stage.now.pods.expire_pods(cast.tenure, RESCUES) == ([cast.pod.id], 1)
    assert await state(stage, cast.job) is JobState.READY


async def test_a_claim_that_waits_for_its_pods_expiry_takes_nothing(stage: Stage, cast: Cast) -> None:
    leader, claimer = await stage.actor(), await stage.actor()
    await silence(stage, cast)
    expiry = await leader.begin()
    assert await leader.pods.expire_pods(cast.tenure, RESCUES) == ([cast.pod.id], 0)
    async with stage.blocked(claimer.take_jobs(cast.pod), on=claimer.connection) as claim:
        await expiry.commit()
    assert claim.result() == []
    assert await state(stage, cast.job) is JobState.READY


async def test_a_pod_whose_claim_is_being_committed_waits_to_leave_and_then_may_not(
    stage: Stage, cast: Cast
) -> None:
    claimer, leaver = await stage.actor(), await stage.actor()
    claim = await claimer.begin()
    assert await claimer.take_jobs(cast.pod) == [cast.job]
    leaving = leaver.pods.leave_pod(cast.pod.id, cast.pod.incarnation)
    async with stage.blocked(leaving, on=leaver.connection) as left:
        await claim.commit()
    assert not left.result()
    assert await state(stage, cast.job) is JobState.RUNNING


async def test_a_claim_that_waits_for_its_pod_to_leave_takes_nothing(stage: Stage, cast: Cast) -> None:
    leaver, claimer = await stage.actor(), await stage.actor()
    leave = await leaver.begin()
    assert await leaver.pods.leave_pod(cast.pod.id, cast.pod.incarnation)
    async with stage.blocked(claimer.take_jobs(cast.pod), on=claimer.connection) as claim:
        await leave.commit()
    assert claim.result() == []


# A boot ends or begins while it is planned.


async def end(by: Actor, cast: Cast, how: str) -> object:
    match how:
        case "leaves":
            return await by.pods.leave_pod(cast.pod.id, cast.pod.incarnation)
        case "expires":
            return await by.pods.expire_pods(cast.tenure, RESCUES)
        case _:
            return await by.register(cast.pod.id, replaces=cast.pod.incarnation)


ends = pytest.mark.parametrize("how", ["leaves", "expires", "boots anew"])


@ends
async def test_a_plan_that_waits_for_a_pod_that_ends_gives_it_nothing_of_its_old_boot(
    stage: Stage, cast: Cast, how: str
) -> None:
    await silence(stage, cast)
    ender, planner = await stage.actor(), await stage.actor()
    ending = await ender.begin()
    await end(ender, cast, how)
    planning = planner.plan(cast.tenure, {cast.leader: 1, cast.pod: 3})
    async with stage.blocked(planning, on=planner.connection) as plan:
        await ending.commit()
    assert plan.result() is not None
    assert await stage.row(cast.leader) == Assignment(1, 1, 1)
    assert await stage.row(cast.pod) == (Assignment(3, 3, 3) if how == "boots anew" else None)


@pytest.mark.parametrize("how", ["leaves", "boots anew"])
async def test_a_pod_that_ends_while_it_is_being_planned_takes_its_row_along(
    stage: Stage, cast: Cast, how: str
) -> None:
    planner, ender = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.pod: 3})
    async with stage.blocked(end(ender, cast, how), on=ender.connection):
        await plan.commit()
    assert await stage.rows() == {}


async def test_expiry_passes_over_a_pod_that_is_being_planned_for_the_first_time(
    stage: Stage, cast: Cast
) -> None:
    await silence(stage, cast)
    planner = await stage.actor()
    async with planner.open():
        await planner.plan(cast.tenure, {cast.pod: 3})
        assert await stage.now.pods.expire_pods(cast.tenure, RESCUES) == ([], 0)
    assert await stage.now.pods.expire_pods(cast.tenure, RESCUES) == ([cast.pod.id], 0)
    assert await stage.rows() == {}


@ends
async def test_a_plan_that_waits_for_a_pod_with_slots_that_ends_grants_what_it_held(
    stage: Stage, cast: Cast, how: str
) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await silence(stage, cast)
    ender, planner = await stage.actor(), await stage.actor()
    ending = await ender.begin()
    await end(ender, cast, how)
    async with stage.blocked(planner.plan(cast.tenure, {cast.leader: CAP}), on=planner.connection):
        await ending.commit()
    assert await stage.rows() == {cast.leader.id: Assignment(CAP, CAP, CAP)}


@ends
async def test_a_pod_with_slots_that_ends_waits_for_a_plan_which_still_counts_what_it_held(
    stage: Stage, cast: Cast, how: str
) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await silence(stage, cast)
    planner, ender = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    await planner.plan(cast.tenure, {cast.leader: CAP})
    async with stage.blocked(end(ender, cast, how), on=ender.connection):
        await plan.commit()
    assert await stage.rows() == {cast.leader.id: Assignment(0, 0, 0)}, "granted with the next plan"


# A boot ends while it beats.


@ends
async def test_a_beat_that_waits_for_the_end_of_its_boot_is_refused(
    stage: Stage, cast: Cast, how: str
) -> None:
    await silence(stage, cast)
    ender, beater = await stage.actor(), await stage.actor()
    ending = await ender.begin()
    await end(ender, cast, how)
    asking = beater.database.fetchrow(
        "beat", cast.pod.id, cast.pod.incarnation, 0, 1, [QUEUE], [2], [2], [], ""
    )
    async with stage.blocked(asking, on=beater.connection) as beat:
        await ending.commit()
    row = beat.result()
    assert (row and row["state"]) is None
    assert (row is None) == (how != "boots anew"), "expired has no row, retired one without a state"
    assert await stage.rows() == {}


async def test_a_new_boot_that_waits_for_a_beat_of_the_old_one_retires_it(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: 2})
    beater, booter = await stage.actor(), await stage.actor()
    beat = await beater.begin()
    answer = await beater.beat(cast.pod, Report())
    booting = booter.register(cast.pod.id, replaces=cast.pod.incarnation)
    async with stage.blocked(booting, on=booter.connection) as boot:
        await beat.commit()
    assert boot.result().incarnation is not None
    assert await stage.rows() == {}
    with pytest.raises(Exception, match="later boot"):
        await stage.now.pods.beat(cast.pod.id, cast.pod.incarnation, honest(answer))


async def test_a_beat_under_way_keeps_its_pod_from_expiring(stage: Stage, cast: Cast) -> None:
    """The beat came in time; by when it is committed the row is renewed."""
    beater = await stage.actor()
    await stage.time.advance(TTL - 0.5)
    async with beater.open():
        await beater.beat(cast.pod, Report())
        await stage.time.advance(1.0)
        assert await stage.now.pods.expire_pods(cast.tenure, RESCUES) == ([cast.leader.id], 0)
    assert await stage.now.pods.expire_pods(cast.tenure, RESCUES) == ([], 0)


# Registrations that meet.


async def test_of_two_first_boots_at_once_the_second_hears_of_the_first(stage: Stage, cast: Cast) -> None:
    """It named no boot to replace, so it may not retire the one that came in between."""
    id, one, two = uuid4(), await stage.actor(), await stage.actor()
    first = await one.begin()
    pod = await one.join(id, machine="here")
    async with stage.blocked(two.register(id, machine="there"), on=two.connection) as second:
        await first.commit()
    boot = second.result()
    assert (boot.incarnation, boot.wait_in, boot.found) == (None, None, pod.incarnation)
    assert await stage.now.pods.beat(pod.id, pod.incarnation, Report()) is not None


async def test_of_two_first_boots_at_once_the_second_is_let_in_when_the_first_is_undone(
    stage: Stage, cast: Cast
) -> None:
    id, one, two = uuid4(), await stage.actor(), await stage.actor()
    first = await one.begin()
    await one.join(id)
    async with stage.blocked(two.register(id), on=two.connection) as second:
        await first.rollback()
    assert second.result().incarnation is not None


async def test_a_late_duplicate_of_a_registration_retires_nobody(stage: Stage, cast: Cast) -> None:
    """The first one's answer was lost or late, and the pod, or the network, sent it once more."""
    one, two = await stage.actor(), await stage.actor()
    first = await one.begin()
    pod = await one.join(cast.pod.id, replaces=cast.pod.incarnation)
    sending = two.register(cast.pod.id, replaces=cast.pod.incarnation)
    async with stage.blocked(sending, on=two.connection) as duplicate:
        await first.commit()
    assert (duplicate.result().incarnation, duplicate.result().found) == (None, pod.incarnation)
    later = await stage.now.register(cast.pod.id, replaces=cast.pod.incarnation)
    assert (later.incarnation, later.found) == (None, pod.incarnation)
    assert await stage.now.pods.beat(pod.id, pod.incarnation, Report()) is not None


async def test_a_boot_that_waits_past_the_expiry_of_one_elsewhere_is_let_in(stage: Stage, cast: Cast) -> None:
    holder, booter = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute("SELECT FROM rota.pod WHERE id = $1 FOR UPDATE", cast.pod.id)
    booting = booter.register(cast.pod.id, replaces=cast.pod.incarnation, machine="elsewhere")
    async with stage.blocked(booting, on=booter.connection) as boot:
        await stage.time.advance(TTL)
        await lock.commit()
    assert boot.result().incarnation is not None


# Drains that meet plans: they do not wait for each other, and the next plan knows.


@pytest.mark.parametrize("drained_first", [True, False])
async def test_a_drain_and_a_plan_do_not_wait_for_each_other_and_a_draining_pod_claims_nothing(
    stage: Stage, cast: Cast, drained_first: bool
) -> None:
    planner, operator = await stage.actor(), await stage.actor()
    plan, drain = await planner.begin(), await operator.begin()
    if drained_first:
        assert await operator.pods.drain_pod(cast.pod.id)
        await planner.plan(cast.tenure, {cast.pod: 3})
    else:
        await planner.plan(cast.tenure, {cast.pod: 3})
        assert await operator.pods.drain_pod(cast.pod.id)
    for transaction in (drain, plan) if drained_first else (plan, drain):
        await transaction.commit()
    assert await stage.row(cast.pod) == Assignment(3, 3, 3)
    assert await stage.now.take_jobs(cast.pod) == []
    await stage.now.plan(cast.tenure, {cast.leader: CAP})
    assert await stage.held() == CAP, "the pod's three count until it has beaten"
