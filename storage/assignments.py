"""Assignments in Postgres: the view a plan is made from, the plan written, and who has what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from rota.words import PodId

from .pool import Database
from .rows import AssignmentRow, PlanRow, Tenure


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one queue's plan: the pods it changed, and by how many slots."""

    changed: tuple[PodId, ...]
    granted: int
    revoked: int


class Assignments:
    """The assignments of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def plan_queue(
        self,
        tenure: Tenure,
        queue: str,
        wanted: Mapping[PodId, int],
        *,
        cause: str,
        sentence: str,
        also: Iterable[PodId] = (),
        tell: bool = True,
    ) -> Written | None:
        """Write one queue's targets as far as they may be written now; None: the lease is lost.

        With `tell`, pods that changed, and those named in `also`, are asked to beat.
        """
        row = await self._database.fetchrow(
            "plan_queue",
            *tenure,
            queue,
            [str(pod) for pod in wanted],
            [str(slots) for slots in wanted.values()],
            cause,
            sentence,
            [str(pod) for pod in also],
            tell,
        )
        if row is None:
            return None
        return Written(tuple(PodId(UUID(pod)) for pod in row["changed"]), row["granted"], row["revoked"])

    async def read_view(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Queues, pods and assignments as plain lists, for the rebalancer to make a picture of.

        In order (name, max_workers, paused, pending); (id, name, queues, capacity, capacities, draining,
        expired, version), oldest first; (queue, pod, target, held, acting).
        """
        row = await self._database.fetchrow("read_view")
        assert row is not None
        queues, pods, assignments = (orjson.loads(part) if part else [] for part in row)
        return queues, pods, assignments

    async def list_assignments(self) -> list[AssignmentRow]:
        """Who has the slots, by queue and then by age of the pod."""
        return [AssignmentRow(**dict(row)) for row in await self._database.fetch("list_assignments")]

    async def list_plans(self, queue: str | None = None, most: int = 20) -> list[PlanRow]:
        """The latest plans first."""
        return [PlanRow(**dict(row)) for row in await self._database.fetch("list_plans", queue, most)]
