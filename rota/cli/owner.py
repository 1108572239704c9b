"""Ends this process when the one that started it is gone, whatever killed that.

Standard input is a pipe that only the owner holds open; it breaks with the owner's end.
"""

from __future__ import annotations

import os
import signal
import threading

STDIN = 0


def end_with_owner() -> None:
    """From here on, do not outlive whoever holds the other end of standard input."""
    threading.Thread(target=_watch, name="owner", daemon=True).start()


def _watch() -> None:
    while os.read(STDIN, 1024):
        pass
    # Not a drain: with the owner the database may be gone too, and nothing may stay behind.
    os.kill(os.getpid(), signal.SIGKILL)
