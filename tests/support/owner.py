"""A process that owns an embedded server, or attaches to one, until its input ends.

Executed by path it is that process, and prints one line of JSON: the server, or the error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.errors import EmbeddedPostgresError
from rota.storage.embedded import EmbeddedServer, start_embedded


@dataclass(frozen=True, slots=True)
class Owner:
    process: subprocess.Popen[str]

    def told(self) -> dict[str, Any]:
        """Return what it said of its server, once it is there."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the owner ended with {self.process.wait()} and said nothing"
        told: dict[str, Any] = json.loads(line)
        return told

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()

    def end(self) -> int:
        """Let it stop its server and exit."""
        try:
            self.process.communicate(timeout=30)
        finally:
            self.process.kill()
        return self.process.wait()


def start_owner(
    directory: Path | None,
    settings: Mapping[str, str],
    *,
    off_main_thread: bool = False,
    python: Sequence[str] = (sys.executable,),
    user: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Owner:
    asked = {
        "directory": directory and str(directory),
        "settings": dict(settings),
        "off_main_thread": off_main_thread,
    }
    process = subprocess.Popen(
        [*python, __file__, json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, **(environment or {})},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    return Owner(process)


def main() -> None:
    asked = json.loads(sys.argv[1])
    directory = asked["directory"] and Path(asked["directory"])
    try:
        start = start_on_thread if asked["off_main_thread"] else start_embedded
        server = start(directory=directory, settings=asked["settings"])
    except EmbeddedPostgresError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
    seen = {"pid": server.pid, "attached": server.attached, "data": str(server.data)}
    print(json.dumps(seen), flush=True)
    sys.stdin.read()
    server.stop()


def start_on_thread(*, directory: Path | None, settings: Mapping[str, str]) -> EmbeddedServer:
    """Start it on a thread that ends at once."""
    started: list[EmbeddedServer] = []

    def start() -> None:
        started.append(start_embedded(directory=directory, settings=settings))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    return started[0]


if __name__ == "__main__":
    main()
