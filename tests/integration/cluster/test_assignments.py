"""Targets and what is held: revoke before grant, whoever wrote the plan; and what beats give back."""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

import pytest

from rota.cluster.view import Assignment
from rota.errors import PodRetired
from rota.storage.rows import PlanRow, Report, Tenure
from rota.words import Incarnation, PodId
from tests.integration.cluster.stage import TTL, Stage, honest
from tests.integration.storage.stage import QUEUE, RESCUES, Pod

CAP = 4


class Cast(NamedTuple):
    """Two pods, of which the first leads."""

    pod: Pod
    other: Pod
    tenure: Tenure


@pytest.fixture
async def cast(stage: Stage) -> Cast:
    await stage.declare(**{QUEUE: CAP})
    pod, other = await stage.now.join(), await stage.now.join()
    return Cast(pod, other, await stage.now.lead(pod, 1_000.0))


# The plan.


async def test_slots_move_in_three_steps_revoked_given_back_granted(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    wanted = {cast.pod: 1, cast.other: 3}
    await stage.now.plan(cast.tenure, wanted)
    assert await stage.rows() == {cast.pod.id: Assignment(1, 4, 4), cast.other.id: Assignment(0, 0, 0)}
    await stage.hear(cast.pod)
    assert await stage.row(cast.pod) == Assignment(1, 1, 1)
    await stage.now.plan(cast.tenure, wanted)
    assert await stage.rows() == {cast.pod.id: Assignment(1, 1, 1), cast.other.id: Assignment(3, 3, 3)}


async def test_a_plan_says_what_it_changed_and_is_kept_with_cause_and_sentence(
    stage: Stage, cast: Cast
) -> None:
    written = await stage.now.plan(cast.tenure, {cast.pod: 3})
    assert written is not None
    assert (written.changed, written.granted, written.revoked) == ((cast.pod.id,), 3, 0)
    written = await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 1})
    assert written is not None
    assert (sorted(written.changed), written.granted, written.revoked) == (
        sorted([cast.pod.id, cast.other.id]),
        1,
        2,
    )
    kept = [(row.queue, row.granted, row.revoked, row.cause, row.epoch) for row in await plans(stage)]
    assert kept == [(QUEUE, 1, 2, "a test", 1), (QUEUE, 3, 0, "a test", 1)]


async def test_a_plan_that_changes_nothing_is_not_kept_and_tells_nobody(stage: Stage, cast: Cast) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: 3})
    ear = await stage.listen()
    written = await stage.now.plan(cast.tenure, {cast.pod: 3})
    assert written is not None
    assert written.changed == ()
    assert len(await plans(stage)) == 1
    assert await ear.heard() == []


async def test_a_plan_asks_the_pods_it_changed_to_beat_and_tells_no_target(stage: Stage, cast: Cast) -> None:
    ear = await stage.listen()
    await stage.now.plan(cast.tenure, {cast.pod: 3})
    await stage.now.plan(cast.tenure, {cast.pod: 2}, tell=False)
    assert await ear.heard() == [f"beat:{str(cast.pod.id)[:13]}"]


async def test_a_plan_of_several_queues_asks_all_pods_with_the_last(stage: Stage, cast: Cast) -> None:
    ear = await stage.listen()
    await stage.now.assignments.plan_queue(
        cast.tenure, QUEUE, {cast.pod.id: 1}, cause="", sentence="", also=[cast.other.id, cast.pod.id]
    )
    (notice,) = await ear.heard()
    assert sorted(notice.removeprefix("beat:").split(",")) == sorted(
        str(pod.id)[:13] for pod in (cast.pod, cast.other)
    )


async def test_a_pod_that_a_plan_leaves_out_gets_nothing(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: 2, cast.other: 2})
    await stage.now.plan(cast.tenure, {cast.other: 2})
    assert await stage.row(cast.pod) == Assignment(0, 2, 2)


@pytest.mark.parametrize("absurd", [2**31 - 1, CAP + 1])
async def test_a_plan_for_more_than_the_cap_is_written_as_far_as_the_cap_goes(
    stage: Stage, cast: Cast, absurd: int
) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: absurd, cast.other: absurd})
    assert await stage.held() == CAP


async def test_a_plan_for_less_than_nothing_is_one_for_nothing(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: 2})
    await stage.now.plan(cast.tenure, {cast.pod: -1, cast.other: -(2**31)})
    assert await stage.rows() == {cast.pod.id: Assignment(0, 2, 2)}


async def test_a_plan_for_strangers_or_an_unknown_queue_changes_nothing(stage: Stage, cast: Cast) -> None:
    stranger = Pod(PodId(uuid4()), Incarnation(1))
    written = await stage.now.plan(cast.tenure, {stranger: 2})
    assert written is not None
    assert (written.changed, await stage.rows()) == ((), {})
    written = await stage.now.plan(cast.tenure, {cast.pod: 2}, queue="unheard of")
    assert written is not None
    assert (written.changed, await plans(stage)) == ((), [])


