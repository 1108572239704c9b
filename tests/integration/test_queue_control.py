"""An operator's calls, on a database where pods, leader and clock move only as the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import BadName, BadOption, CapOvertaken, Fixed, HandOverTimeout, QueueExists, QueueNotFound
from rota.runtime.queues import HandOver, QueueControl
from rota.storage.rows import PodRow, QueueRow
from tests.integration.cluster.stage import TTL, Stage
from tests.integration.storage.stage import QUEUE, RESCUES

CAP = 6


@pytest.fixture
async def stage(dsn: str) -> AsyncIterator[Stage]:
    async with Stage.on(dsn) as stage:
        await stage.time.stop()
        await stage.declare(**{QUEUE: CAP, "reports": 2})
        yield stage


@pytest.fixture
def control(stage: Stage) -> QueueControl:
    return QueueControl(stage.database)


async def rows(control: QueueControl) -> list[QueueRow]:
    return await control.list_queues()


@pytest.mark.parametrize(
    "call",
    [
        lambda control: control.show("nope"),
        lambda control: control.resize("nope", 1),
        lambda control: control.pause("nope"),
        lambda control: control.resume("nope"),
        lambda control: control.set("nope", retry=None),
        lambda control: control.rehearse("nope", 1),
    ],
)
async def test_a_queue_that_does_not_exist_is_told_which_do(control: QueueControl, call: Any) -> None:
    with pytest.raises(
        QueueNotFound, match=r'^There is no queue "nope"; there are emails, reports\.$'
    ) as error:
        await call(control)
    assert (error.value.queue, error.value.known) == ("nope", ("emails", "reports"))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda control: control.resize(QUEUE, -1), BadOption),
        (lambda control: control.resize(QUEUE, 2**31), BadOption),
        (lambda control: control.resize(QUEUE, True), BadOption),
        (lambda control: control.resize(QUEUE, "40"), BadOption),
        (lambda control: control.resize(QUEUE, 4.0), BadOption),
        (lambda control: control.rehearse(QUEUE, -1), BadOption),
        (lambda control: control.create("new", max_workers=-1), BadOption),
        (lambda control: control.create(" "), BadName),
        (lambda control: control.resize("a\0b", 1), BadName),
        (lambda control: control.set(QUEUE, colour="red"), BadOption),
        (lambda control: control.set(QUEUE, max_workers=3, paused="no"), BadOption),
        (lambda control: control.set(QUEUE, max_workers=3, retry={"policy": "fixed"}), BadOption),
    ],
)
async def test_bad_input_writes_nothing(control: QueueControl, call: Any, error: type[Exception]) -> None:
    before = await rows(control)
    with pytest.raises(error):
        await call(control)
    assert await rows(control) == before
    assert len(await control.list_changes(QUEUE)) == 1


async def test_a_queue_is_made_once_and_left_as_it_is_the_second_time(control: QueueControl) -> None:
    await control.create("new", max_workers=0, retry=Fixed(5))
    with pytest.raises(QueueExists, match=r'^Queue "new" exists already'):
        await control.create("new", max_workers=9)
    made = await control.show("new")
    assert (made.max_workers, made.retry) == (0, {"policy": "fixed", "wait": 5})


async def test_several_settings_are_one_change(control: QueueControl, stage: Stage) -> None:
    ear = await stage.listen()
    change = await control.set(QUEUE, max_workers=9, paused=True, retry=Fixed(5))
    row = await control.show(QUEUE)
    assert (row.max_workers, row.paused, row.retry) == (9, True, {"policy": "fixed", "wait": 5})
    assert (change.cap, change.in_force) == (0, True)
    assert await ear.heard() == [f"plan:{QUEUE} was paused"]
    assert [known.cap for known in await control.list_changes(QUEUE)] == [0, CAP]


async def test_a_policy_is_taken_away_again_and_pods_are_told_at_once(
    control: QueueControl, stage: Stage
) -> None:
    pod = await stage.now.join()
    await control.set(QUEUE, retry=Fixed(5))
    ear = await stage.listen()
    await control.set(QUEUE, retry=None)
    assert (await control.show(QUEUE)).retry is None
    assert await ear.heard() == [f"beat:{str(pod.id)[:13]}"]
    assert (await control.set(QUEUE, max_workers=CAP)).in_force
    assert (await control.show(QUEUE)).retry is None


async def test_a_cap_without_pods_is_in_force_at_once_and_says_that_nobody_serves_it(
    control: QueueControl,
) -> None:
    for workers in (9, 1, 0):
        now = await control.wait(await control.resize(QUEUE, workers), settled=True)
        assert (now.in_force, now.settled, now.standing.shortage) == (True, True, "no live pod serves it")


async def test_a_raised_cap_is_in_force_before_its_slots_are_granted(
    control: QueueControl, stage: Stage
) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    change = await control.resize(QUEUE, 9)
    now = await control.wait(change)
    assert (now.in_force, now.settled, now.took) == (True, False, 0.0)
    with pytest.raises(HandOverTimeout, match=r"is not settled after 0 s \(6 of 9 are granted\)"):
        await control.wait(change, settled=True, timeout=0)
    await stage.granted(tenure, {pod: 9})
    assert (await control.wait(change, settled=True)).settled


async def test_a_lowered_cap_is_waited_for_until_every_pod_has_acknowledged(
    control: QueueControl, stage: Stage
) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    change = await control.resize(QUEUE, 2)
    assert not change.in_force
    await stage.now.plan(tenure, {pod: 2})
    with pytest.raises(HandOverTimeout, match=r'"emails" is not in force after 0 s \(a pod gives back 4\)'):
        await control.wait(change, timeout=0)
    await stage.hear(pod)
    now = await control.wait(change, settled=True)
    assert (now.in_force, now.settled, now.standing.held) == (True, True, 2)


async def test_a_cap_that_holds_is_noted_by_who_waits_where_nobody_leads(
    control: QueueControl, stage: Stage
) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    change = await control.resize(QUEUE, 2)
    assert await stage.pods.leave_pod(pod.id, pod.incarnation)
    assert (await control.list_changes(QUEUE, 1))[0].in_force_at is None
    assert (await control.wait(change)).in_force
    assert (await control.list_changes(QUEUE, 1))[0].in_force_at is not None


async def test_jobs_that_run_above_a_cap_in_force_are_waited_for_until_it_is_settled(
    control: QueueControl, stage: Stage
) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    change = await control.resize(QUEUE, 2)
    for wanted in (2, 2, 0):
        await stage.now.plan(tenure, {pod: wanted})
        await stage.hear(pod, **{QUEUE: CAP})
    now = await control.wait(change)
    assert (now.in_force, now.settled, now.standing.held, now.standing.granted) == (True, False, CAP, 0)
    seen: list[HandOver] = []
    with pytest.raises(HandOverTimeout, match="is not settled"):
        await control.wait(change, settled=True, timeout=0, see=seen.append)
    assert [look.standing.held for look in seen] == [CAP]
    await stage.hear(pod)
    await stage.granted(tenure, {pod: 2})
    assert (await control.wait(change, settled=True)).settled


async def test_asking_for_what_is_under_way_gives_the_change_to_wait_for(
    control: QueueControl, stage: Stage
) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    first = await control.resize(QUEUE, 2)
    assert await control.resize(QUEUE, 2) == first
    assert len(await control.list_changes(QUEUE)) == 2


async def test_a_change_that_a_later_one_overtook_says_so(control: QueueControl, stage: Stage) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    first = await control.resize(QUEUE, 2)
    second = await control.resize(QUEUE, 9)
    with pytest.raises(CapOvertaken, match=r"^The cap 2 of queue .* before it was in force\.$"):
        await control.wait(first)
    assert (await control.wait(second)).in_force


async def test_a_change_in_force_that_a_later_one_overtook_never_settles(
    control: QueueControl, stage: Stage
) -> None:
    await stage.now.join()
    first = await control.resize(QUEUE, 9)
    await control.resize(QUEUE, 10)
    assert (await control.wait(first)).in_force
    with pytest.raises(CapOvertaken, match="before it was settled"):
        await control.wait(first, settled=True)


async def test_nobody_waits_for_pods_that_fell_silent(control: QueueControl, stage: Stage) -> None:
    pod, tenure = await stage.now.join(), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    await stage.time.advance(TTL + 1)
    change = await control.resize(QUEUE, 2)
    now = await control.wait(change)
    assert (now.in_force, now.standing.left()) == (False, "a pod fell silent with 6")
    swept = await stage.pods.rescue(RESCUES)
    assert swept is not None
    assert swept[0] == [pod.id]
    assert (await control.wait(change)).in_force


async def test_a_paused_queue_is_resized_for_when_it_is_resumed(control: QueueControl, stage: Stage) -> None:
    await stage.now.join()
    await control.pause(QUEUE)
    resized = await control.resize(QUEUE, 9)
    assert (resized.cap, resized.id, resized.in_force) == (0, None, True)
    now = await control.look(resized)
    assert (now.standing.queue.paused, now.standing.queue.max_workers) == (True, 9)
    assert (await control.resume(QUEUE)).cap == 9


async def test_a_rehearsal_writes_nothing(control: QueueControl, stage: Stage) -> None:
    pod, tenure = await stage.now.join(capacity=12), await stage.lead()
    await stage.granted(tenure, {pod: CAP})
    before = await rows(control)
    plan = await control.rehearse(QUEUE, 40)
    assert [(move.before, move.after) for move in plan.moves] == [(CAP, 12)]
    assert plan.standing.shortage == "pods can hold 12 of 40"
    assert await rows(control) == before
    assert len(await control.list_changes(QUEUE)) == 1


async def test_a_rescue_by_hand_takes_more_jobs_than_one_sweep(stage: Stage) -> None:
    pod = await stage.boot()
    jobs = await stage.add(1100)
    assert len(await stage.claim(pod, len(jobs))) == len(jobs)
    await stage.time.advance(TTL + 1)
    assert [row.silent for row in await pods(stage)] == [True]
    swept = await stage.pods.rescue(RESCUES)
    assert swept == ([pod.id], len(jobs))
    assert await stage.pods.rescue(RESCUES) == ([], 0)


async def test_nobody_is_rescued_by_hand_while_a_failover_settles(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.time.advance(TTL + 1)
    await stage.connection.execute("UPDATE rota.server SET timeline = timeline - 1")
    assert await stage.pods.rescue(RESCUES) is None
    assert [row.id for row in await pods(stage)] == [pod.id]


async def pods(stage: Stage) -> list[PodRow]:
    return await stage.pods.list_pods()
