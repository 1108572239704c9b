"""What a pod says of itself with `rota worker --report`: one JSON line, so often, on stdout."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from rota.clock import Clock
from rota.events import Event, JobsEnded, PodRegistered
from rota.runtime.pod import Pod
from rota.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue on one pod: its slots there, and how many runs ended how since the pod's start."""

    slots: int
    in_use: int
    ended: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodReport:
    """A pod, as it sees itself."""

    id: str
    name: str
    pid: int
    queues: Mapping[str, QueueReport]

    @property
    def slots(self) -> int:
        return sum(queue.slots for queue in self.queues.values())

    @property
    def in_use(self) -> int:
        return sum(queue.in_use for queue in self.queues.values())

    def ended(self, *outcomes: str) -> int:
        """Runs that ended in one of these outcomes."""
        return sum(queue.ended.get(outcome, 0) for queue in self.queues.values() for outcome in outcomes)

    def line(self) -> str:
        """As one line of JSON."""
        return orjson.dumps(self).decode()

    @classmethod
    def from_line(cls, line: str | bytes) -> PodReport:
        told: dict[str, Any] = orjson.loads(line)
        queues = {name: QueueReport(**queue) for name, queue in told["queues"].items()}
        return cls(told["id"], told["name"], told["pid"], queues)


class Tally(Telemetry):
    """Tells what happened like any other, and counts how runs ended, by queue and outcome."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.pod: UUID | None = None
        self.ended: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def tell(self, event: Event) -> None:
        super().tell(event)
        if isinstance(event, JobsEnded):
            self.ended[event.queue].update(run.outcome for run in event.runs)
        elif isinstance(event, PodRegistered):
            self.pod = event.pod


async def print_reports(pod: Pod, tally: Tally, *, every: float) -> None:
    """Print one now and then, from when the pod has joined, until cancelled."""
    await pod.started.wait()
    while True:
        print_report(pod, tally)
        await asyncio.sleep(every)


def print_report(pod: Pod, tally: Tally) -> None:
    """Say how the pod stands, if it has ever joined."""
    if tally.pod is None:
        return
    status = pod.status()
    queues = {
        name: QueueReport(use.target, use.in_use, tally.ended[name]) for name, use in status.queues.items()
    }
    print(PodReport(str(tally.pod), status.name, os.getpid(), queues).line(), flush=True)
