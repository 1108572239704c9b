"""Pods of a cluster of real processes are lost under load: killed, restarted, stopped and continued.

Each scenario ends with the verdict of an independent judge: the cap never broke, every job ended
once, written by the run that owned it, and only what a lost pod ran costs an attempt.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from rota.chaos.history import Ended, Freed, Gone, History
from tests.support.cluster_process import PATIENCE, Worker
from tests.support.cluster_scene import LONG, QUEUE, QUICK, Cluster, peak
from tests.support.until import until

CAP = 6
RESIZED = (1, 2, 3, 6, 8)
LAST = "last"
"""A queue with a slot for each pod, whose jobs are on their last attempt."""


@pytest.fixture
async def three(cluster: Cluster) -> tuple[Worker, Worker, Worker]:
    """Three pods with a fair share each; whoever leads comes first."""
    cluster.caps = {QUEUE: CAP, LAST: 3}
    workers = await cluster.join("a", "b", "c")
    leader = await cluster.leader()
    for queue, cap in cluster.caps.items():
        await cluster.levels(workers, cap, queue)
    first, second = (worker for worker in workers if worker is not leader)
    return leader, first, second


async def hold(
    cluster: Cluster, victim: Worker, others: Collection[Worker], kind: str = "gated_at_first"
) -> tuple[list[int], list[int]]:
    """Have the victim, and only it, run jobs that wait at its door; and one on its last attempt."""
    jobs = await cluster.enqueue(kind, *range(CAP))
    last = await cluster.enqueue(kind, *range(3), queue=LAST, attempts=1)
    await cluster.run([*jobs, *last])
    held = set(await cluster.running_on(victim, kind))
    cluster.open_doors(*others)
    await cluster.end({*jobs, *last} - held)
    return sorted(held.intersection(jobs)), sorted(held.intersection(last))


async def expires(cluster: Cluster, worker: Worker) -> None:
    async def no_row() -> bool:
        return worker.pod not in await cluster.boots()

    await until(f"{worker.name} has expired", no_row, PATIENCE)


def ends(history: History, jobs: Collection[int]) -> set[tuple[str, int, int]]:
    """How these jobs ended: state, attempts, rescues."""
    found = {fact.job: fact for fact in history.facts if isinstance(fact, Ended)}
    return {(found[job].state, found[job].attempt, found[job].rescues) for job in jobs}


async def reasons(cluster: Cluster, jobs: Collection[int]) -> set[str]:
    """What is told of their last error."""
    rows = await cluster.database.fetch(
        "SELECT errors -> -1 ->> 'message' AS reason FROM rota.history WHERE id = ANY ($1)", list(jobs)
    )
    return {row["reason"] for row in rows}


async def epoch(cluster: Cluster) -> int:
    """The number of the present tenure, or of the last."""
    number: int = await cluster.database.fetchval("SELECT epoch FROM rota.lease")
    return number


async def epochs(cluster: Cluster) -> list[int]:
    """The epochs of all plans, in the order in which they were written."""
    return [row["epoch"] for row in await cluster.database.fetch("SELECT epoch FROM rota.plan ORDER BY id")]


@pytest.mark.parametrize("place", [1, 0], ids=["follower", "leader"])
async def test_what_a_killed_pod_ran_runs_again_after_its_ttl_and_its_slots_go_to_others(
    cluster: Cluster, three: tuple[Worker, Worker, Worker], place: int
) -> None:
    victim, others = three[place], [worker for worker in three if worker is not three[place]]
    jobs, last = await hold(cluster, victim, others)
    before = await epoch(cluster)
    async with cluster.load(QUEUE, LAST), cluster.resizes(RESIZED, last=CAP):
        victim.kill()
        await expires(cluster, victim)
        await cluster.end(jobs)
        assert await cluster.leader() in others
    await cluster.levels(others, CAP)
    await cluster.levels(others, 3, LAST)
    history = await cluster.verdict()
    assert ends(history, jobs) == {("done", 2, 1)}
    assert ends(history, last) == {("dead", 1, 0)}
    assert await reasons(cluster, last) == {"pod lost"}
    assert victim is not three[0] or await epoch(cluster) > before
    assert peak(history) >= CAP


async def test_what_a_pod_ran_that_was_killed_while_it_drained_runs_again_at_no_attempt(
    cluster: Cluster, three: tuple[Worker, Worker, Worker]
) -> None:
    victim, *others = three
    jobs, last = await hold(cluster, victim, others)
    async with cluster.load():
        victim.terminate()
        await until("it drains", lambda: cluster.drains(victim), PATIENCE)
        victim.kill()
        await cluster.end([*jobs, *last])
    history = await cluster.verdict()
    assert ends(history, [*jobs, *last]) == {("done", 1, 1)}


async def test_what_a_restarted_container_ran_runs_again_as_soon_as_it_has_registered(
    cluster: Cluster,
) -> None:
    cluster.caps = {QUEUE: CAP, LAST: 3}
    cluster.settings = {**QUICK, **LONG}
    victim, *others = await cluster.join("a", "b", "c")
    await cluster.levels([victim, *others], CAP)
    await cluster.levels([victim, *others], 3, LAST)
    jobs, last = await hold(cluster, victim, others)
    async with cluster.load(), cluster.resizes(RESIZED, last=CAP):
        victim.kill()
        await cluster.join(victim.name)
        await cluster.end([*jobs, *last])
    history = await cluster.verdict()
    assert ends(history, jobs) == {("done", 2, 1)}
    assert ends(history, last) == {("dead", 1, 0)}
    [replaced] = [fact for fact in history.facts if isinstance(fact, Gone) and fact.replaced]
    freed = [
        fact for fact in history.facts if isinstance(fact, Freed) and (fact.job, fact.claim) in lost(jobs)
    ]
    assert {fact.at for fact in freed} == {replaced.at}, "they were not recovered by its registration"


def lost(jobs: Collection[int]) -> set[tuple[int, int]]:
    return {(job, 1) for job in jobs}


@pytest.mark.parametrize("place", [1, 0], ids=["follower", "leader"])
async def test_a_pod_that_is_stopped_for_longer_than_its_ttl_changes_nothing_when_it_goes_on(
    cluster: Cluster, three: tuple[Worker, Worker, Worker], place: int
) -> None:
    victim, others = three[place], [worker for worker in three if worker is not three[place]]
    jobs, last = await hold(cluster, victim, others, "gated")
    cluster.shut_doors(*others)
    victim.replaces = (await cluster.boots())[victim.pod]
    async with cluster.load(QUEUE, LAST), cluster.resizes(RESIZED, last=CAP):
        victim.stop()
        await expires(cluster, victim)
        await cluster.run(jobs, claim=2)
        assert await cluster.leader() in others
        # Its handlers return the moment it goes on, and so it writes outcomes that are not its own.
        cluster.open_doors(victim)
        victim.go_on()
        await cluster.joined([victim])
        await until("it hears that it came too late", lambda: "JobsLost" in victim.said, PATIENCE)
        cluster.open_doors(*others)
        await cluster.end(jobs)
    await cluster.levels(three, CAP)
    await cluster.levels(three, 3, LAST)
    history = await cluster.verdict()
    assert ends(history, jobs) == {("done", 2, 1)}
    assert ends(history, last) == {("dead", 1, 0)}
    written = await epochs(cluster)
    assert written == sorted(written), "a deposed leader's plan was written"
    assert peak(history) >= CAP
