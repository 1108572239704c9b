"""Queues in Postgres: declared by code, owned by operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .pool import Database
from .rows import QueueRow


class Queues:
    """The queues of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def declare_queues(self, declared: Mapping[str, tuple[int, dict[str, Any] | None]]) -> int:
        """Create those that are missing, as (max_workers, retry policy); how many there were."""
        return await self._database.execute(
            "declare_queues",
            list(declared),
            [workers for workers, _ in declared.values()],
            [orjson.dumps(retry).decode() if retry else None for _, retry in declared.values()],
        )

    async def list_queues(self) -> list[QueueRow]:
        """Every queue, by name."""
        return [
            QueueRow(
                row["name"],
                row["max_workers"],
                row["paused"],
                bool(row["cooling"]),
                orjson.loads(row["retry"]) if row["retry"] else None,
            )
            for row in await self._database.fetch("list_queues")
        ]
