"""Rota: a real pod and a real producer, with everything at its defaults but the queue's cap.

The pod's own count of acknowledged finalizations is what it tells: `JobsEnded`.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from typing import Any

import asyncpg
import uvloop
from pydantic import BaseModel

from bench.pods.control import options
from bench.pods.gate import Gate
from bench.pods.pod import serve_pod
from bench.pods.producer import serve_producer
from bench.pods.tally import Tally
from rota import App, Context
from rota.events import Event, JobsEnded
from rota.logs import setup_logging
from rota.runtime.pod import Pod
from rota.settings import LogSettings


class Number(BaseModel):
    """A small payload."""

    n: int


class RotaPod:
    """One pod that serves one queue and runs one kind."""

    def __init__(self, dsn: str, tally: Tally, gate: Gate, *, slots: int, kind: str) -> None:
        self._tally = tally
        self._gate = gate
        self._app = App(database_url=dsn, queues=["bench"])
        self._app.queue("bench", max_workers=slots)

        async def stamp(ctx: Context, number: Number) -> None:
            tally.start(number.n)

        self._app.job(kind=kind, queue="bench")(stamp if kind == "stamp" else noop)

    async def open(self) -> None:
        await self._app.open()
        self._count_what_ends()
        self._pass_the_gate()

    async def go(self) -> None:
        self._enough = asyncio.Event()
        self._running = asyncio.create_task(Pod(self._app).run(self._enough))
        self._running.add_done_callback(_speak_up)

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


async def noop(ctx: Context, number: Number) -> None:
    """Do nothing, which leaves only what Rota does."""


def _speak_up(running: asyncio.Task[None]) -> None:
    """A pod that ends by itself must not look like one that is slow."""
    if not running.cancelled() and (error := running.exception()):
        traceback.print_exception(error)
        os._exit(3)


async def main() -> None:
    told = options()
    setup_logging(LogSettings())
    if told["role"] == "producer":
        await serve_producer(RotaProducer(told["dsn"]))
        return
    tally = Tally(told["tally"], told["slot"], told["rss_every"])
    gate = Gate()
    pod = RotaPod(told["dsn"], tally, gate, slots=told["slots"], kind=told["kind"])
    await serve_pod(pod, tally, gate)


if __name__ == "__main__":
    uvloop.run(main())
