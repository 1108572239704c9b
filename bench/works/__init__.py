"""What is measured: each file is one word of --only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bench.harness import Bench
from bench.works import cluster, drain, enqueue, memory, pickup, python, wal

Work = Callable[[Bench], Awaitable[None]]

# WAL is counted for the whole server, so it goes first, before anything big lies about for
# autovacuum to find.
WORKS: dict[str, Work] = {
    "wal": wal.measure,
    "enqueue": enqueue.measure,
    "pickup": pickup.measure,
    "drain": drain.measure,
    "python": python.measure,
    "memory": memory.measure,
    "cluster": cluster.measure,
}
