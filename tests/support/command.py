"""The `rota` command as a process: its lines as they come, its end, and what it left behind."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PATIENCE = 40.0
COMMAND = Path(sys.executable).with_name("rota")


class Command:
    """A running `rota`, whose output is read as it comes."""

    def __init__(
        self, *arguments: str, environment: Mapping[str, str], directory: Path | None = None
    ) -> None:
        ours = {
            name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "OTEL_", "PG"))
        }
        self.process = subprocess.Popen(
            [str(COMMAND), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory,
            env={**ours, **environment},
            # As from a terminal: a signal to it alone, and nothing of ours in its group.
            start_new_session=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [self._read(self.process.stdout, self.out), self._read(self.process.stderr, self.err)]

    def line(self, pattern: str, patience: float = PATIENCE) -> str:
        """Wait for the next line, on stdout or stderr, in which the pattern is found."""
        ends, deadline = 0, time.monotonic() + patience
        while ends < 2:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            ends += line is None
            if line is not None and re.search(pattern, line):
                return line
        raise AssertionError(f"no line with {pattern!r} in {self.out} {self.err}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, patience: float = PATIENCE) -> int:
        """Wait for its end; its exit code."""
        code = self.process.wait(patience)
        for reader in self._readers:
            reader.join(patience)
        return code

    def children(self) -> list[int]:
        """The pids of its children (Linux)."""
        pid = self.process.pid
        found: list[int] = []
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        return found

    def _read(self, stream: IO[str] | None, lines: list[str]) -> threading.Thread:
        assert stream is not None

        def read() -> None:
            with stream:
                for line in stream:
                    lines.append(line.rstrip("\n"))
                    self._lines.put(lines[-1])
            self._lines.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return reader


@contextmanager
def running(*arguments: str, directory: Path | None = None, **environment: str) -> Iterator[Command]:
    """`rota` with these arguments and settings, which is gone in the end whatever happens."""
    command = Command(*arguments, environment=environment, directory=directory)
    try:
        yield command
    finally:
        command.process.kill()
        command.ended()


def rota(*arguments: str, directory: Path | None = None, **environment: str) -> Command:
    """`rota` with these arguments and settings, run to its end."""
    with running(*arguments, directory=directory, **environment) as command:
        command.ended()
        return command
