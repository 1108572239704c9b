"""Rota: a real pod and a real producer, with everything at its defaults but the queue's cap.

The pod's own count of acknowledged finalizations is what it tells: `JobsEnded`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import uvloop
from pydantic import BaseModel

from bench.pods.control import options, speak_up
from bench.pods.gate import Gate
from bench.pods.pod import serve_pod
from bench.pods.producer import serve_producer
from bench.pods.tally import Tally
from rota import App, Context
from rota.cluster.slots import Slots
from rota.events import Event, JobsEnded
from rota.logs import setup_logging
from rota.runtime.pod import Pod
from rota.settings import LogSettings, PodSettings, Settings
from rota.storage.queues import Queues


class Number(BaseModel):
    """A small payload."""

    n: int


class RotaPod:
    """One pod that serves one queue and runs one kind."""

    def __init__(self, dsn: str, tally: Tally, gate: Gate, *, slots: int, cap: int, kind: str) -> None:
        self._tally = tally
        self._gate = gate
        settings = Settings.load(pod=PodSettings(capacity=slots))
        self._app = App(settings, database_url=dsn, queues=["bench"])
        self._cap = cap

        async def stamp(ctx: Context, number: Number) -> None:
            tally.start(number.n)

        self._app.job(kind=kind, queue="bench")(stamp if kind == "stamp" else noop)

    async def open(self) -> None:
        await self._app.open()
        # The row outlives a drain, and another number of pods has another cap.
        queues = Queues(self._app.database)
        await queues.declare_queues({"bench": (self._cap, None)})
        await queues.change_queue("bench", max_workers=self._cap)
        self._count_what_ends()
        self._pass_the_gate()

    async def go(self) -> None:
        self._enough = asyncio.Event()
        self._running = asyncio.create_task(Pod(self._app).run(self._enough))
        self._running.add_done_callback(speak_up)

    async def stop(self) -> None:
        self._enough.set()
        await self._running
        await self._app.close()

    def _count_what_ends(self) -> None:
        telemetry, tally = self._app.telemetry, self._tally
        tell = telemetry.tell

        def tell_and_count(event: Event) -> None:
            tell(event)
            if type(event) is JobsEnded:
                tally.add(len(event.runs))

        telemetry.tell = tell_and_count  # type: ignore[method-assign]

    def _pass_the_gate(self) -> None:
        jobs, gate = self._app.jobs, self._gate
        work = jobs.work_jobs

        async def pass_and_work(*arguments: Any, **named: Any) -> list[Any]:
            await gate.passed()
            return await work(*arguments, **named)

        jobs.work_jobs = pass_and_work  # type: ignore[method-assign]


class RotaProducer:
    """An open app that only enqueues."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._app = App(database_url=dsn)
        self._noop = self._app.job(kind="noop", queue="bench")(noop)
        self._stamp = self._app.job(kind="stamp", queue="bench")(noop)

    async def open(self) -> None:
        await self._app.open()
        self._connection = await asyncpg.connect(self._dsn)

    def payload(self, number: int) -> Number:
        return Number(n=number)

    async def enqueue(self, payload: Number) -> None:
        await self._noop.enqueue(payload)

    async def enqueue_many(self, payloads: list[Number]) -> None:
        await self._app.enqueue_many([self._noop.request(payload) for payload in payloads])

    async def commit(self, number: int) -> int:
        transaction = self._connection.transaction()
        await transaction.start()
        await self._stamp.enqueue(Number(n=number), connection=self._connection)
        await transaction.commit()
        return time.monotonic_ns()

    async def stop(self) -> None:
        await self._connection.close()
        await self._app.close()


def count_locally(slots: int) -> None:
    """Claim as a pod would that had no cap to keep: a plain count of its own runs, and nobody asks it."""
    used = 0

    def take(self: Slots, queue: str, giving: int, wanting: int) -> int:
        nonlocal used
        most = max(0, min(wanting, slots - used + giving))
        used += max(giving, most) - giving
        return most

    def give(self: Slots, queue: str, taken: int, kept: int, *, flew: bool) -> bool:
        nonlocal used
        used += kept - taken
        return False

    Slots.take = take  # type: ignore[method-assign]
    Slots.give = give  # type: ignore[method-assign]
    Slots.may_take = lambda self, queue: slots - used  # type: ignore[method-assign]


async def noop(ctx: Context, number: Number) -> None:
    """Do nothing, which leaves only what Rota does."""


async def main() -> None:
    told = options()
    setup_logging(LogSettings())
    if told["role"] == "producer":
        await serve_producer(RotaProducer(told["dsn"]))
        return
    tally = Tally(told["tally"], told["slot"], told["rss_every"])
    gate = Gate()
    if told["uncapped"]:
        count_locally(told["slots"])
    pod = RotaPod(told["dsn"], tally, gate, slots=told["slots"], cap=told["cap"], kind=told["kind"])
    await serve_pod(pod, tally, gate)


if __name__ == "__main__":
    uvloop.run(main())
