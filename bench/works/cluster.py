"""Cluster: how quickly slots move, what stillness costs, what the planner takes, what the cap costs.

The figures are times and counts of Rota alone, on a server of their own that counts statements; only
the cost of the cap is a ratio.
"""

from __future__ import annotations

from bench.cluster import crowd, moving, planning, stillness
from bench.cluster.fleet import Fleet, counting_server
from bench.harness import Bench
from bench.words import (
    CAPPED,
    COUNT,
    FOLLOWER_KILLED,
    LEADER_KILLED,
    LEADER_LEAVES,
    MILLISECONDS,
    PER_SECOND,
    RATE,
    RESIZE_P50,
    RESIZE_P99,
    RESTARTED,
    ROTA,
    SECONDS,
    UNCAPPED,
    planner,
    still,
)


async def measure(bench: Bench) -> None:
    """All of it, once."""
    with counting_server() as dsn:
        await _moving(bench, dsn)
        await _stillness(bench, dsn)
        for name, value in (await crowd.measure(dsn, bench.sizes.crowd_pods, bench.sizes.still)).items():
            _record(bench, f"cluster: {bench.sizes.crowd_pods:,} pods, {name}", value, COUNT)
    for name, value in planning.measure().items():
        timed = name.startswith(("cold", "one"))
        _record(bench, planner(name), value * 1000 if timed else value, MILLISECONDS if timed else COUNT)
    await _cost(bench)


async def _moving(bench: Bench, dsn: str) -> None:
    async with Fleet.on(dsn) as fleet:
        await fleet.start(moving.PODS)
        p50, p99 = await moving.resizes(fleet, bench.sizes.resizes)
        _record(bench, RESIZE_P50, p50, MILLISECONDS)
        _record(bench, RESIZE_P99, p99, MILLISECONDS)
        for _ in range(bench.runs):
            _record(bench, LEADER_LEAVES, await moving.polite_leave(fleet), MILLISECONDS)
            await fleet.start(1)
        _record(bench, LEADER_KILLED, await moving.leader_killed(fleet), SECONDS)
        await fleet.start(1)
        _record(bench, FOLLOWER_KILLED, await moving.follower_killed(fleet), SECONDS)
        await fleet.start(1)
        _record(bench, RESTARTED, await moving.container_restarted(fleet), SECONDS)


async def _stillness(bench: Bench, dsn: str) -> None:
    for queues in bench.sizes.still_queues:
        follower, leader = await stillness.statements(dsn, queues, bench.sizes.still)
        _record(bench, still("follower", queues), follower, PER_SECOND)
        _record(bench, still("leader", queues), leader, PER_SECOND)


async def _cost(bench: Bench) -> None:
    """The same drain with the cap and without, in turns, the first now the one and now the other."""
    [rota] = bench.named(ROTA)
    database = await bench.database(rota, "cap")
    for number in range(bench.short_runs):
        for work, uncapped in ((CAPPED, False), (UNCAPPED, True))[:: 1 if number % 2 else -1]:
            drained = await bench.drain(rota, database, jobs=bench.sizes.long, uncapped=uncapped)
            _record(bench, work, drained.rate, RATE)


def _record(bench: Bench, work: str, value: float, unit: str) -> None:
    [rota] = bench.named(ROTA)
    bench.record(work, rota, value, unit)
