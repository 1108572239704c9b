"""Standing for the lease, holding it while it can be trusted, and giving it up."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from rota.cluster.leader import Lead, Leader
from rota.cluster.lease import Lease
from rota.errors import DatabaseUnavailable
from rota.events import ClocksParted, LeaseGone, LeaseTaken
from rota.service import Service
from rota.settings import LeaseSettings
from rota.storage.leases import Leases
from rota.storage.rows import Renewal, Stand, Tenure
from rota.testing import ManualClock, Recorder
from rota.words import Epoch, PodId
from tests.support.timeless import timeless

US, OTHER = PodId(uuid.uuid4()), PodId(uuid.uuid4())
TERMS = LeaseSettings(ttl=5.0, renew=1.5, plan=5.0)
POD_TTL = 10.0
AWAY = DatabaseUnavailable("nobody answers")


class Row:
    """In place of the lease's row: who holds it until when, and all that was asked of it.

    Answers take `delay`; while it is `away` there are none.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.delay = 0.0
        self.away = False
        self.busy = False
        self.holder: PodId | None = None
        self.epoch = 0
        self.until = 0.0
        self.ahead = 1_000.0
        self.started = 1.0
        self.settling = False
        self.expiry_in: float | None = None
        self.asked: list[tuple[str, float]] = []

    def give_to(self, pod: PodId, seconds: float) -> Tenure:
        self.holder, self.epoch = pod, self.epoch + 1
        self.until = self._clock.monotonic() + seconds
        return Tenure(pod, Epoch(self.epoch), 1)

    def times(self, what: str) -> list[float]:
        return [at for asked, at in self.asked if asked == what]

    async def take_lease(self, pod: PodId, ttl: float) -> Stand:
        await self._way("take")
        if self.busy:
            return Stand(None, None)
        left = self.until - self._clock.monotonic()
        if self.holder is not None and left > 0:
            return Stand(None, left)
        return Stand(self.give_to(pod, ttl), ttl)

    async def renew_lease(self, tenure: Tenure, ttl: float) -> Renewal | None:
        await self._way("renew")
        now = self._clock.monotonic()
        if not self._is_of(tenure) or self.until <= now:
            return None
        self.until = now + ttl
        return Renewal(now + self.ahead, self.started, self.settling, self.expiry_in)

    async def resign_lease(self, tenure: Tenure) -> bool:
        await self._way("resign")
        ours = self._is_of(tenure)
        if ours:
            self.holder = None
        return ours

    def _is_of(self, tenure: Tenure) -> bool:
        return (self.holder, self.epoch) == (tenure.pod, tenure.epoch)

    async def _way(self, what: str) -> None:
        self.asked.append((what, self._clock.monotonic()))
        await asyncio.sleep(self.delay)
        if self.away:
            raise AWAY


class Duty(Service):
    """Notes when it begins and ends, and does what the test has it do."""

    doing = "a leader's work"

    def __init__(self, lead: Lead, diary: list[str], work: Callable[[Lead], None]) -> None:
        super().__init__(lambda event: None)
        self._lead = lead
        self._diary = diary
        self._work = work

    async def step(self) -> None:
        epoch = self._lead.tenure.epoch
        self._diary.append(f"begins {epoch}")
        try:
            self._work(self._lead)
            await asyncio.Event().wait()
        finally:
            self._diary.append(f"ends {epoch}")


