"""Drain: how fast waiting jobs are worked, alone and with much else in the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext

import asyncpg

from bench.contenders import Contender
from bench.harness import Bench
from bench.words import CEILING, CPU_PER_JOB, MICROSECONDS, PGQUEUER, RATE, ROTA, beside

Seed = Callable[[asyncpg.Connection, int], Awaitable[None]]


async def measure(bench: Bench) -> None:
    """Round by round: plain, two processes, crowded tables; then long ones with an old snapshot."""
    crowds = await _seed_crowds(bench)
    for number in range(bench.short_runs):
        await plain_round(bench)
        for contender in bench.named(ROTA, PGQUEUER):
            database = await bench.database(contender)
            drained = await bench.drain(contender, database, jobs=bench.sizes.drain, number=2)
            bench.record(bench.works.pair, contender, drained.rate, RATE)
        await _crowded_round(bench, crowds, plain_first=number % 2 == 0)
    for _, database in crowds:
        await bench.server.drop(database)
    for _ in range(bench.runs):
        for contender in bench.named(ROTA, CEILING):
            await _snapshot_round(bench, contender)


async def plain_round(bench: Bench) -> None:
    """One plain drain by each contender; CPU is read off the same drain."""
    for contender in bench.contenders:
        database = await bench.database(contender)
        drained = await bench.drain(contender, database, jobs=bench.sizes.drain)
        if "drain" in bench.selected:
            bench.record(bench.works.plain, contender, drained.rate, RATE)
        if "python" in bench.selected:
            bench.record(CPU_PER_JOB, contender, drained.cpu_per_job * 1e6, MICROSECONDS)


async def _seed_crowds(bench: Bench) -> list[tuple[str, str]]:
    """A database for each crowded case of Rota, as (work, database)."""
    works, sizes, crowds = bench.works, bench.sizes, []
    for contender in bench.named(ROTA):
        store = contender.store
        cases: list[tuple[str, str, Seed, int]] = [
            (works.future, "future", store.add_future, sizes.crowd),
            (works.ended, "ended", store.add_ended, sizes.crowd),
            (works.foreign, "foreign", store.add_foreign, sizes.crowd),
        ]
        for work, case, seed, jobs in cases:
            bench.say(f"seeding {jobs:,} jobs: {work}")
            database = await bench.database(contender, case)
            async with bench.connected(database) as connection:
                await seed(connection, jobs)
                await store.vacuum(connection)
            crowds.append((work, database))
    return crowds


async def _crowded_round(bench: Bench, crowds: list[tuple[str, str]], *, plain_first: bool) -> None:
    """The drain of a backlog, and with each crowd in the tables, each with a plain one beside it.

    Beside it, and now before, now after: one run takes a second or two, and what else the machine
    does changes by more than the difference that is looked for.
    """
    jobs, waiting = bench.sizes.drain, bench.sizes.backlog
    for contender in bench.named(ROTA):
        plain = await bench.database(contender)
        for work, database in [(bench.works.backlog, plain), *crowds]:
            for crowded in (False, True) if plain_first else (True, False):
                drained = await bench.drain(
                    contender,
                    database if crowded else plain,
                    jobs=jobs,
                    waiting=waiting if crowded and database == plain else None,
                    clear=not crowded or database == plain,
                )
                bench.record(work if crowded else beside(work), contender, drained.rate, RATE)


async def _snapshot_round(bench: Bench, contender: Contender) -> None:
    """A longer drain, plain and with a transaction open that began before it."""
    database = await bench.database(contender)
    for work, held in ((bench.works.long, False), (bench.works.snapshot, True)):
        async with _snapshot(bench, database) if held else nullcontext():
            drained = await bench.drain(contender, database, jobs=bench.sizes.long)
        bench.record(work, contender, drained.rate, RATE)


@asynccontextmanager
async def _snapshot(bench: Bench, database: str) -> AsyncIterator[None]:
    """A transaction that has read once and then idles, as a forgotten report does."""
    async with (
        bench.connected(database) as connection,
        connection.transaction(isolation="repeatable_read"),
    ):
        await connection.fetchval("SELECT count(*) FROM pg_class")
        yield
