"""Waiting for what must come true, by looking often, with an end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

PATIENCE = 15.0
"""Seconds; far more than anything takes, so that only what never comes fails."""

_LOOK_EVERY = 0.01


async def until(what: str, condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Return once the condition, which may have to be awaited, is true; `what` says it in words."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        assert loop.time() < deadline, f"not within {patience:g} s: {what} (last seen: {found!r})"
        await asyncio.sleep(_LOOK_EVERY)
