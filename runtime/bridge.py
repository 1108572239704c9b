"""From code without an event loop: a thread of our own with a loop and a connection."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from rota.errors import BadInput

T = TypeVar("T")
_LAST_WAIT = 5.0
"""Seconds for the last work at the end of a program."""


class Bridge:
    """Runs coroutines for callers that cannot await; starts at the first call."""

    def __init__(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._last = last
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine to its end and give what it gives."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(make(), self._started()).result()
        raise BadInput("enqueue_sync would block the running event loop; await enqueue instead.")

    def close(self) -> None:
        """Do the last work and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        atexit.unregister(self.close)
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._last(), loop).result(_LAST_WAIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_LAST_WAIT)
        if not thread.is_alive():
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="rota-bridge", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)
            return self._loop