class Scene:
    """A leader on a row, and all that comes of it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.row = Row(clock)
        self.told = Recorder()
        self.diary: list[str] = []
        self.leads: list[Lead] = []
        self.work: Callable[[Lead], None] = lambda lead: None
        self.leader = Leader(
            US,
            cast("Leases", self.row),
            TERMS,
            standing=cast("Leases", self.row),
            pod_ttl=POD_TTL,
            duties=self._duties,
            clock=clock,
            tell=self.told,
        )

    @asynccontextmanager
    async def running(self, seconds: float | None = None) -> AsyncIterator[None]:
        """The leader at work; when the block is over, for so many seconds more."""
        task = asyncio.create_task(self.leader.run())
        try:
            yield
            if seconds is not None:
                await asyncio.sleep(seconds)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def leading(self) -> Lead:
        """Have it take the lease, which is free."""
        self.leader.hear(0.0)
        await self.told.wait_for(LeaseTaken, lambda event: event.epoch == self.row.epoch)
        await asyncio.sleep(0)
        return self.leads[-1]

    @property
    def gone(self) -> list[tuple[int, str]]:
        return [(event.epoch, event.reason) for event in self.told.all(LeaseGone)]

    def _duties(self, lead: Lead) -> Sequence[Service]:
        self.leads.append(lead)
        return [Duty(lead, self.diary, self.work)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def scene(clock: ManualClock) -> Scene:
    return Scene(clock)


@timeless
async def test_a_pod_that_was_told_nothing_never_asks(clock: ManualClock, scene: Scene) -> None:
    async with scene.running(seconds=100_000.0):
        pass
    assert scene.row.asked == []


@timeless
async def test_a_pod_that_is_told_the_lease_is_free_takes_it_at_once(
    clock: ManualClock, scene: Scene
) -> None:
    async with scene.running():
        await scene.leading()
        assert scene.row.times("take") == [100.0]
        assert scene.leader.leads
        assert scene.diary == ["begins 1"]


@timeless
async def test_a_pod_asks_once_and_when_the_lease_ends(clock: ManualClock, scene: Scene) -> None:
    scene.row.give_to(OTHER, 3.0)
    async with scene.running(seconds=2.9):
        scene.leader.hear(3.0)
    assert scene.row.asked == []
    async with scene.running(seconds=0.2):
        pass
    (asked,) = scene.row.times("take")
    assert 103.0 <= asked <= 103.05
    assert [event.epoch for event in scene.told.all(LeaseTaken)] == [2]


@timeless
async def test_what_was_heard_last_counts(clock: ManualClock, scene: Scene) -> None:
    async with scene.running(seconds=100.0):
        for _ in range(10):
            scene.leader.hear(3.0)
            await asyncio.sleep(2.0)
        assert scene.row.asked == [], "the other renewed in time, and each beat said so"
    assert scene.row.times("take")[0] == pytest.approx(121.0, abs=0.06)


@timeless
async def test_a_pod_that_comes_too_late_waits_for_the_end_of_the_new_lease(
    clock: ManualClock, scene: Scene
) -> None:
    scene.row.give_to(OTHER, 7.0)
    async with scene.running(seconds=7.1):
        scene.leader.hear(0.0)
    assert scene.row.times("take") == [100.0, pytest.approx(107.0, abs=0.06)]


@timeless
async def test_a_pod_that_finds_another_at_it_tries_again_soon(clock: ManualClock, scene: Scene) -> None:
    scene.row.busy = True
    async with scene.running(seconds=2.0):
        scene.leader.hear(0.0)
    assert 3 <= len(scene.row.times("take")) <= 5


@timeless
async def test_a_leader_renews_in_time_and_stays(clock: ManualClock, scene: Scene) -> None:
    async with scene.running(seconds=30.0):
        await scene.leading()
    renewals = scene.row.times("renew")
    assert renewals == [pytest.approx(100.0 + 1.5 * turn) for turn in range(len(renewals))]
    assert len(renewals) == 20
    assert scene.gone == []


@pytest.mark.parametrize("delay", [0.5, 1.4, 1.6, 2.2])
@timeless
async def test_a_leader_whose_renewals_are_slow_but_in_time_stays(
    clock: ManualClock, scene: Scene, delay: float
) -> None:
    async with scene.running(seconds=60.0):
        await scene.leading()
        scene.row.delay = delay
    assert scene.gone == []


@timeless
async def test_a_leader_that_is_refused_leads_no_more(clock: ManualClock, scene: Scene) -> None:
    async with scene.running():
        await scene.leading()
        await asyncio.sleep(0.7)
        scene.row.give_to(OTHER, 60.0)
        await scene.told.wait_for(LeaseGone)
        assert clock.monotonic() == pytest.approx(101.5)
        assert not scene.leader.leads
        assert scene.diary == ["begins 1", "ends 1"]
        assert scene.row.holder == OTHER, "what another holds is not given up"
    assert scene.gone == [(1, "another took over")]


@pytest.mark.parametrize("how", ["is away", "hangs"])
@timeless
async def test_a_leader_that_cannot_renew_ends_before_its_lease_does(
    clock: ManualClock, scene: Scene, how: str
) -> None:
    async with scene.running():
        lead = await scene.leading()
        await asyncio.sleep(2.0)
        asked = scene.row.times("renew")[-1]
        scene.row.away, scene.row.delay = how == "is away", 1_000.0 if how == "hangs" else 0.0
        await scene.told.wait_for(LeaseGone)
        assert lead.lease.trusted_until == asked + 4.5
        assert scene.diary == ["begins 1", "ends 1"]
        assert scene.row.until == asked + 5.0
    assert scene.gone == [(1, "it could not be renewed in time")]


@timeless
async def test_duties_end_when_trust_does_though_resigning_hangs(clock: ManualClock, scene: Scene) -> None:
    async with scene.running(seconds=4.5):
        await scene.leading()
        scene.row.delay = 1_000.0
    assert clock.monotonic() < scene.row.until
    assert scene.diary == ["begins 1", "ends 1"]
    assert scene.gone == [], "it resigns still"


@timeless
async def test_a_leader_that_lost_the_lease_stands_again(clock: ManualClock, scene: Scene) -> None:
    async with scene.running():
        await scene.leading()
        scene.row.away = True
        await scene.told.wait_for(LeaseGone)
        scene.row.away = False
        again = await scene.told.wait_for(LeaseTaken, lambda event: event.epoch == 2)
        await asyncio.sleep(0)
    assert again.epoch == 2
    assert scene.diary == ["begins 1", "ends 1", "begins 2", "ends 2"]


@timeless
async def test_several_refused_writes_in_a_row_end_a_tenure(clock: ManualClock, scene: Scene) -> None:
    def work(lead: Lead) -> None:
        if lead.tenure.epoch == 1:
            for accepted in (False, False, True, False, False):
                lead.written(accepted)
            assert not lead.over.is_set()
            lead.written(False)

    scene.work = work
    async with scene.running():
        await scene.leading()
        await scene.told.wait_for(LeaseGone)
        assert clock.monotonic() == 100.0, "at once"
    assert scene.gone == [(1, "its writes were refused")]
    assert scene.row.times("resign") == [100.0]


@timeless
async def test_a_leader_that_retires_resigns_before_it_says_so_and_stands_no_more(
    clock: ManualClock, scene: Scene
) -> None:
    async with scene.running(seconds=1_000.0):
        await scene.leading()
        scene.row.delay = 0.2
        await scene.leader.retire()
        assert scene.row.holder is None
        assert scene.diary == ["begins 1", "ends 1"]
        scene.leader.hear(0.0)
    assert scene.gone == [(1, "retired")]
    assert len(scene.row.times("take")) == 1


@timeless
async def test_a_leader_that_retires_in_a_later_tenure_resigns_that_one_too(
    clock: ManualClock, scene: Scene
) -> None:
    async with scene.running():
        first = await scene.leading()
        first.over.set()
        await scene.told.wait_for(LeaseGone)
        await scene.leading()
        scene.row.delay = 0.2
        await scene.leader.retire()
        assert scene.row.holder is None


@timeless
async def test_a_pod_that_retires_while_it_stands_gives_up_what_it_wins(
    clock: ManualClock, scene: Scene
) -> None:
    scene.row.delay = 0.2
    async with scene.running(seconds=1.0):
        scene.leader.hear(0.0)
        await asyncio.sleep(0.1)
        await scene.leader.retire()
    assert scene.row.epoch == 1
    assert scene.row.holder is None
    assert not scene.leader.leads


@timeless
async def test_a_follower_that_retires_does_so_at_once(clock: ManualClock, scene: Scene) -> None:
    scene.row.give_to(OTHER, 3.0)
    async with scene.running(seconds=100.0):
        scene.leader.hear(3.0)
        await scene.leader.retire()
    assert scene.row.asked == []


@timeless
async def test_a_retirement_that_cannot_be_told_ends_all_the_same(clock: ManualClock, scene: Scene) -> None:
    async with scene.running():
        await scene.leading()
        await asyncio.sleep(0.1)
        scene.row.away = True
        async with asyncio.timeout(TERMS.ttl * 2):
            await scene.leader.retire()
    assert scene.row.holder == US, "it runs out"


@timeless
async def test_a_duty_with_a_bug_ends_the_leader_and_its_duties(clock: ManualClock, scene: Scene) -> None:
    def work(lead: Lead) -> None:
        raise ZeroDivisionError

    scene.work = work
    scene.leader.hear(0.0)
    with pytest.raises(BaseExceptionGroup) as failed:
        await scene.leader.run()
    assert failed.group_contains(ZeroDivisionError)
    assert not scene.leader.leads


@timeless
async def test_where_the_clocks_part_nobody_is_expired_for_a_ttl_and_it_is_told_once(
    clock: ManualClock, scene: Scene
) -> None:
    async with scene.running():
        lead = await scene.leading()
        await asyncio.sleep(4.0)
        assert lead.may_expire_in <= 0
        scene.row.ahead += 3_600.0
        parted = await scene.told.wait_for(ClocksParted)
        assert parted == ClocksParted("the server's clock jumped by +3600.0 s", POD_TTL)
        assert lead.may_expire_in == POD_TTL
        await asyncio.sleep(6.0)
        scene.row.ahead -= 3_600.0
        await asyncio.sleep(1.5)
        assert 8.4 < lead.may_expire_in <= POD_TTL, "another jump, and a TTL from there"
        assert len(scene.told.all(ClocksParted)) == 1
        await asyncio.sleep(POD_TTL)
        assert lead.may_expire_in <= 0
        scene.row.started = 2.0
        await asyncio.sleep(1.5)
        assert len(scene.told.all(ClocksParted)) == 2


@timeless
async def test_a_slow_answer_parts_no_clocks(clock: ManualClock, scene: Scene) -> None:
    async with scene.running(seconds=20.0):
        lead = await scene.leading()
        scene.row.delay = 2.0
    assert lead.may_expire_in <= 0
    assert scene.told.all(ClocksParted) == []


@timeless
async def test_while_a_failover_settles_nobody_is_expired_and_no_longer_than_a_ttl(
    clock: ManualClock, scene: Scene
) -> None:
    scene.row.settling = True
    async with scene.running():
        lead = await scene.leading()
        await asyncio.sleep(POD_TTL - 1.0)
        assert lead.may_expire_in == pytest.approx(1.0)
        scene.row.settling = False
        await asyncio.sleep(1.0)
        assert lead.may_expire_in <= 0
    assert [event.reason for event in scene.told.all(ClocksParted)] == ["a failover settles"]


@timeless
async def test_a_leader_hears_when_the_first_pod_falls_silent(clock: ManualClock, scene: Scene) -> None:
    scene.row.expiry_in = 4.0
    async with scene.running():
        lead = await scene.leading()
        await lead.renewed.wait()
        assert 104.0 < lead.expiry_at < 104.1, "a moment after, and not before"


def test_a_lead_counts_refusals_only_in_a_row(clock: ManualClock) -> None:
    lead = Lead(Lease(Tenure(US, Epoch(1), 1), 110.0), clock)
    for _ in range(10):
        for accepted in (False, False, True):
            lead.written(accepted)
    assert not lead.over.is_set()
    for _ in range(3):
        lead.written(False)
    assert lead.over.is_set()
