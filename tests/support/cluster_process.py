"""One `rota worker` of a cluster scenario: started, hurt and ended by the test, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rota.chaos.history import Instant, Run
from rota.cluster.identity import identity
from rota.settings import PodSettings
from tests.support.cluster_app import CAPS, DIRECTORY, POD, read_notes
from tests.support.command import COMMAND
from tests.support.tools import REPOSITORY
from tests.support.until import until

PATIENCE = 60.0
"""Seconds; only what never comes fails, also on a machine that does much else."""

# A process that is stopped notices nothing, so the kernel must end it should the test die first.
_TETHERED = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Worker:
    """A process, the pod that it runs, and when it was hurt."""

    def __init__(
        self, name: str, directory: Path, caps: Mapping[str, int], settings: Mapping[str, str]
    ) -> None:
        self.name = name
        # An identity is locked on the whole machine, where other tests run at the same time.
        uid = f"{directory}/{name}"
        self.pod = str(identity(PodSettings(uid=uid)))
        self.replaces = 0
        """The boot of its pod that was registered when it was started."""
        self.harmed = False
        self._directory = directory
        self._cuts: list[Instant] = []
        ours = {
            key: value for key, value in os.environ.items() if not key.startswith(("ROTA_", "OTEL_", "PG"))
        }
        command = [str(COMMAND), "worker", "--app", "tests.support.cluster_app:app", "--json"]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _TETHERED, str(os.getpid()), *command]
        self._log = directory / f"log-{name}-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={
                    **ours,
                    "ROTA_QUEUES": ",".join(caps),
                    **settings,
                    "ROTA_POD_UID": uid,
                    "ROTA_POD_ID": name,
                    POD: name,
                    DIRECTORY: str(directory),
                    CAPS: ",".join(f"{queue}={cap}" for queue, cap in caps.items()),
                },
                start_new_session=True,
            )

    def cut(self) -> None:
        """From here on its handlers may do what they like: the pod can know of nothing in time."""
        self.harmed = True
        self._cuts.append(time.time_ns() // 1000)

    def kill(self) -> None:
        self.cut()
        self.process.kill()
        assert self.process.wait(PATIENCE) == -signal.SIGKILL

    def stop(self) -> None:
        """Stop it as a machine does that is suspended, or starved."""
        self.cut()
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.terminate()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    async def exits(self) -> int:
        """Wait for its end; its exit code."""
        await until(f"{self.name} exits", lambda: not self.alive, PATIENCE)
        return self.process.wait()

    @property
    def said(self) -> str:
        """Its log and whatever else it printed."""
        return self._log.read_text()

    def handlers(self) -> list[Run]:
        """The handlers of this process, as they wrote it down; of those it was cut off in, until then."""
        seen: dict[tuple[int, int], Run] = {}
        for note in read_notes(self._directory, self.name, self.process.pid):
            if note.mark == "+":
                run = Run(note.queue, note.job, note.claim, self.pod, 0, note.at, None)
                seen[note.job, note.claim] = run
            else:
                seen[note.job, note.claim] = seen[note.job, note.claim]._replace(ended=note.at)
        return [self._clipped(run) for run in seen.values()]

    def _clipped(self, run: Run) -> Run:
        ends = [cut for cut in self._cuts if cut >= run.started]
        return run._replace(ended=min([*ends, *([] if run.ended is None else [run.ended])], default=None))

    def discard(self) -> None:
        """End it whatever state it is in."""
        self.process.kill()
        self.process.wait(PATIENCE)
