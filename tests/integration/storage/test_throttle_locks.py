"""A throttle cools its queue down, so it locks the queue's row: first, as the order of locks asks.

One connection holds the queue as a plan or a resize does; the other finalizes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from rota.storage.rows import NO_HINT
from tests.integration.storage.stage import KIND, QUEUE, Pod, Stage, as_json, ids

HOLD = "SELECT FROM rota.queue WHERE name = $1 FOR NO KEY UPDATE"
WANT_JOB = "SELECT FROM rota.job WHERE id = $1 FOR UPDATE"
WANT_POD = "SELECT FROM rota.pod WHERE id = $1 FOR UPDATE"

Runs = Sequence[asyncpg.Record]
Door = Callable[[Stage, asyncpg.Connection, Pod, Runs, str | None], Awaitable[Any]]


async def finalize(stage: Stage, on: asyncpg.Connection, pod: Pod, done: Runs, others: str | None) -> None:
    claims = [run["claim"] for run in done]
    lost = await on.fetchval(
        stage.database.queries["finalize_jobs"], pod.id, pod.incarnation, ids(done), claims, None, others
    )
    assert lost == []


async def work(stage: Stage, on: asyncpg.Connection, pod: Pod, done: Runs, others: str | None) -> None:
    claims, places = [run["claim"] for run in done], ([KIND], [NO_HINT.rank], [NO_HINT.id])
    rows = await on.fetch(
        stage.database.queries["work_jobs"],
        *(pod.id, pod.incarnation, 1_000, QUEUE, 10, *places, ids(done), claims, None, others),
    )
    assert rows == []


def ended(outcome: str, *runs: asyncpg.Record) -> str:
    return as_json(
        [{"id": run["id"], "claim": run["claim"], "outcome": outcome, "delay": 60.0} for run in runs]
    )


doors = pytest.mark.parametrize("door", [finalize, work])


@doors
@pytest.mark.parametrize("wanted", ["the throttled job", "a done job", "the pod"])
async def test_a_throttle_that_waits_for_its_queue_holds_nothing_that_a_plan_may_want(
    stage: Stage, door: Door, wanted: str
) -> None:
    await stage.queues.declare_queues({QUEUE: (10, None)})
    pod = await stage.boot()
    throttled, done = await stage.run_one(pod), await stage.run_one(pod)
    planner, finalizer = await stage.connect(), await stage.connect()
    plan = planner.transaction()
    await plan.start()
    await planner.execute(HOLD, QUEUE)
    async with stage.blocked(door(stage, finalizer, pod, [done], ended("throttle", throttled)), on=finalizer):
        match wanted:
            case "the throttled job":
                await planner.execute(WANT_JOB, throttled["id"])
            case "a done job":
                await planner.execute(WANT_JOB, done["id"])
            case _:
                await planner.execute(WANT_POD, pod.id)
        await plan.commit()
    assert await cooling(stage) == [QUEUE]


@doors
async def test_queues_that_were_throttled_together_are_locked_by_name(stage: Stage, door: Door) -> None:
    await stage.queues.declare_queues({"b": (10, None), "a": (10, None)})
    pod = await stage.boot()
    runs = [await stage.run_one(pod, queue=queue) for queue in ("b", "a")]
    planner, finalizer = await stage.connect(), await stage.connect()
    plan = planner.transaction()
    await plan.start()
    await planner.execute(HOLD, "a")
    async with stage.blocked(door(stage, finalizer, pod, [], ended("throttle", *runs)), on=finalizer):
        await planner.execute(HOLD, "b")
        await plan.commit()
    assert await cooling(stage) == ["a", "b"]


@doors
async def test_a_throttle_that_had_to_wait_cools_its_queue_for_its_whole_delay(
    stage: Stage, door: Door
) -> None:
    await stage.clock.stop()
    await stage.queues.declare_queues({QUEUE: (10, None)})
    pod = await stage.boot(ttl=1_000.0)
    run = await stage.run_one(pod)
    planner, finalizer = await stage.connect(), await stage.connect()
    plan = planner.transaction()
    await plan.start()
    await planner.execute(HOLD, QUEUE)
    async with stage.blocked(door(stage, finalizer, pod, [], ended("throttle", run)), on=finalizer):
        await stage.clock.advance(100.0)
        await plan.commit()
    assert await cooling(stage) == [QUEUE]


@doors
@pytest.mark.parametrize("outcome", [None, "dead", "retry", "release"])
async def test_a_batch_without_a_throttle_does_not_wait_for_its_queue(
    stage: Stage, door: Door, outcome: str | None
) -> None:
    await stage.queues.declare_queues({QUEUE: (10, None)})
    pod = await stage.boot()
    done, other = await stage.run_one(pod), await stage.run_one(pod)
    planner, finalizer = await stage.connect(), await stage.connect()
    await finalizer.execute("SET lock_timeout = '1s'")
    async with planner.transaction():
        await planner.execute("SELECT FROM rota.queue FOR UPDATE")
        await door(stage, finalizer, pod, [done], ended(outcome, other) if outcome else None)
    assert await stage.running() == ([] if outcome else [other["id"]])


async def cooling(stage: Stage) -> list[str]:
    rows = await stage.connection.fetch(
        "SELECT name FROM rota.queue WHERE cool_until > rota.clock() ORDER BY name"
    )
    return [row["name"] for row in rows]
