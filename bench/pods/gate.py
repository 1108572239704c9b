"""The gate before which a pod waits with its next claim, so that a drain begins at one instant.

A pod is warm when it gets there: connected, its statements prepared, nothing claimed.
"""

from __future__ import annotations

import asyncio


class Gate:
    """Open unless closed; the only thing a pod does for the bench between two claims."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._someone = asyncio.Event()

    async def passed(self) -> None:
        """Return at once, or when the gate opens."""
        if not self._open.is_set():
            self._someone.set()
            await self._open.wait()

    async def someone_waits(self) -> None:
        """Return when a claim is held back."""
        await self._someone.wait()

    def close(self) -> None:
        self._someone.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()
