"""The app of the crash tests: handlers that write down every run, and end as the test wants.

A pod in a process of its own and one inside the test run the same handlers. What they write down
is a file with a line per run, which survives any way a process can end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import NamedTuple

from rota import App, Cancelled, Context, Dead, Fixed, Release

QUEUE = "crash"
_LOOK_EVERY = 0.005
_WORK = 0.005


class Run(NamedTuple):
    """One run that began."""

    job: int
    claim: int
    process: int


class Notebook:
    """A directory: one file of runs per process, and a door that handlers may wait at."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._door = directory / "door"
        self._file = os.open(directory / f"runs-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, ctx: Context) -> None:
        """Write a run down; unbuffered, so that it is there whatever becomes of this process."""
        os.write(self._file, b"%d %d %d\n" % (ctx.id, ctx.claim, os.getpid()))

    def runs(self) -> list[Run]:
        """Every run of every process so far."""
        lines = (line for file in self._directory.glob("runs-*") for line in file.read_text().splitlines())
        return [Run(*map(int, line.split())) for line in lines]

    def open_door(self) -> None:
        self._door.touch()

    def shut_door(self) -> None:
        self._door.unlink(missing_ok=True)

    async def door_opens(self) -> None:
        while not self._door.exists():  # noqa: ASYNC110 - it may be another process that opens it
            await asyncio.sleep(_LOOK_EVERY)

    def close(self) -> None:
        os.close(self._file)


def add_handlers(app: App, notebook: Notebook, *, slots: int, expendable: bool = False) -> None:
    """Register the kinds that crash tests use; poison only where the process may die of it."""
    app.queue(QUEUE, max_workers=slots)
    _add_plain(app, notebook)
    _add_stubborn(app, notebook)
    _add_ends_as(app, notebook)
    if expendable:
        _add_poison(app, notebook)


def _add_plain(app: App, notebook: Notebook) -> None:
    @app.job(queue=QUEUE)
    async def note(ctx: Context) -> int:
        notebook.write(ctx)
        return ctx.claim

    @app.job(queue=QUEUE)
    async def brief(ctx: Context) -> int:
        notebook.write(ctx)
        await asyncio.sleep(_WORK)
        return ctx.claim

    @app.job(queue=QUEUE)
    async def gated(ctx: Context) -> int:
        notebook.write(ctx)
        await notebook.door_opens()
        return ctx.claim


def _add_stubborn(app: App, notebook: Notebook) -> None:
    @app.job(queue=QUEUE)
    async def endless_at_first(ctx: Context) -> int:
        notebook.write(ctx)
        if ctx.claim == 1:
            await asyncio.Event().wait()
        return ctx.claim

    @app.job(queue=QUEUE)
    async def deaf_at_first(ctx: Context) -> int:
        """Hears no cancellation, as code that catches everything."""
        notebook.write(ctx)
        while ctx.claim == 1:
            try:
                await notebook.door_opens()
                break
            except asyncio.CancelledError:
                continue
        return ctx.claim


def _add_poison(app: App, notebook: Notebook) -> None:
    @app.job(queue=QUEUE)
    async def poison(ctx: Context) -> None:
        """Takes its process with it, as one that eats all memory."""
        notebook.write(ctx)
        os.kill(os.getpid(), signal.SIGKILL)


def _add_ends_as(app: App, notebook: Notebook) -> None:
    endings: dict[str, Exception] = {
        "release": Release(),
        "retry": RuntimeError("fails once"),
        "dead": Dead("will never do"),
        "cancelled": Cancelled("not wanted"),
    }

    @app.job(queue=QUEUE, retry=Fixed(0.01))
    async def ends_as(ctx: Context, outcome: str) -> int:
        """The first run ends as told, later ones wait at the door."""
        notebook.write(ctx)
        if ctx.claim > 1:
            await notebook.door_opens()
        elif outcome in endings:
            raise endings[outcome]
        return ctx.claim
