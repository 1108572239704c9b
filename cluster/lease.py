"""The lease: the right of one pod to act as leader for one epoch, and how long it is trusted.

The database's clock decides who holds it. The holder's own clock only says when to stop trusting
it, counted from before the question was sent; and it watches whether the two clocks part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.clock import Clock
from rota.errors import LeaseLost
from rota.words import PodId

from ..storage.leases import Leases
from ..storage.rows import Renewal, Tenure

MARGIN = 0.1
"""Part of the lease's time that is not trusted: for a clock that runs slow, and the way of a write."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A tenure and the moment from which it can no longer be trusted."""

    tenure: Tenure
    trusted_until: float

    def require(self, now: float) -> None:
        """Raise LeaseLost once the lease can no longer be trusted."""
        if now >= self.trusted_until:
            raise LeaseLost(self.tenure.epoch)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the server's clock said, somewhere between two readings of ours."""

    asked_at: float
    answered_at: float
    renewal: Renewal


async def stand(pod: PodId, *, leases: Leases, clock: Clock, ttl: float) -> Lease | float | None:
    """Take the lease if it is free; else how long the other's lasts, or None while that is being settled."""
    asked_at = clock.monotonic()
    stood = await leases.take_lease(pod, ttl)
    if stood.tenure is None:
        return stood.expires_in
    return Lease(stood.tenure, asked_at + ttl * (1 - MARGIN))


async def renew(lease: Lease, *, leases: Leases, clock: Clock, ttl: float) -> tuple[Lease, Reading]:
    """Extend the lease and read the server's clock, or raise LeaseLost if it has passed on."""
    asked_at = clock.monotonic()
    renewal = await leases.renew_lease(lease.tenure, ttl)
    if renewal is None:
        raise LeaseLost(lease.tenure.epoch)
    # Counted from the question, not the answer: a slow reply must not stretch our trust.
    return (
        replace(lease, trusted_until=asked_at + ttl * (1 - MARGIN)),
        Reading(asked_at, clock.monotonic(), renewal),
    )


def parted(before: Reading, after: Reading, margin: float) -> str | None:
    """Why what the server says of time cannot be trusted for a while; None when it can."""
    if before.renewal.started != after.renewal.started:
        return "the server was restarted or replaced"
    passed = after.renewal.clock - before.renewal.clock
    least = after.asked_at - before.answered_at
    most = after.answered_at - before.asked_at
    if not least - margin <= passed <= most + margin:
        jump = passed - most if passed > most else passed - least
        return f"the server's clock jumped by {jump:+.1f} s"
    return None
