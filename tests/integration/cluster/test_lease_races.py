"""The lease under two connections: takeovers, renewals, resignations and guarded writes, in both orders.

A guarded write holds the lease's row from its guard to its commit. So whoever comes second either waits and
then sees what the first did, or, a takeover, does not wait and gets nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from rota.storage.rows import Report, Tenure
from rota.words import JobState
from tests.integration.cluster.stage import LEASE_TTL, TTL, Actor, Stage
from tests.integration.storage.stage import QUEUE, RESCUES, Pod

HOLD_LEASE = "SELECT FROM rota.lease FOR UPDATE"
HOLD_QUEUE = "SELECT FROM rota.queue FOR NO KEY UPDATE"
PAST_LEASE = LEASE_TTL + 0.5


class Writes:
    """A leader, a rival, and something for each guarded write to do."""

    def __init__(self, stage: Stage, leader: Pod, rival: Pod, silent: Pod, job: int, tenure: Tenure) -> None:
        self.stage, self.leader, self.rival, self.tenure = stage, leader, rival, tenure
        self._silent, self._job = silent, job

    @classmethod
    async def on(cls, stage: Stage) -> Writes:
        await stage.declare(**{QUEUE: 4})
        leader, rival = await stage.now.join(), await stage.now.join()
        silent = await stage.now.join(ttl=0.0)
        job = await stage.add_one(delay=60.0)
        await stage.connection.execute("UPDATE rota.job SET scheduled_at = rota.clock()")
        return cls(stage, leader, rival, silent, job, await stage.now.lead(leader))

    async def plan(self, by: Actor) -> bool:
        return await by.plan(self.tenure, {self.rival: 2}) is not None

    async def expire(self, by: Actor) -> bool:
        return await by.pods.expire_pods(self.tenure, RESCUES) is not None

    async def promote(self, by: Actor) -> bool:
        return await by.jobs.promote_jobs(self.tenure, 100) is not None

    async def renew(self, by: Actor) -> bool:
        return await by.leases.renew_lease(self.tenure, LEASE_TTL) is not None

    async def traces(self) -> list[str]:
        """Which of the writes have left theirs."""
        pods = {row.id for row in await self.stage.pods.list_pods()}
        found = {
            "plan": (await self.stage.rows()) != {},
            "expire": self._silent.id not in pods,
            "promote": (await self.stage.job(self._job)).state is JobState.READY,
        }
        return [name for name, done in found.items() if done]


Write = Callable[[Writes, Actor], Awaitable[bool]]
GUARDED = {"plan": Writes.plan, "expire": Writes.expire, "promote": Writes.promote}
guarded = pytest.mark.parametrize("name", GUARDED)


@pytest.fixture
async def writes(stage: Stage) -> Writes:
    return await Writes.on(stage)


@guarded
async def test_a_stale_leader_whose_write_waits_for_a_takeover_changes_no_row(
    stage: Stage, writes: Writes, name: str
) -> None:
    rival, stale = await stage.actor(), await stage.actor()
    await stage.time.advance(PAST_LEASE)
    takeover = await rival.begin()
    assert (await rival.stand(writes.rival)).tenure is not None
    async with stage.blocked(GUARDED[name](writes, stale), on=stale.connection) as write:
        await takeover.commit()
    assert not write.result()
    assert await writes.traces() == []


@guarded
async def test_a_takeover_passes_over_a_write_under_way_and_wins_once_it_is_committed(
    stage: Stage, writes: Writes, name: str
) -> None:
    leader = await stage.actor()
    async with leader.open():
        assert await GUARDED[name](writes, leader)
        await stage.time.advance(PAST_LEASE)
        stand = await stage.now.stand(writes.rival)
        assert (stand.tenure, stand.expires_in) == (None, None), "expired, but a write holds it"
    assert await writes.traces() == [name]
    assert (await stage.now.lead(writes.rival)).epoch == writes.tenure.epoch + 1
    assert not await GUARDED[name](writes, leader)


@guarded
async def test_a_leader_whose_write_waits_for_a_takeover_that_fails_writes(
    stage: Stage, writes: Writes, name: str
) -> None:
    """Nobody else's attempt costs a leader its tenure: only the row that was committed does."""
    rival, leader = await stage.actor(), await stage.actor()
    attempt = await rival.begin()
    await rival.connection.execute("UPDATE rota.lease SET epoch = epoch + 1, holder = $1", writes.rival.id)
    async with stage.blocked(GUARDED[name](writes, leader), on=leader.connection) as write:
        await attempt.rollback()
    assert write.result()
    assert await writes.traces() == [name]


@pytest.mark.parametrize("name", [*GUARDED, "renew"])
async def test_a_guard_that_waits_behind_a_lock_past_the_end_of_the_lease_refuses(
    stage: Stage, writes: Writes, name: str
) -> None:
    holder, leader = await stage.actor(), await stage.actor()
    lock = await holder.begin()
    await holder.connection.execute(HOLD_LEASE)
    write: Write = {**GUARDED, "renew": Writes.renew}[name]
    async with stage.blocked(write(writes, leader), on=leader.connection) as writing:
        await stage.time.advance(LEASE_TTL)
        await lock.commit()
    assert not writing.result()
    assert await writes.traces() == []
    assert (await stage.now.lead(writes.rival)).epoch == writes.tenure.epoch + 1


