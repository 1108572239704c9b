"""A pod as the harness sees it: connected when it says that it is ready, at work after `go`.

For a timed drain it is held before its next claim, and the clock starts when it is let go on.
"""

from __future__ import annotations

from typing import Any, Protocol

from bench.pods.control import serve
from bench.pods.gate import Gate
from bench.pods.tally import Tally, resident


class Pod(Protocol):
    """One contender's worker; it passes the gate before it asks for jobs."""

    async def open(self) -> None:
        """Connect, and take nothing yet."""

    async def go(self) -> None:
        """Begin to take jobs."""

    async def stop(self) -> None:
        """Take nothing more, finish, leave."""


async def serve_pod(pod: Pod, tally: Tally, gate: Gate) -> None:
    """Be a pod until told to stop."""
    await pod.open()

    async def hold() -> None:
        gate.close()

    async def poised() -> None:
        await gate.someone_waits()

    async def release() -> None:
        tally.begin()
        gate.open()

    async def report() -> dict[str, Any]:
        return {"acks": list(tally.acks), "rss": [*tally.rss, (tally.total, resident())]}

    async def starts() -> dict[str, Any]:
        told, tally.starts = tally.starts, []
        return {"starts": told}

    async def stop() -> None:
        gate.open()
        await pod.stop()

    commands = (hold, poised, release, report, starts, stop)
    await serve({"go": pod.go} | {command.__name__: command for command in commands})
