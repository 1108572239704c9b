"""How long a lease is trusted, and when the server's clock is not."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cluster.lease import Lease, Reading, parted, renew, stand
from rota.errors import LeaseLost
from rota.storage.leases import Leases
from rota.storage.rows import Renewal, Stand, Tenure
from rota.testing import ManualClock
from rota.words import Epoch, PodId

POD = PodId(uuid.uuid4())
TENURE = Tenure(POD, Epoch(3), 1)
TTL = 5.0


class Answers:
    """In place of the lease's row: every answer takes `delay` on our clock."""

    def __init__(self, clock: ManualClock, delay: float = 0.0) -> None:
        self._clock = clock
        self._delay = delay
        self.stood = Stand(TENURE, TTL)
        self.renewal: Renewal | None = Renewal(1_000.0, 1.0, False, None)

    async def take_lease(self, pod: PodId, ttl: float) -> Stand:
        self._clock.advance(self._delay)
        return self.stood

    async def renew_lease(self, tenure: Tenure, ttl: float) -> Renewal | None:
        self._clock.advance(self._delay)
        return self.renewal


def test_a_lease_is_required_only_while_it_is_trusted() -> None:
    lease = Lease(TENURE, trusted_until=10.0)
    lease.require(9.999)
    for now in (10.0, 10.001, 99.0):
        with pytest.raises(LeaseLost) as lost:
            lease.require(now)
        assert lost.value.epoch == 3


@pytest.mark.parametrize("delay", [0.0, 2.0, 4.4, 60.0])
async def test_trust_in_a_taken_lease_is_counted_from_the_question(delay: float) -> None:
    clock = ManualClock(100.0)
    answers = Answers(clock, delay)
    lease = await stand(POD, leases=cast("Leases", answers), clock=clock, ttl=TTL)
    assert isinstance(lease, Lease)
    assert lease.tenure == TENURE
    assert lease.trusted_until == pytest.approx(104.5), "a tenth of it is never trusted"


@pytest.mark.parametrize("delay", [0.0, 2.0, 4.4, 60.0])
async def test_trust_in_a_renewed_lease_is_counted_from_the_question(delay: float) -> None:
    clock = ManualClock(100.0)
    answers = Answers(clock, delay)
    lease, reading = await renew(Lease(TENURE, 101.0), leases=cast("Leases", answers), clock=clock, ttl=TTL)
    assert lease.tenure == TENURE
    assert lease.trusted_until == pytest.approx(104.5)
    assert reading == Reading(100.0, 100.0 + delay, cast("Renewal", answers.renewal))


@pytest.mark.parametrize("expires_in", [3.0, None])
async def test_a_lease_that_another_has_is_not_taken(expires_in: float | None) -> None:
    clock = ManualClock()
    answers = Answers(clock)
    answers.stood = Stand(None, expires_in)
    assert await stand(POD, leases=cast("Leases", answers), clock=clock, ttl=TTL) == expires_in


async def test_a_renewal_that_is_refused_is_a_lost_lease() -> None:
    clock = ManualClock()
    answers = Answers(clock)
    answers.renewal = None
    with pytest.raises(LeaseLost):
        await renew(Lease(TENURE, 9.0), leases=cast("Leases", answers), clock=clock, ttl=TTL)


def reading(asked_at: float, answered_at: float, server: float, started: float = 1.0) -> Reading:
    return Reading(asked_at, answered_at, Renewal(server, started, False, None))


FIRST = reading(100.0, 100.01, server=5_000.0)


@pytest.mark.parametrize("passed", [0.51, 1.5, 2.49])
def test_clocks_that_go_about_alike_are_trusted(passed: float) -> None:
    assert parted(FIRST, reading(101.5, 101.51, 5_000.0 + passed), margin=1.0) is None


@pytest.mark.parametrize("jump", [30.0, 2.0, -2.0, -30.0])
def test_a_jump_of_the_servers_clock_is_seen_either_way(jump: float) -> None:
    said = parted(FIRST, reading(101.5, 101.5, 5_001.5 + jump), margin=1.0)
    assert said == f"the server's clock jumped by {jump:+.1f} s"


def test_a_server_that_was_restarted_is_not_trusted_whatever_its_clock_says() -> None:
    said = parted(FIRST, reading(101.5, 101.51, 5_001.5, started=2.0), margin=1.0)
    assert said == "the server was restarted or replaced"


@pytest.mark.parametrize("late", [0.0, 5.0, 60.0])
@pytest.mark.parametrize("when", ["at once", "at the end"])
def test_a_slow_answer_is_no_jump(late: float, when: str) -> None:
    """The server reads its clock somewhere between the question and the answer."""
    read_at = 101.5 if when == "at once" else 101.5 + late
    assert parted(FIRST, reading(101.5, 101.5 + late, 4_900.0 + read_at), margin=1.0) is None


times = st.floats(0.0, 100.0)


@given(times, times, times, times, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_true_clocks_never_part_however_slow_the_way(
    before: float, there: float, between: float, back: float, first: float, second: float
) -> None:
    def read(asked_at: float, way: float, part: float) -> Reading:
        return reading(asked_at, asked_at + way, server=7_000.0 + asked_at + way * part)

    earlier = read(before, there, first)
    later = read(before + there + between, back, second)
    assert parted(earlier, later, margin=0.001) is None


@given(times, st.floats(0.0, 0.5), st.floats(0.0, 0.5), st.booleans(), st.floats(3.1, 1e6))
def test_a_jump_beyond_the_margin_and_the_way_is_always_seen(
    between: float, there: float, back: float, forwards: bool, jump: float
) -> None:
    def server(asked_at: float, way: float) -> float:
        return 7_000.0 + asked_at + way / 2

    second = there + between
    earlier = reading(0.0, there, server(0.0, there))
    leap: Callable[[float], float] = (lambda at: at + jump) if forwards else (lambda at: at - jump)
    later = reading(second, second + back, leap(server(second, back)))
    assert parted(earlier, later, margin=1.0) is not None
