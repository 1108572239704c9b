"""Waiting for processes to be gone, without guessing how long that takes."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterable

PATIENCE = 20.0


class Watch:
    """Processes, held on to while they live: a pid alone may be given to another."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._held = {pid: held for pid in pids if (held := _hold(pid)) is not None}

    def wait_until_gone(self, patience: float = PATIENCE) -> None:
        try:
            for pid, held in self._held.items():
                assert _ends(pid, held, patience), f"process {pid} is still there"
        finally:
            for held in self._held.values():
                if held >= 0:
                    os.close(held)
            self._held = {}


def processes_that_name(text: str) -> list[int]:
    """Return the pids of all processes with this text in their command line (Linux)."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if text.encode() in file.read():
                        found.append(int(entry))
            except OSError:
                continue
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _hold(pid: int) -> int | None:
    """Return a handle on the process, -1 where the system has none, or None if it is gone."""
    if sys.platform != "linux":
        return -1 if is_alive(pid) else None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _ends(pid: int, held: int, patience: float) -> bool:
    if held >= 0:
        return bool(select.select([held], [], [], patience)[0])
    for _ in range(round(patience / 0.01)):
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False
