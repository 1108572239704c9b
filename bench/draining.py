"""A drain: pods work what waits, and what they noted is read off.

The clock starts when warm pods, with nothing claimed, are let go on; it stops with the acknowledged
finalization that ends the work. Both are read by the pods themselves: nothing is polled for a time.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.contenders import LANES, SLOTS, Contender
from bench.process import Child, ChildFailed

LOOK = 0.02
"""Seconds between two looks at the shared count, to learn that a drain is over, not when."""
STALLED = 60.0
SETTLE = 0.1
"""Seconds in which a claim that passed the gate before it closed comes back empty."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The timed part of a drain."""

    jobs: int
    seconds: float
    cpu: float
    rss: list[tuple[int, int]]
    """Of the first pod: jobs finalized, and bytes resident then."""

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_per_job(self) -> float:
        return self.cpu / self.jobs


class Pods:
    """Pods of one contender on one database, at work once told to go."""

    def __init__(self, children: list[Child], shared: mmap.mmap) -> None:
        self.children = children
        self._shared = shared

    async def go(self) -> None:
        """Let all begin at once."""
        await asyncio.gather(*(child.ask("go") for child in self.children))

    async def hold(self) -> None:
        """Keep all from claiming; for pods that have nothing claimed."""
        await asyncio.gather(*(child.ask("hold") for child in self.children))
        await asyncio.sleep(SETTLE)

    async def drain(self, jobs: int) -> Drained:
        """Let pods that are held go on, until so many jobs are finalized."""
        before = self._count()
        await asyncio.gather(*(child.ask("poised") for child in self.children))
        await asyncio.gather(*(child.ask("release") for child in self.children))
        await self.reach(before + jobs)
        reports = [await child.ask("report") for child in self.children]
        return read_off([report["acks"] for report in reports], jobs, reports[0]["rss"])

    async def reach(self, total: int) -> None:
        """Wait until all pods together have finalized so many jobs."""
        seen, moved = -1, time.monotonic()
        while (count := self._count()) < total:
            if count > seen:
                seen, moved = count, time.monotonic()
            elif time.monotonic() - moved > STALLED:
                raise ChildFailed(f"no job ended for {STALLED:g} s, after {count:,} of {total:,}")
            for child in self.children:
                child.check()
            await asyncio.sleep(LOOK)

    def _count(self) -> int:
        return sum(struct.unpack(f"{len(self.children)}q", self._shared[: 8 * len(self.children)]))


@asynccontextmanager
async def pods(
    contender: Contender,
    dsn: str,
    *,
    number: int = 1,
    kind: str = "noop",
    rss_every: int = 0,
    uncapped: bool = False,
) -> AsyncIterator[Pods]:
    """Start so many pods, connected and not yet at work; they are gone afterwards."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(8 * number)
        shared = mmap.mmap(file.fileno(), 0)
        common = {
            **contender.options, "role": "pod", "dsn": dsn, "kind": kind, "tally": file.name,
            "slots": SLOTS, "cap": SLOTS * number, "lanes": LANES, "rss_every": rss_every,
            "uncapped": uncapped,
        }  # fmt: skip
        children: list[Child] = []
        try:
            for slot in range(number):
                options = {**common, "slot": slot}
                children.append(await Child.start(contender.python, contender.module, options))
            yield Pods(children, shared)
            for child in children:
                await child.stop()
        finally:
            for child in children:
                await child.kill()


def read_off(acks: list[list[float]], jobs: int, rss: list[Any]) -> Drained:
    """The timed part, from what each pod noted as (time, total, CPU), the first at its start. Pure."""
    began = min(noted[0] for noted in acks)
    events = sorted(
        (at, after - before) for noted in acks for (_, before, _), (at, after, _) in pairwise(_notes(noted))
    )
    total, ended = 0.0, began
    for at, more in events:
        total, ended = total + more, at
        if total >= jobs:
            break
    cpu = sum(_cpu_at(noted, ended) - noted[2] for noted in acks)
    return Drained(int(total), ended - began, cpu, [tuple(each) for each in rss])


def _cpu_at(noted: list[float], at: float) -> float:
    """What a pod had used at its last note until then."""
    return [cpu for when, _, cpu in _notes(noted) if when <= at][-1]


def _notes(noted: list[float]) -> Iterator[tuple[float, float, float]]:
    return zip(noted[0::3], noted[1::3], noted[2::3], strict=True)
