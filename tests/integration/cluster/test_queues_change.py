"""A cap is changed: raised it is in force at once, lowered when nobody can run more than it allows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rota.cluster.view import Assignment
from rota.errors import RotaError
from rota.storage.rows import CapChange, Tenure
from tests.integration.cluster.stage import TTL, Stage, honest
from tests.integration.storage.stage import QUEUE, Pod

CAP = 4


class Cast(NamedTuple):
    """Two pods that share the cap and act on it, and their leader's tenure."""

    pod: Pod
    other: Pod
    tenure: Tenure


@pytest.fixture
async def cast(stage: Stage) -> Cast:
    await stage.declare(**{QUEUE: CAP})
    pod, other = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(pod, 1_000.0)
    await stage.granted(tenure, {pod: 2, other: 2})
    return Cast(pod, other, tenure)


async def changed(stage: Stage, workers: int | None = None, paused: bool | None = None) -> CapChange:
    change = await stage.queues.change_queue(QUEUE, max_workers=workers, paused=paused)
    assert change is not None
    return change


async def in_force(stage: Stage, change: CapChange) -> bool:
    assert change.change is not None
    status = await stage.queues.read_cap_change(change.change)
    assert status is not None
    return status.in_force


async def test_a_raised_cap_is_in_force_at_once(stage: Stage, cast: Cast) -> None:
    change = await changed(stage, 9)
    assert (change.cap, change.in_force, await in_force(stage, change)) == (9, True, True)


async def test_a_lowered_cap_above_what_is_held_is_in_force_at_once(stage: Stage, cast: Cast) -> None:
    await stage.granted(cast.tenure, {cast.pod: 1})
    await stage.hear(cast.other)
    assert (await changed(stage, 1)).in_force


async def test_a_lowered_cap_is_in_force_once_all_have_acted_on_it(stage: Stage, cast: Cast) -> None:
    change, wanted = await changed(stage, 2), {cast.pod: 1, cast.other: 1}
    assert not change.in_force
    await stage.now.plan(cast.tenure, wanted)
    await stage.hear(cast.pod)
    await stage.now.plan(cast.tenure, wanted)
    assert not await in_force(stage, change), "the other may still act on two"
    await stage.hear(cast.other)
    await stage.time.advance(3.0)
    await stage.now.plan(cast.tenure, wanted)
    assert await in_force(stage, change)
    assert change.change is not None
    status = await stage.queues.read_cap_change(change.change)
    assert status is not None
    assert (status.took, status.overtaken) == (3.0, False)


async def test_while_busy_slots_stay_over_a_lowered_cap_all_targets_are_zero(
    stage: Stage, cast: Cast
) -> None:
    """Else a pod whose slot is free would start what another's busy slots leave no room for."""
    change, wanted = await changed(stage, 1), {cast.pod: 1}
    await stage.now.plan(cast.tenure, wanted)
    await stage.hear(cast.pod)
    await stage.hear(cast.other, **{QUEUE: 2})
    assert await stage.rows() == {cast.pod.id: Assignment(1, 1, 1), cast.other.id: Assignment(0, 2, 0)}
    await stage.now.plan(cast.tenure, wanted)
    assert (await stage.rows())[cast.pod.id] == Assignment(0, 1, 1)
    await stage.hear(cast.pod)
    await stage.now.plan(cast.tenure, wanted)
    assert await in_force(stage, change), "nobody may start anything, though two still run"
    assert await stage.held() == 2
    await stage.hear(cast.other, **{QUEUE: 1})
    await stage.now.plan(cast.tenure, wanted)
    assert (await stage.rows())[cast.pod.id] == Assignment(0, 0, 0), "one is held, and one is the cap"
    await stage.hear(cast.other)
    await stage.now.plan(cast.tenure, wanted)
    assert (await stage.rows())[cast.pod.id] == Assignment(1, 1, 1)


async def test_a_plan_that_still_has_something_to_revoke_revokes_that_first(stage: Stage, cast: Cast) -> None:
    await changed(stage, 1)
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    assert await stage.rows() == {cast.pod.id: Assignment(1, 2, 2), cast.other.id: Assignment(0, 2, 2)}
    await stage.now.plan(cast.tenure, {cast.pod: 1})
    assert (await stage.rows())[cast.pod.id].target == 1, "not acknowledged yet, so nothing goes to zero"


