"""Queues in Postgres: declared by code, owned by operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .pool import Database
from .rows import CapChange, CapChangeRow, CapStatus, QueueRow


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

    async def change_queue(
        self,
        queue: str,
        *,
        max_workers: int | None = None,
        paused: bool | None = None,
        retry: Mapping[str, Any] | None = None,
    ) -> CapChange | None:
        """Change a queue's cap, pause it or give it a retry policy, all at once; None: no such queue.

        What is None stays as it is; an empty policy takes the queue's own away.
        """
        policy = None if retry is None else orjson.dumps(retry or None).decode()
        row = await self._database.fetchrow("change_queue", queue, max_workers, paused, policy)
        return None if row is None else CapChange(row["change"], row["cap"], row["in_force"])

    async def confirm_cap(self, queue: str) -> bool:
        """Note that a queue's latest cap is in force, if it is; whether it is."""
        return bool(await self._database.fetchval("confirm_cap", queue))

    async def read_cap_change(self, change: int) -> CapStatus | None:
        """How far a change has come; None: it is pruned."""
        row = await self._database.fetchrow("read_cap_change", change)
        return None if row is None else CapStatus(**dict(row))

    async def list_cap_changes(self, queue: str, most: int = 10) -> list[CapChangeRow]:
        """The latest changes of a queue's cap first."""
        rows = await self._database.fetch("list_cap_changes", queue, most)
        return [CapChangeRow(**dict(row)) for row in rows]
