"""The loops that enqueue, the same for all contenders: only the calls differ.

Payloads are made before the clock starts; what a call does with them is timed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from bench.pods.control import serve

WARM = 20
"""Untimed jobs before each measurement."""


class Producer(Protocol):
    """One contender's way to enqueue."""

    async def open(self) -> None:
        """Connect."""

    def payload(self, number: int) -> Any:
        """What a caller would hand over."""

    async def enqueue(self, payload: Any) -> None:
        """One job."""

    async def enqueue_many(self, payloads: list[Any]) -> None:
        """Many jobs in one call."""

    async def commit(self, number: int) -> int:
        """One job in a transaction of our own; CLOCK_MONOTONIC when its COMMIT was answered."""

    async def stop(self) -> None:
        """Disconnect."""


async def serve_producer(producer: Producer) -> None:
    """Be a producer until told to stop."""
    await producer.open()

    async def one_by_one(jobs: int) -> dict[str, Any]:
        payloads = await _prepared(producer, jobs)
        began = time.monotonic()
        for payload in payloads:
            await producer.enqueue(payload)
        return {"seconds": time.monotonic() - began}

    async def concurrent(jobs: int, callers: int) -> dict[str, Any]:
        payloads = await _prepared(producer, jobs, callers)
        left = iter(payloads)

        async def call() -> None:
            for payload in left:
                await producer.enqueue(payload)

        began = time.monotonic()
        await asyncio.gather(*(call() for _ in range(callers)))
        return {"seconds": time.monotonic() - began}

    async def bulk(jobs: int, warm: int = WARM) -> dict[str, Any]:
        if warm:
            await producer.enqueue_many([producer.payload(number) for number in range(warm)])
        payloads = [producer.payload(number) for number in range(jobs)]
        began = time.monotonic()
        await producer.enqueue_many(payloads)
        return {"seconds": time.monotonic() - began}

    async def commit(number: int) -> dict[str, Any]:
        return {"at": await producer.commit(number)}

    await serve(
        {
            "one_by_one": one_by_one,
            "concurrent": concurrent,
            "bulk": bulk,
            "commit": commit,
            "stop": producer.stop,
        }
    )


async def _prepared(producer: Producer, jobs: int, callers: int = 1) -> list[Any]:
    """Payloads, after a few untimed jobs by as many callers: every connection is warm."""
    for _ in range(-(-WARM // callers)):
        await asyncio.gather(*(producer.enqueue(producer.payload(0)) for _ in range(callers)))
    return [producer.payload(number) for number in range(jobs)]
