"""Stands for the lease, holds it, does a leader's duties while it holds it, and resigns it.

    standing --took it--> leading --refused, or not renewed in time--> standing
                             |
                             +--told to retire--> resigned

A follower learns from its beats when the lease ends and tries once, then; a leader that leaves
says so, and the next takes over in milliseconds. What a leader writes is refused by the database
once its lease has passed on, whatever the leader believes; that it believes less than it might,
counting from before it asked, only spares it the refusal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from rota.clock import Clock
from rota.errors import Conflict, DatabaseUnavailable, LeaseLost
from rota.events import ClocksParted, LeaseGone, LeaseTaken, Tell
from rota.service import Patience, Service
from rota.settings import LeaseSettings
from rota.words import PodId

from ..storage.leases import Leases
from ..storage.rows import Tenure
from .lease import Lease, Reading, parted, renew, stand

_PARTED = 1.0
"""Seconds by which the two clocks may disagree over one renewal."""

_AFTER = 0.02
"""Seconds after a pod's expiry at which to look: a moment too early would be a whole round too late."""

_REFUSALS = 3
"""Refused writes in a row after which a leader resigns."""


class Lead:
    """One tenure as its duties see it."""

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self.lease = lease
        self.over = asyncio.Event()
        self.resigned = asyncio.Event()
        self.renewed = asyncio.Event()
        self.expiry_at = float("inf")
        """When the first pod falls silent for good, on our clock."""
        self._clock = clock
        self._refusals = 0
        self._nobody_before = float("-inf")

    @property
    def tenure(self) -> Tenure:
        return self.lease.tenure

    def written(self, accepted: bool) -> None:
        """Count what became of a guarded write; several refused in a row end the tenure."""
        self._refusals = 0 if accepted else self._refusals + 1
        if self._refusals >= _REFUSALS:
            self.over.set()

    def expire_nobody(self, seconds: float) -> None:
        """The server's clock cannot be trusted for so long."""
        self._nobody_before = self._clock.monotonic() + seconds

    @property
    def may_expire_in(self) -> float:
        """Seconds until pods may be expired again; not above 0: now."""
        return self._nobody_before - self._clock.monotonic()


class Leader(Service):
    """One pod's part in leadership. `duties` are the services of one tenure.

    A follower stands on a connection that is open (`standing`); what a leader does has others of its own.
    """

    doing = "standing for the lease"

    def __init__(
        self,
        pod: PodId,
        leases: Leases,
        terms: LeaseSettings,
        *,
        standing: Leases,
        pod_ttl: float,
        duties: Callable[[Lead], Sequence[Service]],
        clock: Clock,
        tell: Tell,
    ) -> None:
        super().__init__(tell)
        self._pod = pod
        self._leases = leases
        self._standing = standing
        self._terms = terms
        self._pod_ttl = pod_ttl
        self._duties = duties
        self._clock = clock
        self._try_at = float("inf")
        self._sooner = asyncio.Event()
        self._lead: Lead | None = None
        self._retired = asyncio.Event()

    @property
    def leads(self) -> bool:
        return self._lead is not None

    def hear(self, lease_in: float) -> None:
        """The lease ends in so many seconds unless it is renewed; 0: it is free."""
        if self._lead is None:
            # Spread, so that not every follower asks at once.
            self._try_at = self._clock.monotonic() + lease_in + random.uniform(0, min(0.05, lease_in))
            self._sooner.set()

    async def retire(self) -> None:
        """Stand no more, and give the lease up if it is ours; returns when it is."""
        self._retired.set()
        if (lead := self._lead) is not None:
            lead.over.set()
            await lead.resigned.wait()

    async def step(self) -> None:
        await self._turn()
        lease = await stand(self._pod, leases=self._standing, clock=self._clock, ttl=self._terms.ttl)
        if isinstance(lease, Lease):
            await self._hold(lease)
        else:
            self.hear(lease if lease is not None else self._terms.ttl / 10)

    async def _turn(self) -> None:
        """Wait until the lease may be free; for ever once retired."""
        while self._retired.is_set() or (left := self._try_at - self._clock.monotonic()) > 0:
            self._sooner.clear()
            try:
                async with asyncio.timeout(None if self._retired.is_set() or left > 3600 else left):
                    await self._sooner.wait()
            except TimeoutError:
                pass
        self._try_at = float("inf")

    async def _hold(self, lease: Lease) -> None:
        """Do the duties until the lease is lost or given up."""
        lead = self._lead = Lead(lease, self._clock)
        self._tell(LeaseTaken(lease.tenure.epoch))
        if self._retired.is_set():  # while it stood
            lead.over.set()
        try:
            async with asyncio.TaskGroup() as group:
                duties = [group.create_task(duty.run()) for duty in self._duties(lead)]
                reason = await self._keep(lead)
                for duty in duties:
                    duty.cancel()
            await self._resign(lead)
        finally:
            self._lead = None
            lead.resigned.set()
        self._tell(LeaseGone(lease.tenure.epoch, reason))
        self.hear(self._terms.renew)

    async def _keep(self, lead: Lead) -> str:
        """Renew while it may be trusted; why it ended."""
        patience = Patience("renewing the lease", self._tell)
        last: Reading | None = None
        while True:
            try:
                async with asyncio.timeout(lead.lease.trusted_until - self._clock.monotonic()):
                    lead.lease, reading = await renew(
                        lead.lease, leases=self._leases, clock=self._clock, ttl=self._terms.ttl
                    )
                last = self._watch(lead, last, reading)
                patience.over()
                if await _within(lead.over, reading.asked_at + self._terms.renew - self._clock.monotonic()):
                    return "retired" if self._retired.is_set() else "its writes were refused"
            except LeaseLost:
                return "another took over"
            except TimeoutError:
                return "it could not be renewed in time"
            except (DatabaseUnavailable, Conflict) as error:
                try:
                    async with asyncio.timeout(lead.lease.trusted_until - self._clock.monotonic()):
                        await patience.wait(error)
                except TimeoutError:
                    return "it could not be renewed in time"

    def _watch(self, lead: Lead, last: Reading | None, reading: Reading) -> Reading:
        """Compare the server's clock with ours; where they part, nobody is expired for a TTL."""
        expiry_in = reading.renewal.expiry_in
        if expiry_in is not None:
            lead.expiry_at = reading.answered_at + expiry_in + _AFTER
        reason = parted(last, reading, _PARTED) if last is not None else None
        if reading.renewal.settling and lead.may_expire_in <= 0:
            # From its first sight; how long it settles the database knows, and expires nobody till then.
            reason = "a failover settles"
        if reason is not None and lead.may_expire_in <= 0:
            self._tell(ClocksParted(reason, self._pod_ttl))
        if reason is not None:
            lead.expire_nobody(self._pod_ttl)
        lead.renewed.set()
        return reading

    async def _resign(self, lead: Lead) -> None:
        """Tell the others, where it can be told; else the lease runs out."""
        try:
            async with asyncio.timeout(self._terms.ttl / 2):
                await self._leases.resign_lease(lead.tenure)
        except (TimeoutError, DatabaseUnavailable, Conflict):
            pass


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
