"""Pods in Postgres: register, beat, drain, leave, expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import orjson

from rota.errors import PodRetired
from rota.words import Incarnation, PodId

from .pool import Connection, Database, Record
from .rows import BeatAnswer, Boot, PodRow, QueueTerms, Report, Tenure


class Pods:
    """The pods of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_incarnation(self, pod: PodId) -> Incarnation:
        """Which boot of this pod is registered; 0: none."""
        return Incarnation(await self._database.fetchval("read_incarnation", pod) or 0)

    async def register_pod(
        self,
        pod: PodId,
        *,
        replaces: Incarnation,
        machine: str,
        name: str,
        queues: Sequence[str],
        kinds: Sequence[str],
        capacity: int,
        capacities: Mapping[str, int],
        zone: str,
        version: str,
        ttl: float,
        max_rescues: int,
    ) -> Boot:
        """A boot of this pod id begins, in place of the one it names, whose jobs are recovered."""
        row = await self._database.fetchrow(
            "register_pod",
            pod,
            replaces,
            machine,
            name,
            queues,
            kinds,
            capacity,
            orjson.dumps(capacities).decode(),
            zone,
            version,
            ttl,
            max_rescues,
        )
        assert row is not None
        return Boot(row["booted"], row["wait_in"], row["found"])

    async def beat(
        self, pod: PodId, incarnation: Incarnation, report: Report, *, on: Connection | None = None
    ) -> BeatAnswer | None:
        """Say that the pod lives and hear what is new; None when it has expired, PodRetired when retired."""
        row = await self._database.fetchrow(
            "beat",
            pod,
            incarnation,
            report.heard,
            report.timeline,
            report.busy,
            report.acts,
            report.uses,
            report.sharing,
            report.digest,
            on=on,
        )
        if row is None:
            return None
        if row["state"] is None:
            raise PodRetired("A later boot of this pod has taken its place; this one ends.")
        terms = orjson.loads(row["settings"]) if row["settings"] else None
        return BeatAnswer(
            draining=row["state"] == "draining",
            answer=row["answer"],
            timeline=row["timeline"],
            targets=dict(zip(row["targeted"] or (), row["targets"] or (), strict=True)),
            cancels=tuple(row["cancels"]),
            ready=tuple(row["ready"]),
            lone=None if row["lone"] is None else (row["lone_queue"], row["lone"]),
            terms=None if terms is None else {name: QueueTerms(**told) for name, told in terms.items()},
            digest=row["digest"] or "",
            leader=row["leader"],
            lease_in=row["lease_in"],
        )

    async def drain_pod(self, pod: PodId, incarnation: Incarnation | None = None) -> bool:
        """The pod claims nothing new; False when it is not registered (any more)."""
        known: bool = await self._database.fetchval("drain_pod", pod, incarnation)
        return known

    async def leave_pod(self, pod: PodId, incarnation: Incarnation) -> bool:
        """Leave for good; False when jobs still run here and the row is left to expire."""
        left: bool = await self._database.fetchval("leave_pod", pod, incarnation)
        return left

    async def expire_pods(self, tenure: Tenure, max_rescues: int) -> tuple[list[PodId], int] | None:
        """Remove pods whose time ran out: which, and how many jobs were rescued; None: the lease is lost."""
        row = await self._database.fetchrow("expire_pods", *tenure, max_rescues)
        return None if row is None else _swept(row)

    async def sweep_pods(self, max_rescues: int, *, on: Connection | None = None) -> tuple[list[PodId], int]:
        """The same by hand, whoever leads."""
        row = await self._database.fetchrow("sweep_pods", max_rescues, on=on)
        assert row is not None
        return _swept(row)

    async def rescue(self, max_rescues: int) -> tuple[list[PodId], int] | None:
        """Sweep until nothing is left to rescue; None while a failover settles and nobody may be expired."""
        gone: list[PodId] = []
        rescued = 0
        while True:
            # One transaction: what settles is the server that is swept.
            async with self._database.connection() as connection, connection.transaction():
                if await self.is_settling(on=connection):
                    return None
                expired, jobs = await self.sweep_pods(max_rescues, on=connection)
            gone += expired
            rescued += jobs
            if not jobs:
                return gone, rescued

    async def is_settling(self, *, on: Connection | None = None) -> bool:
        """Whether a failover is so recent that nobody may be expired."""
        settling: bool = await self._database.fetchval("is_settling", on=on)
        return settling

    async def missing_timeouts(self) -> list[str]:
        """Timeouts that the role does not have, and should."""
        return [row["name"] for row in await self._database.fetch("missing_timeouts")]

    async def list_pods(self) -> list[PodRow]:
        """Every pod, oldest first."""
        return [
            PodRow(
                id=row["id"],
                incarnation=row["incarnation"],
                name=row["name"],
                state=row["state"],
                zone=row["zone"],
                version=row["version"],
                capacity=row["capacity"],
                queues=tuple(row["queues"]),
                kinds=tuple(row["kinds"]),
                running=row["running"],
                age=row["age"],
                expires_in=row["expires_in"],
                leads=row["leads"],
            )
            for row in await self._database.fetch("list_pods")
        ]


def _swept(row: Record) -> tuple[list[PodId], int]:
    return [PodId(UUID(pod)) for pod in row["expired"]], row["rescued"]
