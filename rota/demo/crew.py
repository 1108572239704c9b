"""The demo's pods: `rota worker` as child processes, kept at a number, none outliving the demo.

A child's standard input is a pipe that only the demo holds: it breaks when the demo ends,
however it ends, and the child with it (`rota worker --owned`). Each has a session of its own,
because Ctrl-C in a terminal is meant for the demo, which then asks its pods to drain.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rota.cli.report import PodReport
from rota.errors import RotaError

LONGEST_LINE = 1024 * 1024


class PodNotStarted(RotaError):
    """A pod ended before it was up; another would do the same."""


@dataclass(slots=True)
class Child:
    """One pod process and the last it reported."""

    process: Process
    report: PodReport | None = None
    last_words: str = ""


class Crew:
    """Keeps so many pods until told to stop; one that ends on its own is replaced."""

    def __init__(
        self, size: int, command: Sequence[str], environment: Mapping[str, str], hear: Callable[[str], None]
    ) -> None:
        self._size = size
        self._command = command
        self._environment = dict(environment)
        self._hear = hear
        self._children: list[Child] = []
        self.up = asyncio.Event()

    @property
    def reports(self) -> list[PodReport]:
        """The last report of every pod there was, so that nothing it did is forgotten."""
        return [child.report for child in self._children if child.report is not None]

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the pods, and drain them once `stop` is set."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._size):
                group.create_task(self._keep(stop))

    def kill(self) -> None:
        """End all pods at once."""
        for child in self._children:
            _send(child.process, signal.SIGKILL)

    async def _keep(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            child = await self._start()
            try:
                await self._attend(child, stop)
            finally:
                _send(child.process, signal.SIGKILL)
                code = await child.process.wait()
            if child.report is None and not stop.is_set():
                raise PodNotStarted(f"A pod ended with exit code {code} before it was up: {child.last_words}")
            if not stop.is_set():
                self._hear(f"A pod ended with exit code {code}; another takes its place.")

    async def _start(self) -> Child:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
            env=self._environment,
        )
        child = Child(process)
        self._children.append(child)
        return child

    async def _attend(self, child: Child, stop: asyncio.Event) -> None:
        """Listen to a pod until it has ended; pass on that it is time to drain."""
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask_to_drain(child.process, stop))
            listening = (
                group.create_task(self._read_reports(child)),
                group.create_task(self._read_words(child)),
            )
            await asyncio.wait(listening)
            asking.cancel()

    async def _read_reports(self, child: Child) -> None:
        assert child.process.stdout is not None
        async for line in child.process.stdout:
            try:
                child.report = PodReport.from_line(line)
            except (ValueError, KeyError, TypeError):  # a handler printed something
                self._hear(line.decode(errors="replace").rstrip())
            else:
                self.up.set()

    async def _read_words(self, child: Child) -> None:
        assert child.process.stderr is not None
        async for line in child.process.stderr:
            child.last_words = line.decode(errors="replace").rstrip()
            self._hear(child.last_words)


def worker_command(app: str, queues: Sequence[str], report: float) -> list[str]:
    """A pod of this app that dies with us and tells how it is doing."""
    # -P: the current directory must not hide modules of the standard library from the command.
    python = (sys.executable, "-P", "-m", "rota.cli")
    return [
        *python,
        "worker",
        "--owned",
        "--app",
        app,
        "--queues",
        ",".join(queues),
        "--report",
        f"{report:g}s",
    ]


def worker_environment(dsn: str) -> dict[str, str]:
    """Ours, with the database's real address, logs for people and a short drain."""
    defaults = {"ROTA_LOG_FORMAT": "console", "ROTA_POD_GRACE": "5"}
    return {**defaults, **os.environ, "ROTA_DATABASE_URL": dsn}


async def _ask_to_drain(process: Process, stop: asyncio.Event) -> None:
    await stop.wait()
    _send(process, signal.SIGTERM)


def _send(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(number)
