"""Enqueue: one by one, by concurrent callers, and in bulk; each contender by its own API.

A commit is as slow as the disk is at that moment, so contenders take turns many times in a run.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from bench.contenders import Contender
from bench.harness import Bench
from bench.words import PGQUEUER, RATE, ROTA


async def measure(bench: Bench) -> None:
    """Every way, round by round."""
    sizes, works = bench.sizes, bench.works
    for _ in range(bench.runs):
        await _take_turns(bench, works.one_by_one, "one_by_one", jobs=sizes.one_by_one)
        await _take_turns(bench, works.concurrent, "concurrent", jobs=sizes.concurrent, callers=sizes.callers)
        await _take_turns(bench, works.bulk, "bulk", jobs=sizes.bulk)


async def _take_turns(bench: Bench, work: str, do: str, *, jobs: int, **arguments: Any) -> None:
    """One run of one way: the same number of jobs by each, in turns."""
    contenders = bench.named(ROTA, PGQUEUER)
    seconds = [0.0 for _ in contenders]
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(
                bench.producer(contender, await _empty(bench, contender), **arguments)
            )
            for contender in contenders
        ]
        for _ in range(bench.sizes.turns):
            for place, producer in enumerate(producers):
                seconds[place] += (await producer.ask(do, jobs=jobs, **arguments))["seconds"]
    for contender, spent in zip(contenders, seconds, strict=True):
        bench.record(work, contender, jobs * bench.sizes.turns / spent, RATE)


async def _empty(bench: Bench, contender: Contender) -> str:
    """The contender's plain database, without a job in it."""
    database = await bench.database(contender)
    async with bench.connected(database) as connection:
        await contender.store.clear(connection)
        await contender.store.vacuum(connection)
    return database
