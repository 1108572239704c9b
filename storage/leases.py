"""The lease in Postgres: taken, renewed, resigned."""

from __future__ import annotations

from rota.words import Epoch, PodId

from .pool import Database
from .rows import Renewal, Stand, Tenure


class Leases:
    """The one lease of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_lease(self, pod: PodId, ttl: float) -> Stand:
        """Take the lease if it is to be had."""
        row = await self._database.fetchrow("take_lease", pod, ttl)
        assert row is not None
        tenure = Tenure(pod, Epoch(row["epoch"]), row["timeline"]) if row["won"] else None
        return Stand(tenure, row["expires_in"])

    async def renew_lease(self, tenure: Tenure, ttl: float) -> Renewal | None:
        """Extend an unexpired lease; None: it is lost."""
        row = await self._database.fetchrow("renew_lease", *tenure, ttl)
        return None if row is None else Renewal(*row)

    async def resign_lease(self, tenure: Tenure) -> bool:
        """Give it up; False when it was not this leader's any more."""
        was_ours: bool = await self._database.fetchval("resign_lease", *tenure)
        return was_ours
