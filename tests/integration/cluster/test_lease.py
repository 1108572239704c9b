"""The lease: one leader per epoch, on the database's clock, and no write without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from rota.storage.rows import Report, Tenure
from rota.words import Epoch
from tests.integration.cluster.stage import LEASE_TTL, TTL, Actor, Stage
from tests.integration.storage.stage import QUEUE, RESCUES


async def test_the_first_pod_to_stand_leads_in_epoch_one(stage: Stage) -> None:
    pod = await stage.now.join()
    stand = await stage.now.stand(pod)
    assert (stand.tenure, stand.expires_in) == (Tenure(pod.id, Epoch(1), 1), LEASE_TTL)


async def test_a_second_pod_hears_how_long_the_lease_lasts(stage: Stage) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    await stage.now.lead(leader)
    await stage.time.advance(2.0)
    stand = await stage.now.stand(other)
    assert (stand.tenure, stand.expires_in) == (None, LEASE_TTL - 2.0)


async def test_not_even_its_holder_takes_a_lease_that_has_not_run_out(stage: Stage) -> None:
    pod = await stage.now.join()
    await stage.now.lead(pod)
    assert (await stage.now.stand(pod)).tenure is None


async def test_each_takeover_raises_the_epoch(stage: Stage) -> None:
    pod = await stage.now.join()
    epochs = []
    for _ in range(3):
        epochs.append((await stage.now.lead(pod)).epoch)
        await stage.time.advance(LEASE_TTL)
    assert epochs == [1, 2, 3]


async def test_a_resigned_lease_is_free_at_once_and_the_others_are_told(stage: Stage) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    tenure, ear = await stage.now.lead(leader), await stage.listen()
    assert await stage.now.leases.resign_lease(tenure)
    assert await ear.heard() == ["lease:free"]
    assert (await stage.now.lead(other)).epoch == 2


async def test_nobody_resigns_for_another(stage: Stage) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    tenure, ear = await stage.now.lead(leader), await stage.listen()
    for wrong in (
        tenure._replace(pod=other.id),
        tenure._replace(epoch=Epoch(2)),
        tenure._replace(timeline=2),
    ):
        assert not await stage.now.leases.resign_lease(wrong)
    assert await ear.heard() == []
    assert (await stage.now.stand(other)).tenure is None


async def test_a_renewal_counts_from_now_and_keeps_the_epoch(stage: Stage) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(leader)
    await stage.time.advance(LEASE_TTL - 1.0)
    assert await stage.now.leases.renew_lease(tenure, 7.0) is not None
    assert (await stage.now.stand(other)).expires_in == 7.0
    assert await stage.now.leases.renew_lease(tenure, LEASE_TTL) is not None


async def test_a_renewal_tells_the_leader_of_time(stage: Stage) -> None:
    leader = await stage.now.join()
    await stage.time.advance(3.0)
    renewal = await stage.now.leases.renew_lease(await stage.now.lead(leader), LEASE_TTL)
    assert renewal is not None
    assert (renewal.clock, renewal.expiry_in, renewal.settling) == (1_000_003.0, TTL - 3.0, False)
    assert renewal.started > 1_700_000_000.0


async def test_a_lease_that_has_run_out_is_not_renewed(stage: Stage) -> None:
    tenure = await stage.now.lead(await stage.now.join())
    await stage.time.advance(LEASE_TTL)
    assert await stage.now.leases.renew_lease(tenure, LEASE_TTL) is None


async def test_a_lease_given_on_a_timeline_that_is_gone_is_free_and_its_leader_is_refused(
    stage: Stage,
) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(leader)
    await stage.time.promote()
    assert await stage.now.leases.renew_lease(tenure, LEASE_TTL) is None
    assert await stage.now.lead(other) == Tenure(other.id, Epoch(2), 2)


async def test_a_clock_that_went_back_makes_a_lease_no_longer_than_its_terms(stage: Stage) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(leader)
    await stage.time.advance(-3600.0)
    stand = await stage.now.stand(other)
    assert (stand.tenure, stand.expires_in) == (None, LEASE_TTL)
    assert await stage.now.leases.renew_lease(tenure, LEASE_TTL) is not None, "the leader loses nothing"
    await stage.time.advance(LEASE_TTL)
    assert (await stage.now.lead(other)).epoch == 2


async def test_a_renewal_pulls_in_pods_that_a_clock_which_went_back_promised_too_much(stage: Stage) -> None:
    leader, silent = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(leader)
    await stage.time.advance(-3600.0)
    await stage.now.leases.renew_lease(tenure, LEASE_TTL)
    await stage.time.advance(TTL)
    gone, _ = await stage.now.pods.sweep_pods(RESCUES)
    assert set(gone) == {leader.id, silent.id}


async def test_beats_tell_who_leads_and_for_how_long(stage: Stage) -> None:
    leader, other = await stage.now.join(), await stage.now.join()
    answer = await stage.now.beat(other, Report())
    assert (answer.leader, answer.lease_in) == (None, 0.0)
    tenure = await stage.now.lead(leader)
    await stage.time.advance(2.0)
    answer = await stage.now.beat(other, Report())
    assert (answer.leader, answer.lease_in) == (leader.id, LEASE_TTL - 2.0)
    await stage.time.advance(LEASE_TTL)
    assert (await stage.now.beat(other, Report())).lease_in == 0.0
    await stage.now.leases.resign_lease(tenure)
    assert (await stage.now.beat(other, Report())).leader is None


async def plan(by: Actor, tenure: Tenure) -> object:
    return await by.plan(tenure, {})


async def expire(by: Actor, tenure: Tenure) -> object:
    return await by.pods.expire_pods(tenure, RESCUES)


async def promote(by: Actor, tenure: Tenure) -> object:
    return await by.jobs.promote_jobs(tenure, 100)


async def renew(by: Actor, tenure: Tenure) -> object:
    return await by.leases.renew_lease(tenure, LEASE_TTL)


Write = Callable[[Actor, Tenure], Awaitable[object]]


@pytest.mark.parametrize("write", [plan, expire, promote, renew])
async def test_a_write_needs_the_holder_the_epoch_the_timeline_and_an_unexpired_lease(
    stage: Stage, write: Write
) -> None:
    await stage.declare(**{QUEUE: 4})
    leader, other = await stage.now.join(), await stage.now.join()
    tenure = await stage.now.lead(leader)
    assert await write(stage.now, tenure) is not None
    for wrong in (
        tenure._replace(pod=other.id),
        tenure._replace(epoch=Epoch(0)),
        tenure._replace(epoch=Epoch(2)),
        tenure._replace(timeline=0),
    ):
        assert await write(stage.now, wrong) is None
    await stage.time.advance(LEASE_TTL)
    assert await write(stage.now, tenure) is None


@pytest.mark.parametrize("write", [plan, expire, promote, renew])
async def test_a_deposed_leader_is_refused_even_by_its_own_name(stage: Stage, write: Write) -> None:
    """The same pod in a later epoch: what it began before must not be taken for what it does now."""
    pod = await stage.now.join()
    earlier = await stage.now.lead(pod)
    await stage.time.advance(LEASE_TTL)
    await stage.now.lead(pod)
    assert await write(stage.now, earlier) is None


@pytest.mark.parametrize("write", [plan, expire, promote, renew])
async def test_a_lease_that_nobody_holds_lets_nobody_write(stage: Stage, write: Write) -> None:
    pod = await stage.now.join()
    tenure = await stage.now.lead(pod)
    await stage.now.leases.resign_lease(tenure)
    assert await write(stage.now, tenure) is None
