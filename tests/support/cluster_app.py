"""The app of the cluster scenarios, served by `rota worker`.

Its handlers write down when they begin and end, in a file per process that survives any way a
process can end. The database runs on the same machine, so its clock is theirs. Each returns its
claim number, by which an outcome tells whose it is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rota import App, Context

DIRECTORY = "CLUSTER_DIRECTORY"
POD = "CLUSTER_POD"
CAPS = "CLUSTER_CAPS"
"""The queues and their caps, as in work=4,other=1."""

TICK = 0.01
_LOOK_EVERY = 0.01


class Note(NamedTuple):
    """What one handler wrote down: that it began (+), lives (.), or ended (-)."""

    mark: str
    at: int
    job: int
    claim: int
    queue: str


def door(directory: Path, pod: str) -> Path:
    """Handlers of this pod wait until it is there."""
    return directory / f"door-{pod}"


class Notebook:
    """The file of one process, and the door that handlers of its pod may wait at."""

    def __init__(self, directory: Path, pod: str) -> None:
        self._door = door(directory, pod)
        name = directory / f"notes-{pod}-{os.getpid()}"
        self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def write(self, mark: str, ctx: Context) -> None:
        """One line in one write, so that it is whole or not there."""
        at = time.time_ns() // 1000
        os.write(self._file, f"{mark} {at} {ctx.id} {ctx.claim} {ctx.queue}\n".encode())

    @contextmanager
    def stay(self, ctx: Context) -> Iterator[None]:
        """Write down that a handler is at work."""
        self.write("+", ctx)
        try:
            yield
        finally:
            self.write("-", ctx)

    async def door_opens(self) -> None:
        while not self._door.exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(_LOOK_EVERY)


def read_notes(directory: Path, pod: str, process: int) -> list[Note]:
    """All that a process has written down, in that order."""
    file = directory / f"notes-{pod}-{process}"
    lines = file.read_text().splitlines() if file.exists() else []
    return [
        Note(mark, int(at), int(job), int(claim), queue)
        for mark, at, job, claim, queue in (line.split() for line in lines)
    ]


def make_app(notebook: Notebook, caps: str) -> App:
    app = App()
    for queue, _, slots in (given.partition("=") for given in caps.split(",")):
        app.queue(queue, max_workers=int(slots))

    @app.job()
    async def work(ctx: Context, seconds: float) -> int:
        with notebook.stay(ctx):
            await asyncio.sleep(seconds)
        return ctx.claim

    @app.job()
    async def gated(ctx: Context) -> int:
        with notebook.stay(ctx):
            await notebook.door_opens()
        return ctx.claim

    @app.job()
    async def gated_at_first(ctx: Context) -> int:
        with notebook.stay(ctx):
            if ctx.claim == 1:
                await notebook.door_opens()
        return ctx.claim

    @app.job()
    async def hog(ctx: Context, seconds: float) -> int:
        """Neither lets the loop turn nor waits for anything that would free the interpreter."""
        with notebook.stay(ctx):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pass
        return ctx.claim

    @app.job()
    def stubborn_at_first(ctx: Context) -> int:
        """A thread that goes on whatever it is told, and says so."""
        notebook.write("+", ctx)
        while ctx.claim == 1:
            time.sleep(TICK)
            notebook.write(".", ctx)
        notebook.write("-", ctx)
        return ctx.claim

    return app


if DIRECTORY in os.environ:
    app = make_app(Notebook(Path(os.environ[DIRECTORY]), os.environ[POD]), os.environ[CAPS])