async def test_a_plan_that_waits_for_its_queue_past_the_end_of_the_lease_keeps_rivals_out_till_it_is_done(
    stage: Stage, writes: Writes
) -> None:
    """Its guard was in time and is held: there is no second leader that the plan could write against."""
    operator, leader = await stage.actor(), await stage.actor()
    change = await operator.begin()
    await operator.connection.execute(HOLD_QUEUE)
    async with stage.blocked(writes.plan(leader), on=leader.connection) as plan:
        await stage.time.advance(PAST_LEASE)
        assert (await stage.now.stand(writes.rival)).tenure is None
        await change.commit()
    assert plan.result()
    await stage.now.lead(writes.rival)
    assert not await writes.plan(leader)


async def test_of_two_takeovers_at_once_one_wins_and_the_other_does_not_wait(
    stage: Stage, writes: Writes
) -> None:
    await stage.time.advance(PAST_LEASE)
    for first, second in ((writes.leader, writes.rival), (writes.rival, writes.leader)):
        one, two = await stage.actor(), await stage.actor()
        async with one.open():
            won = (await one.stand(first)).tenure
            assert won is not None
            assert (await two.stand(second)).tenure is None
        assert (await two.stand(second)).tenure is None, "and the first one's lease is young"
        await stage.time.advance(PAST_LEASE)


async def test_a_takeover_does_not_wait_for_a_renewal_and_finds_the_lease_renewed(
    stage: Stage, writes: Writes
) -> None:
    leader = await stage.actor()
    await stage.time.advance(LEASE_TTL - 0.5)
    async with leader.open():
        assert await writes.renew(leader)
        await stage.time.advance(1.0)
        assert (await stage.now.stand(writes.rival)).tenure is None
    stand = await stage.now.stand(writes.rival)
    assert (stand.tenure, stand.expires_in) == (None, LEASE_TTL - 1.0)


async def test_a_renewal_that_waits_for_a_takeover_is_refused(stage: Stage, writes: Writes) -> None:
    rival, leader = await stage.actor(), await stage.actor()
    await stage.time.advance(PAST_LEASE)
    takeover = await rival.begin()
    won = await rival.lead(writes.rival)
    async with stage.blocked(writes.renew(leader), on=leader.connection) as renewal:
        await takeover.commit()
    assert not renewal.result()
    assert await stage.now.leases.renew_lease(won, LEASE_TTL) is not None


async def test_a_renewal_waits_for_a_write_of_its_own_leader_and_is_granted(
    stage: Stage, writes: Writes
) -> None:
    planner, leader = await stage.actor(), await stage.actor()
    plan = await planner.begin()
    assert await writes.plan(planner)
    async with stage.blocked(writes.renew(leader), on=leader.connection) as renewal:
        await stage.time.advance(1.0)
        await plan.commit()
    assert renewal.result()
    assert (await stage.now.stand(writes.rival)).expires_in == LEASE_TTL, "counted from after the wait"


@guarded
async def test_a_write_that_waits_for_a_renewal_is_done(stage: Stage, writes: Writes, name: str) -> None:
    renewer, leader = await stage.actor(), await stage.actor()
    renewal = await renewer.begin()
    await stage.time.advance(LEASE_TTL - 0.5)
    assert await writes.renew(renewer)
    async with stage.blocked(GUARDED[name](writes, leader), on=leader.connection) as write:
        await stage.time.advance(1.0)
        await renewal.commit()
    assert write.result(), "the lease it had when it asked has run out, the renewed one has not"


@guarded
async def test_a_write_that_waits_for_its_leader_to_resign_is_refused(
    stage: Stage, writes: Writes, name: str
) -> None:
    resigner, leader = await stage.actor(), await stage.actor()
    resignation = await resigner.begin()
    assert await resigner.leases.resign_lease(writes.tenure)
    async with stage.blocked(GUARDED[name](writes, leader), on=leader.connection) as write:
        await resignation.commit()
    assert not write.result()
    assert await writes.traces() == []


@guarded
async def test_a_resignation_waits_for_a_write_under_way(stage: Stage, writes: Writes, name: str) -> None:
    leader, resigner = await stage.actor(), await stage.actor()
    write = await leader.begin()
    assert await GUARDED[name](writes, leader)
    resigning = resigner.leases.resign_lease(writes.tenure)
    async with stage.blocked(resigning, on=resigner.connection) as resignation:
        await write.commit()
    assert resignation.result()
    assert await writes.traces() == [name]
    assert (await stage.now.lead(writes.rival)).epoch == writes.tenure.epoch + 1


async def test_a_renewal_after_the_clock_went_back_waits_for_a_beat_and_takes_nothing_from_it(
    stage: Stage, writes: Writes
) -> None:
    """It pulls in the expiry of pods that were promised too much; a beat under way has just been answered."""
    await stage.time.advance(-1000.0)
    beater, leader = await stage.actor(), await stage.actor()
    beat = await beater.begin()
    assert await beater.pods.beat(writes.rival.id, writes.rival.incarnation, Report()) is not None
    async with stage.blocked(writes.renew(leader), on=leader.connection) as renewal:
        await beat.commit()
    assert renewal.result()
    assert {row.expires_in for row in await stage.pods.list_pods()} <= {TTL, 0.0}
