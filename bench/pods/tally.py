"""What a pod notes while it works: how many jobs are finalized, when, and at what cost.

A job counts once the database has acknowledged its end. Times are CLOCK_MONOTONIC, which all
processes of a machine share; CPU is that of this process, user and system.
"""

from __future__ import annotations

import mmap
import os
import resource
import struct
import time
from array import array


class Tally:
    """The count of one pod, shared with the harness; the rest is handed over at the end."""

    def __init__(self, path: str, slot: int, rss_every: int = 0) -> None:
        with open(path, "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self._slot = slot
        self._rss_every = rss_every
        self.total = 0
        self.acks = array("d")
        self.rss: list[tuple[int, int]] = []
        self.starts: list[tuple[int, int]] = []

    def add(self, jobs: int) -> None:
        """So many more jobs are finalized."""
        before, self.total = self.total, self.total + jobs
        self.acks.extend((time.monotonic(), self.total, time.process_time()))
        if self._rss_every and before // self._rss_every < self.total // self._rss_every:
            self.rss.append((self.total, resident()))
        struct.pack_into("q", self._shared, 8 * self._slot, self.total)

    def begin(self) -> None:
        """The clock starts; what was noted so far is forgotten, the first note is of now."""
        self.acks = array("d", (time.monotonic(), self.total, time.process_time()))

    def start(self, number: int) -> None:
        """The handler of this job has begun."""
        self.starts.append((number, time.monotonic_ns()))


def resident() -> int:
    """Bytes of memory this process has in RAM; where there is no /proc, the most it ever had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
