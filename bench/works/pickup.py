"""Pickup: from the commit of an enqueue to the first line of the handler, the pod having been idle.

Both ends are CLOCK_MONOTONIC: one read by the producer when its COMMIT is answered, the other by
the pod. The contenders take turns job by job, so each is idle while the others are measured.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count

from bench.contenders import Contender
from bench.draining import Pods, pods
from bench.figures import percentile
from bench.harness import Bench
from bench.process import Child
from bench.words import MILLISECONDS, PICKUP_P50, PICKUP_P95

IDLE = 0.12
"""Seconds a pod is left alone before a job; longer than any contender's own timers for a batch."""
WARM = 10


async def measure(bench: Bench) -> None:
    """All contenders' pods at once, nearly always idle."""
    async with AsyncExitStack() as stack:
        pairs = [await _pair(bench, _idle(contender), stack) for contender in bench.contenders]
        numbers = count()
        await _sample(pairs, WARM, numbers)
        for _ in range(bench.runs):
            for (contender, _, _), waits in zip(
                pairs, await _sample(pairs, bench.sizes.samples, numbers), strict=True
            ):
                bench.record(PICKUP_P50, contender, percentile(waits, 0.50), MILLISECONDS)
                bench.record(PICKUP_P95, contender, percentile(waits, 0.95), MILLISECONDS)


def _idle(contender: Contender) -> Contender:
    return replace(contender, options={**contender.options, **contender.idle_options})


async def _pair(bench: Bench, contender: Contender, stack: AsyncExitStack) -> tuple[Contender, Child, Pods]:
    """A producer and a pod at work."""
    database = await bench.database(contender, "pickup")
    producer = await stack.enter_async_context(bench.producer(contender, database))
    pod = await stack.enter_async_context(pods(contender, bench.server.dsn(database), kind="stamp"))
    await pod.go()
    return contender, producer, pod


async def _sample(
    pairs: list[tuple[Contender, Child, Pods]], samples: int, numbers: count[int]
) -> list[list[float]]:
    """Milliseconds waited, for each contender."""
    commits: list[dict[int, int]] = [{} for _ in pairs]
    for _ in range(samples):
        for (_, producer, _), committed in zip(pairs, commits, strict=True):
            await asyncio.sleep(IDLE / len(pairs))
            number = next(numbers)
            committed[number] = (await producer.ask("commit", number=number))["at"]
    await asyncio.sleep(1.0)
    return [await _waits(pod, committed) for (_, _, pod), committed in zip(pairs, commits, strict=True)]


async def _waits(pod: Pods, committed: dict[int, int]) -> list[float]:
    starts = dict((await pod.children[0].ask("starts"))["starts"])
    return [(starts[number] - at) / 1e6 for number, at in committed.items()]