async def plans(stage: Stage) -> list[PlanRow]:
    return await stage.now.assignments.list_plans()


# The beat.


async def test_an_answer_hands_out_the_targets_and_counts(stage: Stage, cast: Cast) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: 3})
    first = await stage.hear_once(cast.pod)
    second = await stage.now.beat(cast.pod, honest(first))
    assert (first.answer, first.timeline, first.targets) == (1, 1, {QUEUE: 3})
    assert (second.answer, second.targets) == (2, {QUEUE: 3})


@pytest.mark.parametrize(
    ("acts", "uses", "held", "acting"), [(0, 0, 1, 1), (2, 0, 2, 2), (1, 3, 3, 1), (9, 9, 4, 4)]
)
async def test_held_falls_to_the_most_of_told_acted_on_and_used_and_never_rises(
    stage: Stage, cast: Cast, acts: int, uses: int, held: int, acting: int
) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.hear_once(cast.pod)
    report = Report(told.timeline, told.answer, [QUEUE], [acts], [uses])
    await stage.now.beat(cast.pod, report)
    assert await stage.row(cast.pod) == Assignment(1, held, acting)


@pytest.mark.parametrize("behind", [1, 2, -1])
async def test_a_beat_without_the_latest_answer_lowers_nothing(stage: Stage, cast: Cast, behind: int) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.hear_once(cast.pod)
    await stage.now.beat(cast.pod, Report(told.timeline, told.answer - behind))
    assert await stage.row(cast.pod) == Assignment(1, CAP, CAP)


async def test_slots_given_back_ask_for_a_plan_and_a_beat_like_any_other_does_not(
    stage: Stage, cast: Cast
) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await stage.now.plan(cast.tenure, {cast.pod: 1}, tell=False)
    told, ear = await stage.hear_once(cast.pod), await stage.listen()
    told = await stage.now.beat(cast.pod, honest(told))
    assert await ear.heard() == ["plan:slots were given back"]
    await stage.now.beat(cast.pod, honest(told))
    assert await ear.heard() == []


async def test_a_beat_of_an_earlier_boot_is_refused_and_touches_nothing(stage: Stage, cast: Cast) -> None:
    new = await stage.now.join(cast.pod.id, replaces=cast.pod.incarnation)
    await stage.now.plan(cast.tenure, {new: 3})
    before = await stage.rows()
    with pytest.raises(PodRetired):
        await stage.now.pods.beat(cast.pod.id, cast.pod.incarnation, Report(1, 0, [QUEUE], [9], [9]))
    assert await stage.rows() == before
    assert (await stage.hear_once(new)).answer == 1, "and no answer was counted"


async def test_a_new_boot_begins_with_nothing(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: CAP})
    await stage.now.join(cast.pod.id, replaces=cast.pod.incarnation)
    assert await stage.rows() == {}


# The share.


async def share(stage: Stage, pod: Pod, *queues: str) -> dict[str, int]:
    return dict((await stage.now.beat(pod, Report(sharing=queues or [QUEUE]))).targets)


@pytest.mark.parametrize(("cap", "shares"), [(0, [0, 0, 0]), (1, [1, 0, 0]), (4, [2, 2, 0]), (9, [3, 3, 3])])
async def test_pods_without_a_leader_take_a_fair_share_each_of_what_is_free(
    stage: Stage, cap: int, shares: list[int]
) -> None:
    await stage.declare(**{QUEUE: cap})
    pods = [await stage.now.join() for _ in range(3)]
    assert [(await share(stage, pod)).get(QUEUE, 0) for pod in pods] == shares


async def test_a_share_is_bounded_by_the_pods_capacity_in_all_and_by_queue(stage: Stage) -> None:
    await stage.declare(a=9, b=9, c=9)
    pod = await stage.now.join(queues=["a", "b", "c"], capacity=8, capacities={"a": 2})
    assert await share(stage, pod, "c", "b", "a") == {"a": 2, "b": 6}


async def test_pods_that_drain_are_silent_or_serve_other_queues_make_no_share_smaller(stage: Stage) -> None:
    await stage.declare(**{QUEUE: 6})
    pod, drained = await stage.now.join(), await stage.now.join()
    await stage.now.join(ttl=0.0)
    await stage.now.join(queues=["another"])
    await stage.now.pods.drain_pod(drained.id)
    assert await share(stage, drained) == {}
    assert await share(stage, pod) == {QUEUE: 6}


