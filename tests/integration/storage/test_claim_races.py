"""Two connections claim, or one claims while the pod's row changes: in both orders."""

from __future__ import annotations

import asyncio

import pytest

from rota.words import JobState
from tests.integration.storage.stage import Stage, ids


@pytest.mark.parametrize("kinds", [["a"], ["a", "b"]])
async def test_two_open_claims_are_disjoint_whoever_commits_first(stage: Stage, kinds: list[str]) -> None:
    for kind in kinds:
        await stage.add(100, kind=kind)
    pods = [await stage.boot(), await stage.boot()]
    one, two = await stage.connect(), await stage.connect()
    for first_to_commit in (0, 1):
        transactions = [one.transaction(), two.transaction()]
        for transaction in transactions:
            await transaction.start()
        first = ids(await stage.claim(pods[0], 20, kinds=kinds, on=one))
        second = ids(await stage.claim(pods[1], 20, kinds=kinds, on=two))
        assert (len(first), len(second)) == (20, 20)
        assert not set(first) & set(second)
        await transactions[first_to_commit].commit()
        await transactions[1 - first_to_commit].commit()


async def test_a_claim_that_rolls_back_leaves_its_jobs_for_the_next(stage: Stage) -> None:
    jobs = await stage.add(3)
    pod, one = await stage.boot(), await stage.connect()
    transaction = one.transaction()
    await transaction.start()
    assert sorted(ids(await stage.claim(pod, on=one))) == jobs
    assert await stage.claim(pod) == []
    await transaction.rollback()
    assert sorted(ids(await stage.claim(pod))) == jobs


async def test_a_busy_head_does_not_leave_a_claim_of_several_kinds_short(stage: Stage) -> None:
    """The shares of the kinds are counted without locks: what others hold is counted and not had."""
    await stage.add(10, kind="a", priority=1)
    rest = await stage.add(10, kind="b")
    pod, one = await stage.boot(), await stage.connect()
    async with one.transaction():
        await stage.claim(pod, 10, kinds=["a"], on=one)
        assert sorted(ids(await stage.claim(pod, 10, kinds=["a", "b"]))) == rest


async def test_many_claimers_take_every_job_once(stage: Stage) -> None:
    jobs = await stage.add(500)
    pods = [await stage.boot() for _ in range(5)]
    connections = [await stage.connect() for _ in pods]
    taken: list[int] = []

    async def drain(place: int) -> None:
        while rows := await stage.claim(pods[place], 7, on=connections[place]):
            taken.extend(ids(rows))

    await asyncio.gather(*(drain(place) for place in range(5)))
    assert sorted(taken) == jobs


async def test_a_pod_that_expires_while_its_claim_waits_takes_nothing(stage: Stage) -> None:
    await stage.clock.stop()
    await stage.add()
    pod = await stage.boot(ttl=10.0)
    holder, claimer = await stage.connect(), await stage.connect()
    async with stage.lock_pod(pod, by=holder):
        claim = asyncio.ensure_future(stage.claim(pod, on=claimer))
        await stage.until_blocked(claimer)
        await stage.clock.advance(10.0)
    assert await claim == []


async def test_a_claim_reads_the_clock_after_its_own_lock_too(stage: Stage) -> None:
    """Not only behind the lock that the statement around it takes first."""
    await stage.clock.stop()
    await stage.add()
    pod = await stage.boot(ttl=10.0)
    holder, claimer = await stage.connect(), await stage.connect()
    claim_jobs = "SELECT id FROM rota.claim_jobs($1, $2, 1, 'emails', 9, '{send}', '{-40000}', '{0}')"
    async with stage.lock_pod(pod, by=holder):
        claim = asyncio.ensure_future(claimer.fetch(claim_jobs, pod.id, pod.incarnation))
        await stage.until_blocked(claimer)
        await stage.clock.advance(10.0)
    assert await claim == []


async def test_a_pod_that_is_renewed_while_its_claim_waits_takes_its_jobs(stage: Stage) -> None:
    await stage.clock.stop()
    await stage.add()
    pod = await stage.boot(ttl=10.0)
    holder, claimer = await stage.connect(), await stage.connect()
    async with stage.lock_pod(pod, by=holder):
        claim = asyncio.ensure_future(stage.claim(pod, on=claimer))
        await stage.until_blocked(claimer)
        await stage.clock.advance(9.0)
        await holder.execute("UPDATE rota.pod SET expires_at = expires_at + interval '9 s'")
        await stage.clock.advance(9.0)
    assert len(await claim) == 1


async def test_expiry_passes_over_a_pod_whose_claim_is_open_and_then_rescues_it(stage: Stage) -> None:
    await stage.clock.stop()
    job = await stage.add_one()
    pod = await stage.boot(ttl=10.0)
    claimer = await stage.connect()
    async with claimer.transaction():
        assert len(await stage.claim(pod, on=claimer)) == 1
        await stage.clock.advance(10.0)
        assert await stage.pods.sweep_pods(3) == ([], 0)
    assert (await stage.job(job)).state is JobState.RUNNING
    assert await stage.pods.sweep_pods(3) == ([pod.id], 1)
    assert (await stage.job(job)).state is JobState.READY


async def test_a_claim_that_waits_for_an_expiry_takes_nothing(stage: Stage) -> None:
    await stage.clock.stop()
    job = await stage.add_one()
    pod = await stage.boot(ttl=10.0)
    expirer, claimer = await stage.connect(), await stage.connect()
    await stage.clock.advance(10.0)
    async with expirer.transaction():
        expired = await stage.database.fetchrow("sweep_pods", 3, on=expirer)
        assert expired is not None
        assert expired["expired"] == [str(pod.id)]
        claim = asyncio.ensure_future(stage.claim(pod, on=claimer))
        await stage.until_blocked(claimer)
    assert await claim == []
    assert (await stage.job(job)).state is JobState.READY


async def test_a_new_boot_rescues_what_an_open_claim_of_the_old_one_takes(stage: Stage) -> None:
    job = await stage.add_one()
    old = await stage.boot()
    claimer = await stage.connect()
    async with claimer.transaction():
        assert len(await stage.claim(old, on=claimer)) == 1
        booting = asyncio.ensure_future(stage.boot(old.id))
        await stage.until_in_the_way(claimer)
    new = await booting
    assert new.incarnation > old.incarnation
    assert (await stage.job(job)).state is JobState.READY


async def test_a_claim_of_the_old_boot_that_waits_for_the_new_one_takes_nothing(stage: Stage) -> None:
    job = await stage.add_one()
    old = await stage.boot()
    booter, claimer = await stage.connect(), await stage.connect()
    async with booter.transaction():
        assert await stage.boot_on(booter, old.id, replaces=old.incarnation)
        claim = asyncio.ensure_future(stage.claim(old, on=claimer))
        await stage.until_blocked(claimer)
    assert await claim == []
    assert (await stage.job(job)).state is JobState.READY
