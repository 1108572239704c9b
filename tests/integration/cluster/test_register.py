"""A boot names what it replaces, and retires it at once only where it can know that it is gone."""

from __future__ import annotations

from uuid import uuid4

import pytest

from rota.errors import PodRetired
from rota.storage.rows import Boot, Report
from tests.integration.cluster.stage import TTL, Stage


async def test_a_first_boot_replaces_nobody(stage: Stage) -> None:
    boot = await stage.now.register(uuid4())
    assert boot == Boot(boot.incarnation, None, 0)
    assert boot.incarnation is not None


async def test_a_boot_on_the_same_machine_retires_the_earlier_one_at_once(stage: Stage) -> None:
    old = await stage.now.join(machine="here")
    new = await stage.now.join(old.id, replaces=old.incarnation, machine="here")
    assert new.incarnation > old.incarnation
    with pytest.raises(PodRetired):
        await stage.now.pods.beat(old.id, old.incarnation, Report())


async def test_a_boot_elsewhere_hears_how_long_to_wait_and_the_earlier_one_lives_on(stage: Stage) -> None:
    old = await stage.now.join(machine="here")
    await stage.time.advance(3.0)
    boot = await stage.now.register(old.id, replaces=old.incarnation, machine="there")
    assert boot == Boot(None, TTL - 3.0, old.incarnation)
    assert await stage.now.pods.beat(old.id, old.incarnation, Report()) is not None


async def test_a_boot_elsewhere_is_let_in_when_the_earlier_one_has_expired(stage: Stage) -> None:
    old = await stage.now.join(machine="here")
    await stage.time.advance(TTL)
    boot = await stage.now.register(old.id, replaces=old.incarnation, machine="there")
    assert boot.incarnation is not None


@pytest.mark.parametrize("back", [1, -1])
async def test_a_boot_that_names_another_than_the_one_there_is_hears_which_there_is(
    stage: Stage, back: int
) -> None:
    old = await stage.now.join()
    await stage.time.advance(TTL)
    boot = await stage.now.register(old.id, replaces=old.incarnation - back)
    assert boot == Boot(None, None, old.incarnation), "not even when that one has expired"


async def test_a_boot_that_is_turned_away_changes_no_row(stage: Stage) -> None:
    await stage.declare(emails=4)
    old = await stage.now.join(machine="here")
    answer = await stage.now.beat(old, Report(sharing=["emails"]))
    await stage.now.register(old.id, replaces=old.incarnation, machine="there", capacity=1)
    await stage.now.register(old.id, capacity=1)
    (row,) = await stage.pods.list_pods()
    assert (row.incarnation, row.capacity) == (old.incarnation, 100)
    assert (await stage.hear_once(old)).answer == answer.answer + 1
    assert await stage.held() == 4


async def test_the_longest_ttl_that_ever_registered_is_how_long_a_failover_settles(stage: Stage) -> None:
    leader = await stage.now.join(ttl=10.0)
    await stage.now.join(ttl=25.0)
    await stage.now.join(ttl=5.0)
    await stage.time.promote()
    tenure = await stage.now.lead(leader, 1_000.0)
    settling = []
    for seconds in (0.0, 24.5, 0.5):
        await stage.time.advance(seconds)
        renewal = await stage.now.leases.renew_lease(tenure, 1_000.0)
        assert renewal is not None
        settling.append(renewal.settling)
    assert settling == [True, True, False]
