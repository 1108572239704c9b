"""Locks are taken in one order: server, lease, queues, pods, assignments by (queue, pod), jobs.

The storm proves it by chance; here whoever waits for the first of two locks must not hold the second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from rota.storage.rows import Report, Tenure
from tests.integration.cluster.stage import TTL, Actor, Stage
from tests.integration.storage.stage import RESCUES, Pod

HOLD_QUEUES = "SELECT FROM rota.queue FOR UPDATE"
HOLD_PODS = "SELECT FROM rota.pod FOR UPDATE"
HOLD = "SELECT FROM rota.assignment WHERE queue = $1 AND pod = $2 FOR UPDATE"
NOWAIT = f"{HOLD} NOWAIT"
ALL_NOWAIT = "SELECT FROM rota.assignment FOR UPDATE NOWAIT"


async def rows_of_two_pods(stage: Stage) -> tuple[list[Pod], Tenure]:
    """Two pods with slots in two queues, by id; all of it was written in the opposite order."""
    await stage.declare(a=10, b=10)
    later = await stage.now.join(UUID(int=2), queues=["a", "b"])
    first = await stage.now.join(UUID(int=1), queues=["a", "b"])
    tenure = await stage.now.lead(first, 1_000.0)
    for queue in ("b", "a"):
        for pod in (later, first):
            slots = {later: 3} if pod is later else {later: 3, first: 3}
            await stage.now.plan(tenure, slots, queue=queue)
    for pod in (later, first):
        await stage.now.beat(pod, Report())
    return [first, later], tenure


Call = Callable[[Actor, list[Pod], Tenure], Awaitable[object]]


async def sweep(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.pods.sweep_pods(RESCUES)


async def expire(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.pods.expire_pods(tenure, RESCUES)


async def plan(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.plan(tenure, {pods[0]: 1, pods[1]: 1}, queue="a")


async def beat(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    """That lowers what is held in both queues."""
    return await by.beat(pods[0], Report(timeline=1, heard=1))


async def learn(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.beat(pods[0], Report(0, 1, ["b", "a"], [5, 5], [5, 5]))


async def leave(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.pods.leave_pod(pods[0].id, pods[0].incarnation)


async def boot(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.register(pods[0].id, replaces=pods[0].incarnation)


async def share(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.beat(pods[0], Report(timeline=1, heard=1, sharing=["b", "a"]))


async def resize(by: Actor, pods: list[Pod], tenure: Tenure) -> object:
    return await by.resize(1, "a")


@pytest.mark.parametrize("call", [plan, share, resize])
async def test_whoever_waits_for_a_queue_holds_no_pod_and_no_assignment(stage: Stage, call: Call) -> None:
    pods, tenure = await rows_of_two_pods(stage)
    holder, caller = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute(HOLD_QUEUES)
    async with stage.blocked(call(caller, pods, tenure), on=caller.connection):
        await holder.connection.execute(f"{HOLD_PODS} NOWAIT")
        await holder.connection.execute(ALL_NOWAIT)
        await lock.commit()


@pytest.mark.parametrize("call", [beat, learn, leave, boot])
async def test_whoever_waits_for_its_pod_holds_no_assignment(stage: Stage, call: Call) -> None:
    pods, tenure = await rows_of_two_pods(stage)
    holder, caller = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute(HOLD_PODS)
    async with stage.blocked(call(caller, pods, tenure), on=caller.connection):
        await holder.connection.execute(ALL_NOWAIT)
        await lock.commit()


@pytest.mark.parametrize("call", [sweep, expire, plan])
async def test_whoever_waits_for_the_row_of_one_pod_holds_none_of_a_later_pod(
    stage: Stage, call: Call
) -> None:
    (first, later), tenure = await rows_of_two_pods(stage)
    if call is not plan:
        await stage.time.advance(TTL)
    holder, caller = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute(HOLD, "a", first.id)
    async with stage.blocked(call(caller, [first, later], tenure), on=caller.connection):
        await holder.connection.execute(NOWAIT, "a", later.id)
        await lock.commit()


@pytest.mark.parametrize("call", [beat, learn, leave, boot])
async def test_whoever_waits_for_the_row_of_one_queue_holds_none_of_a_later_queue(
    stage: Stage, call: Call
) -> None:
    pods, tenure = await rows_of_two_pods(stage)
    for queue in ("a", "b"):
        await stage.now.plan(tenure, {}, queue=queue)
    holder, caller = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute(HOLD, "a", pods[0].id)
    async with stage.blocked(call(caller, pods, tenure), on=caller.connection):
        await holder.connection.execute(NOWAIT, "b", pods[0].id)
        await lock.commit()
