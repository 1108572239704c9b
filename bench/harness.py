"""One run of the bench: who takes part, on which server, how often, and what came out so far."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg
from rich.console import Console

from bench.contenders import Contender
from bench.draining import Drained, pods
from bench.figures import Figures
from bench.process import Child
from bench.report import shown
from bench.server import Server
from bench.sizes import Sizes
from bench.words import Works


@dataclass(slots=True)
class Bench:
    """What every work needs."""

    server: Server
    contenders: list[Contender]
    runs: int
    sizes: Sizes
    selected: frozenset[str]
    console: Console
    figures: Figures = field(default_factory=Figures)
    began: float = field(default_factory=time.monotonic)

    @property
    def works(self) -> Works:
        return Works(self.sizes)

    @property
    def short_runs(self) -> int:
        """A short drain takes a second, and a noisy one is seen for what it is among many."""
        return 2 * self.runs + 1 if self.runs > 1 else 1

    def named(self, *names: str) -> list[Contender]:
        """Those of these contenders that take part."""
        return [contender for contender in self.contenders if contender.name in names]

    def record(self, work: str, contender: Contender, value: float, unit: str) -> None:
        """Note one run's figure, and say it."""
        figure = self.figures.add(work, contender.name, value, unit)
        run = f"run {len(figure.values)}"
        self.say(f"{work:<40} {contender.name:<9} {run:<6} {shown(value, unit):>14}")

    def say(self, line: str) -> None:
        """One line of progress, with the time since the start and the load of the machine."""
        elapsed = time.monotonic() - self.began
        load = os.getloadavg()[0]
        self.console.print(f"[dim]{elapsed:6.1f} s  load {load:4.1f}[/dim]  {line}", highlight=False)

    async def database(self, contender: Contender, case: str = "plain") -> str:
        """A contender's database for a case, its schema ready; copied from a template."""
        template = f"template_{contender.store.name}"
        if await self.server.create(template):
            await contender.store.install(self.server.dsn(template))
        name = f"{contender.name}_{case}"
        await self.server.create(name, template)
        return name

    @asynccontextmanager
    async def connected(self, database: str) -> AsyncIterator[asyncpg.Connection]:
        """A connection for seeding and looking."""
        connection = await self.server.connect(database)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def producer(self, contender: Contender, database: str, callers: int = 1) -> AsyncIterator[Child]:
        """A process that enqueues."""
        dsn = self.server.dsn(database)
        options = {**contender.options, "role": "producer", "dsn": dsn, "callers": callers}
        child = await Child.start(contender.python, contender.module, options)
        try:
            yield child
            await child.stop()
        finally:
            await child.kill()

    async def drain(
        self,
        contender: Contender,
        database: str,
        *,
        jobs: int,
        number: int = 1,
        waiting: int | None = None,
        clear: bool = True,
        rss_every: int = 0,
        uncapped: bool = False,
    ) -> Drained:
        """Have so many pods drain so many jobs, of as many or more that wait."""
        store, warm = contender.store, self.sizes.warm * number
        dsn = self.server.dsn(database)
        async with (
            self.connected(database) as connection,
            pods(contender, dsn, number=number, rss_every=rss_every, uncapped=uncapped) as working,
        ):
            if clear:
                await store.clear(connection)
            await store.add_ready(connection, warm)
            await working.go()
            await working.reach(warm)
            await working.hold()
            await store.add_ready(connection, waiting or jobs)
            await store.vacuum(connection)
            # Else a drain would pay for writing out what was seeded, its own or another's, or
            # not, as it happens; now each pays for the first touch of every page it changes.
            await connection.execute("CHECKPOINT")
            await store.notify(connection)
            return await working.drain(jobs)
