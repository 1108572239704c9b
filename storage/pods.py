"""Pods in Postgres: register, beat, drain, leave, expire."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rota.errors import PodRetired
from rota.words import Incarnation, PodId

from .pool import Connection, Database
from .rows import BeatAnswer, PodRow, QueueTerms


class Pods:
    """The pods of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register_pod(
        self,
        pod: PodId,
        *,
        name: str,
        queues: Sequence[str],
        kinds: Sequence[str],
        capacity: int,
        zone: str,
        version: str,
        ttl: float,
        max_rescues: int,
    ) -> Incarnation:
        """A boot of this pod id begins; an earlier one is retired and its jobs recovered."""
        booted: int = await self._database.fetchval(
            "register_pod", pod, name, queues, kinds, capacity, zone, version, ttl, max_rescues
        )
        return Incarnation(booted)

    async def beat(
        self, pod: PodId, incarnation: Incarnation, ttl: float, *, on: Connection | None = None
    ) -> BeatAnswer | None:
        """Say that the pod lives and hear what is new; None when it has expired, PodRetired when retired."""
        row = await self._database.fetchrow("beat", pod, incarnation, ttl, on=on)
        if row is None:
            return None
        if row["state"] is None:
            raise PodRetired("A later boot of this pod has taken its place; this one ends.")
        terms = orjson.loads(row["queues"]) if row["queues"] else {}
        return BeatAnswer(
            draining=row["state"] == "draining",
            cancels=tuple(row["cancels"]),
            ready=tuple(row["ready"]),
            queues={name: QueueTerms(**told) for name, told in terms.items()},
        )

    async def drain_pod(self, pod: PodId, incarnation: Incarnation) -> bool:
        """The pod claims nothing new; False when it is no longer registered."""
        known: bool = await self._database.fetchval("drain_pod", pod, incarnation)
        return known

    async def leave_pod(self, pod: PodId, incarnation: Incarnation) -> bool:
        """Leave for good; False when jobs still run here and the row is left to expire."""
        left: bool = await self._database.fetchval("leave_pod", pod, incarnation)
        return left

    async def expire_pods(self, max_rescues: int) -> tuple[list[PodId], int]:
        """Remove pods whose time ran out; which, and how many jobs were rescued."""
        row = await self._database.fetchrow("expire_pods", max_rescues)
        assert row is not None
        return list(row["expired"]), row["rescued"]

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
            )
            for row in await self._database.fetch("list_pods")
        ]