async def test_a_pod_that_has_a_row_takes_no_share_even_if_it_is_of_nothing(stage: Stage, cast: Cast) -> None:
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    await stage.now.plan(cast.tenure, {})
    assert await share(stage, cast.pod) == {QUEUE: 0}


async def test_a_first_beat_that_says_it_does_nothing_takes_its_share(stage: Stage, cast: Cast) -> None:
    """A row of zeros in place of what was said would have stood in the way."""
    report = Report(busy=[QUEUE], acts=[0], uses=[0], sharing=[QUEUE])
    assert (await stage.now.beat(cast.pod, report)).targets == {QUEUE: 2}


async def test_there_is_no_share_of_a_paused_or_an_unknown_queue(stage: Stage, cast: Cast) -> None:
    await stage.queues.change_queue(QUEUE, paused=True)
    assert await share(stage, cast.pod, QUEUE, "unheard of") == {}


# A failover.


async def test_after_a_failover_beats_teach_the_server_what_pods_were_told(stage: Stage, cast: Cast) -> None:
    """The rows of the last moments are lost; the pods are not, nor what they act on."""
    await stage.granted(cast.tenure, {cast.pod: 3})
    told = await stage.hear(cast.pod)
    await stage.connection.execute("UPDATE rota.assignment SET target = 1, held = 1, acting = 1")
    await stage.time.promote()
    await stage.now.beat(cast.pod, honest(told, **{QUEUE: 2}))
    assert await stage.row(cast.pod) == Assignment(1, 3, 3)
    await stage.connection.execute("DELETE FROM rota.assignment")
    await stage.now.beat(cast.pod, honest(told, **{QUEUE: 2}))
    assert await stage.row(cast.pod) == Assignment(0, 3, 3)


async def test_after_a_failover_a_beat_that_says_less_lowers_nothing(stage: Stage, cast: Cast) -> None:
    """What it says was so before the rows that the server has: it may have been told more since."""
    await stage.granted(cast.tenure, {cast.pod: 3})
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    told = await stage.hear_once(cast.pod)
    await stage.time.promote()
    await stage.now.beat(cast.pod, honest(told))
    assert await stage.row(cast.pod) == Assignment(1, 3, 3)
    answer = await stage.hear_once(cast.pod)
    await stage.now.beat(cast.pod, honest(answer))
    assert await stage.row(cast.pod) == Assignment(1, 1, 1), "with an answer of the new server it does"


async def test_while_a_failover_settles_nothing_is_granted_and_then_it_is(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: 1})
    await stage.time.promote()
    tenure = await stage.now.lead(cast.pod, 1_000.0)
    await stage.now.plan(tenure, {cast.pod: 2, cast.other: 2})
    assert (await stage.row(cast.pod), await stage.row(cast.other)) == (
        Assignment(1, 1, 1),
        Assignment(0, 0, 0),
    )
    third = await stage.now.join()
    assert await share(stage, third) == {}
    await stage.time.advance(TTL - 0.5)
    await stage.now.plan(tenure, {cast.pod: 2, cast.other: 2})
    assert await stage.held() == 1
    await stage.time.advance(0.5)
    await stage.now.plan(tenure, {cast.pod: 2, cast.other: 2})
    assert await stage.held() == CAP


async def test_while_a_failover_settles_nobody_expires_and_no_job_is_rescued(
    stage: Stage, cast: Cast
) -> None:
    await stage.add()
    await stage.now.take_jobs(cast.other)
    await stage.time.promote()
    tenure = await stage.now.lead(cast.pod, 1_000.0)
    await stage.now.pods.expire_pods(tenure, RESCUES)
    await stage.connection.execute("UPDATE rota.pod SET expires_at = rota.clock()")
    assert await stage.now.pods.expire_pods(tenure, RESCUES) == ([], 0)
    await stage.time.advance(TTL)
    gone = await stage.now.pods.expire_pods(tenure, RESCUES)
    assert gone is not None
    assert (sorted(gone[0]), gone[1]) == (sorted([cast.pod.id, cast.other.id]), 1)


async def test_a_boot_while_a_failover_settles_rescues_nothing_yet(stage: Stage, cast: Cast) -> None:
    job = await stage.add_one()
    await stage.now.take_jobs(cast.other)
    await stage.time.promote()
    await stage.now.join(cast.other.id, replaces=cast.other.incarnation)
    assert await stage.running() == [job]


async def test_a_row_that_the_lost_server_renewed_last_lives_however_old_it_looks(
    stage: Stage, cast: Cast
) -> None:
    await stage.connection.execute("UPDATE rota.pod SET expires_at = rota.clock() - interval '1 hour'")
    assert await stage.now.pods.beat(cast.pod.id, cast.pod.incarnation, Report()) is None
    await stage.time.promote()
    assert await stage.now.pods.beat(cast.pod.id, cast.pod.incarnation, Report()) is not None
