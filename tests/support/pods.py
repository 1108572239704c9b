"""Pods inside the test's own process: started, waited for, drained and looked into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rota.events import JobsEnded, Run
from rota.runtime.app import App
from rota.runtime.job import Job
from rota.runtime.pod import Pod, QueueUse
from rota.settings import Settings
from rota.testing import Recorder
from tests.support.until import until

PATIENCE = 10.0
"""Seconds within which anything a test waits for must have come."""

QUEUE = "work"
SOON = {"beat": 0.1, "ttl": 3.0, "grace": 2.0, "poll": 0.05}


def make_app(
    dsn: str,
    *queues: str,
    database: dict[str, Any] | None = None,
    lease: dict[str, Any] | None = None,
    lead: bool = True,
    **pod: Any,
) -> App:
    """An app on this database with quick beats, that serves these queues."""
    settings = Settings.for_tests().with_database(url=dsn, **(database or {}))
    settings = settings.model_copy(
        update={
            "lead": lead,
            "pod": replace(settings.pod, **{**SOON, **pod}),
            "lease": replace(settings.lease, **(lease or {})),
        }
    )
    return App(settings, queues=queues or (QUEUE,))


@dataclass
class RunningPod:
    """A pod that runs as a task."""

    pod: Pod
    task: asyncio.Task[None]
    wish_to_stop: asyncio.Event = field(repr=False)

    def use(self, queue: str = QUEUE) -> QueueUse:
        """How many slots of a queue it may fill and fills."""
        return self.pod.status().queues[queue]

    async def settled(self) -> None:
        """Wait until it has beaten twice and no claim is under way: what it has not begun it will not."""
        await self._next_beat()
        await self._next_beat()
        await until("claims are answered", self._no_claim_is_under_way)

    async def _next_beat(self) -> None:
        heard = self.pod._membership._heard_at
        await until("a beat is answered", lambda: self.pod._membership._heard_at > heard)

    def _no_claim_is_under_way(self) -> bool:
        return all(use.in_use == use.running for use in self.pod.status().queues.values())

    async def stop(self) -> None:
        """Drain it and wait until it has gone; what it raised is raised here."""
        self.wish_to_stop.set()
        async with asyncio.timeout(PATIENCE):
            await self.task


async def start_pod(app: App, *queues: str) -> RunningPod:
    """A pod that has registered; whoever starts it stops it."""
    return await run_pod(Pod(app, queues or None))


async def run_pod(pod: Pod) -> RunningPod:
    """Have a pod run, and wait until it has registered or failed."""
    stop = asyncio.Event()
    task = asyncio.create_task(pod.run(stop))
    registered = asyncio.create_task(pod.started.wait())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({task, registered}, return_when=asyncio.FIRST_COMPLETED)
    registered.cancel()
    if task.done():
        await task
    return RunningPod(pod, task, stop)


@asynccontextmanager
async def running(app: App, *queues: str) -> AsyncIterator[RunningPod]:
    """An open app and a pod of it, drained in the end."""
    async with app:
        started = await start_pod(app, *queues)
        try:
            yield started
        finally:
            await started.stop()


def recorded(app: App) -> Recorder:
    """What the app tells, from now on."""
    return Recorder().listen_to(app)


async def soon(event: asyncio.Event) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(PATIENCE):
        await event.wait()


async def ended(told: Recorder, job: Job, times: int = 1) -> Run:
    """The run of this job whose outcome the database has acknowledged, the first or a later one."""
    runs: list[Run] = []

    def look(event: JobsEnded) -> bool:
        runs.extend(run for run in event.runs if run.id == job.id)
        return len(runs) >= times

    async with asyncio.timeout(PATIENCE):
        await told.wait_for(JobsEnded, look)
    return runs[times - 1]
