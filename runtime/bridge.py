"""From code without an event loop: a thread of our own with a loop and a connection."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rota.errors import BadInput

T = TypeVar("T")


class Bridge:
    """Runs coroutines for callers that cannot await; starts at the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine to its end and give what it gives."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(make(), self._started()).result()
        raise BadInput("enqueue_sync would block the running event loop; await enqueue instead.")

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="rota-bridge", daemon=True).start()
                atexit.register(self.close)
            return self._loop