async def test_while_too_much_is_held_no_target_rises_not_even_to_what_its_pod_holds(
    stage: Stage, cast: Cast
) -> None:
    await changed(stage, 3)
    await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 1})
    await stage.now.plan(cast.tenure, {cast.pod: 2, cast.other: 1})
    assert await stage.rows() == {cast.pod.id: Assignment(1, 2, 2), cast.other.id: Assignment(1, 2, 2)}


async def test_a_pause_is_a_cap_of_zero_and_a_resume_brings_the_old_one_back(
    stage: Stage, cast: Cast
) -> None:
    paused = await changed(stage, paused=True)
    assert (paused.cap, paused.in_force) == (0, False)
    await stage.now.plan(cast.tenure, {cast.pod: 2, cast.other: 2})
    for pod in (cast.pod, cast.other):
        assert (await stage.hear(pod)).targets == {QUEUE: 0}
    await stage.now.plan(cast.tenure, {})
    assert await in_force(stage, paused)
    resumed = await changed(stage, paused=False)
    assert (resumed.cap, resumed.in_force) == (CAP, True)


async def test_a_change_that_a_later_one_overtook_is_never_in_force(stage: Stage, cast: Cast) -> None:
    lower = await changed(stage, 1)
    higher = await changed(stage, 9)
    assert (lower.in_force, higher.in_force) == (False, True)
    await stage.now.plan(cast.tenure, {})
    for pod in (cast.pod, cast.other):
        await stage.hear(pod)
    await stage.now.plan(cast.tenure, {})
    assert not await in_force(stage, lower)


async def test_a_cap_between_the_one_in_force_and_the_one_asked_for_has_to_wait_as_well(
    stage: Stage, cast: Cast
) -> None:
    """Four are in force, one was asked for, two are asked for now: that is no raise."""
    await changed(stage, 1)
    assert not (await changed(stage, 2)).in_force


async def test_a_cap_that_stays_what_it_was_is_no_change(stage: Stage, cast: Cast) -> None:
    assert await changed(stage, CAP) == CapChange(None, CAP, True)
    assert await changed(stage) == CapChange(None, CAP, True)
    await changed(stage, 1)
    assert await changed(stage, 1) == CapChange(None, 1, False), "asked for, and not in force yet"
    await changed(stage, paused=True)
    assert await changed(stage, 7) == CapChange(None, 0, False), "a paused queue is resized unseen"


async def test_a_cap_is_confirmed_without_a_leader(stage: Stage, cast: Cast) -> None:
    change = await changed(stage, 2)
    await stage.now.plan(cast.tenure, {cast.pod: 1, cast.other: 1})
    assert not await stage.queues.confirm_cap(QUEUE)
    for pod in (cast.pod, cast.other):
        await stage.hear(pod)
    assert await stage.queues.confirm_cap(QUEUE)
    assert await in_force(stage, change)


async def test_while_a_failover_settles_no_lowered_cap_comes_into_force(stage: Stage, cast: Cast) -> None:
    """Rows that say nobody holds anything were perhaps written before somebody was granted it."""
    await stage.connection.execute("DELETE FROM rota.assignment")
    await stage.time.promote()
    change = await changed(stage, 1)
    assert not change.in_force
    assert not await stage.queues.confirm_cap(QUEUE)
    assert (await changed(stage, 9)).in_force, "a raised one is"
    change = await changed(stage, 1)
    await stage.time.advance(TTL)
    assert await stage.queues.confirm_cap(QUEUE)
    assert await in_force(stage, change)


async def test_a_change_asks_for_a_plan_and_says_what_it_was(stage: Stage, cast: Cast) -> None:
    ear = await stage.listen()
    await changed(stage, 1)
    await changed(stage, paused=True)
    await changed(stage, paused=False)
    await changed(stage, 1)
    assert await ear.heard() == [f"plan:{QUEUE} was {how}" for how in ("resized", "paused", "resumed")]


async def test_a_lowered_cap_reaches_pods_only_by_their_beats(stage: Stage, cast: Cast) -> None:
    told = await stage.hear_once(cast.pod)
    await changed(stage, 0)
    assert (await stage.now.beat(cast.pod, honest(told))).targets == {QUEUE: 2}, "no plan was made yet"


async def test_a_queue_that_does_not_exist_is_not_changed(stage: Stage) -> None:
    assert await stage.queues.change_queue("unheard of", max_workers=1) is None
    assert not await stage.queues.confirm_cap("unheard of")


async def test_a_cap_below_zero_is_refused_and_changes_nothing(stage: Stage, cast: Cast) -> None:
    with pytest.raises(RotaError, match="max_workers_is_not_negative"):
        await changed(stage, -1)
    assert await changed(stage) == CapChange(None, CAP, True)
