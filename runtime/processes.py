"""`process=True` handlers: a pool of children that can be stopped in the middle of a job.

A child imports the handler's module and finds the function there; only payload and result
cross over, as pickles. A timeout or cancel kills the child and a new one takes its place.
Children die with the pod.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
from typing import Any

from .handlers import Handler
from .outcome import Failed

_PR_SET_PDEATHSIG = 1


class Processes:
    """Started at the first job that needs it."""

    def __init__(self, children: int) -> None:
        self._children = children or os.cpu_count() or 1
        self._pool: Any = None  # pebble leaves stop() untyped

    async def call(self, handler: Handler[Any], payload: Any) -> Any:
        """Run the handler's function in a child; cancelling this kills that child."""
        function = handler.function
        arguments = (payload,) if handler.takes_payload else ()
        future = self._started().schedule(
            run_in_child, args=[function.__module__, function.__qualname__, arguments]
        )
        from pebble import ProcessExpired  # noqa: PLC0415

        try:
            return pickle.loads(await asyncio.wrap_future(future))
        except ProcessExpired as error:
            raise Failed(f"the child process died with exit code {error.exitcode}") from None

    def close(self) -> None:
        """Kill what is left."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()
            pool.join()

    def _started(self) -> Any:
        if self._pool is None:
            # Imported here: whoever has no such handlers does not wait for it.
            from pebble import ProcessPool  # noqa: PLC0415

            # Not fork: the pod has threads and connections that a child must not share.
            self._pool = ProcessPool(
                max_workers=self._children,
                context=multiprocessing.get_context("spawn"),
                initializer=_die_with_parent,
                initargs=[os.getpid()],
            )
        return self._pool


def run_in_child(module: str, name: str, arguments: tuple[Any, ...]) -> bytes:
    """In the child: find the function behind its Handler, call it, and pickle what it gives."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    function = found.function if isinstance(found, Handler) else found
    try:
        return pickle.dumps(function(*arguments))
    except Exception as error:
        # One that the pod could not unpickle would break the pool, and with it every job after.
        if _crosses_over(error):
            raise
        raise ChildError(f"{type(error).__qualname__}: {error}") from error


class ChildError(Exception):
    """What went wrong in a child, where the error itself cannot cross over."""


def _crosses_over(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def _die_with_parent(parent: int) -> None:
    """In the child: an interrupt is the pod's to handle, and its death is ours."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
