"""Planned changes of a cluster of real processes, under load: joins, deploys, resizes.

Each scenario ends with the verdict of an independent judge: the cap never broke, no job was lost,
no attempt was burned.
"""

from __future__ import annotations

from rota.chaos.history import Ended
from tests.support.cluster_process import PATIENCE, Worker
from tests.support.cluster_scene import LONG, QUEUE, QUICK, Cluster, peak
from tests.support.cutter import Cutter
from tests.support.until import until


async def test_ten_pods_that_join_a_cold_start_at_once_never_run_more_than_caps_of_1_3_and_10(
    cluster: Cluster,
) -> None:
    cluster.caps = {"one": 1, "three": 3, "ten": 10}
    cluster.settings = {**QUICK, **LONG}
    async with cluster.load(*cluster.caps):
        workers = await cluster.join(*(f"p{number}" for number in range(10)))
        await cluster.leader()
        for queue, cap in cluster.caps.items():
            await cluster.levels(workers, cap, queue)
    history = await cluster.verdict()
    assert {queue: peak(history, queue) for queue in cluster.caps} == cluster.caps


async def test_a_rolling_restart_of_five_pods_under_load_burns_no_attempt(cluster: Cluster) -> None:
    cluster.caps = {QUEUE: 7}
    cluster.settings = {**QUICK, **LONG, "ROTA_POD_GRACE": "1.5"}
    old = await cluster.join(*(f"old{number}" for number in range(5)), ROTA_POD_VERSION="1")
    new: list[Worker] = []
    outlasting = await cluster.enqueue("gated_at_first", 1, 2)
    await cluster.run(outlasting)
    async with cluster.load(), cluster.resizes((1, 2, 4, 7, 9), last=7):
        for number, worker in enumerate(old):
            first = number % 2 == 0
            if first:
                new += await cluster.join(f"new{number}", ROTA_POD_VERSION="2")
            worker.terminate()
            assert await worker.exits() == 0, worker.said
            if not first:
                new += await cluster.join(f"new{number}", ROTA_POD_VERSION="2")
    await cluster.levels(new, 7)
    history = await cluster.verdict()
    assert peak(history) >= 7
    ended = {fact.job: fact for fact in history.facts if isinstance(fact, Ended)}
    assert {ended[job].claim for job in outlasting} == {2}, "they were not handed back"
    assert {fact.attempt for fact in ended.values()} == {1}


async def test_a_cluster_in_which_nobody_may_lead_runs_on_fair_shares_within_the_cap(
    cluster: Cluster,
) -> None:
    cluster.settings = {**QUICK, **LONG, "ROTA_LEAD": "false"}
    async with cluster.load():
        first = await cluster.join("first")
        await cluster.levels(first, 4)
        others = await cluster.join("second", "third", "fourth")
        # What it has been told is the first one's; the others take their shares of it when it leaves.
        first[0].terminate()
        assert await first[0].exits() == 0
        await until("others took a share", cluster.slots, PATIENCE)
    slots = await cluster.slots()
    assert slots.keys() <= {worker.pod for worker in others}
    assert sum(held for _, held in slots.values()) <= 4
    history = await cluster.verdict()
    assert peak(history) == 4
    assert await cluster.database.fetchval("SELECT count(*) FROM rota.plan") == 0


async def test_resizes_keep_to_the_cap_though_every_connection_is_cut_again_and_again(
    cluster: Cluster,
) -> None:
    cluster.caps = {QUEUE: 6}
    cluster.settings = {**QUICK, **LONG}
    async with Cutter(cluster.dsn) as cutter:
        workers = await cluster.join("a", "b", "c", dsn=cutter.dsn)
        await cluster.leader()
        async with cluster.load(), cluster.resizes((1, 2, 4, 6, 8), last=6):
            for _ in range(12):
                before = len(cluster.jobs)
                await until("they go on", lambda: len(cluster.jobs) > before + 10, PATIENCE)  # noqa: B023
                cutter.cut_all()
        await cluster.levels(workers, 6)
        history = await cluster.verdict()
    assert peak(history) >= 6
