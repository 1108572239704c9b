"""A pod in a process of its own, for tests that kill it.

Executed as a module it is that process: it serves until SIGTERM, then drains and exits with 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from rota import App
from rota.runtime.pod import Pod
from tests.support.crash_app import QUEUE, Notebook, add_handlers
from tests.support.processes import PATIENCE
from tests.support.tools import REPOSITORY

TTL = 3.0
TERMS = {"ROTA_POD_BEAT": "0.5", "ROTA_POD_TTL": str(TTL), "ROTA_POD_GRACE": "0.5", "ROTA_POD_POLL": "0.05"}


@contextmanager
def pod_process(
    dsn: str, directory: Path, *, slots: int = 10, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one; whatever happened to it, it is gone in the end."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.pod_process", str(directory), str(slots)],
        cwd=REPOSITORY,
        env={**given, **TERMS, **settings, "ROTA_DATABASE_URL": dsn},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


async def main() -> None:
    notebook = Notebook(Path(sys.argv[1]))
    app = App(queues=[QUEUE])
    add_handlers(app, notebook, slots=int(sys.argv[2]), expendable=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app:
        await Pod(app).run(stop)


if __name__ == "__main__":
    uvloop.run(main())
