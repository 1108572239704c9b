"""Python: CPU of the pod process per job, telemetry as it is by default.

Read off the plain drains; when those are not asked for, they are made for this alone.
"""

from __future__ import annotations

from bench.harness import Bench
from bench.works.drain import plain_round


async def measure(bench: Bench) -> None:
    """Plain drains, unless there were some."""
    if "drain" not in bench.selected:
        for _ in range(bench.short_runs):
            await plain_round(bench)
