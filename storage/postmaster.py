"""One Postgres server: found if it runs, started if not, and known to be there or gone.

Whether a server is alive is not guessed from its pid file alone, whose pid may be dead, may have
been given to another process, or may count in another container. Every process of the server
inherits an open file that carries a lock (see `take_lock`): the kernel lets go of it when the
last of them has ended, and not before.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from .binaries import Binaries
from .place import Place, did_not_start, tail
from .tether import open_owned, start_tethered, stop_tethered
from .unprivileged import Account

HOST = "127.0.0.1"
PAUSE = 0.005
PATIENCE = 60.0
PORT_ATTEMPTS = 5
LONGEST_SOCKET = 100

# Durability is left as Postgres has it: fsync and synchronous_commit are on.
DEFAULTS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "log_min_messages": "log",  # statements that fail are told to those who sent them
    "log_checkpoints": "off",
}


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What the server's pid file says of it."""

    pid: int
    port: int
    socket: Path | None
    ready: bool


def find_postmaster(data: Path) -> Postmaster | None:
    """Return the server that runs on this data, or None if the pid file is missing or stale."""
    lines = _lines(data / "postmaster.pid")
    if not lines or not lines[0].isdigit() or not _runs_on(int(lines[0]), data):
        return None
    pid, _, _, port, directory, _, _, status = (*lines[:8], *[""] * (8 - len(lines)))
    return Postmaster(
        pid=int(pid),
        port=int(port) if port.isdigit() else 0,
        socket=Path(directory) if directory else None,
        ready=status.strip() == "ready",
    )


def start_postmaster(
    place: Place, binaries: Binaries, settings: Mapping[str, str], account: Account, lock: int
) -> subprocess.Popen[bytes]:
    """Start the server, again if somebody took the port between finding it free and using it."""
    _drop_stale_pid_file(place.data)
    place.turn_log()
    for _ in range(PORT_ATTEMPTS):
        command = _command(place, binaries, settings, _free_port())
        process = start_tethered(command, account, log=place.log, keep=(lock,))
        try:
            if _becomes_ready(place, process):
                return process
        except BaseException:
            stop_tethered(process)
            raise
        stop_tethered(process)
        if "Address already in use" not in tail(place.log):
            break
    raise did_not_start(place)


def take_lock(path: Path) -> int | None:
    """Return a file that carries the lock until its last holder ends; None if another has it."""
    file = open_owned(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def tries(seconds: float = PATIENCE) -> Iterator[None]:
    """Yield at once, and again every few milliseconds for about that long."""
    for _ in range(round(seconds / PAUSE)):
        yield
        sleep(PAUSE)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def _runs_on(pid: int, data: Path) -> bool:
    """Whether the process is a server on this data: a server works in its data directory."""
    if sys.platform != "linux":
        return _is_postgres(pid)
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", data)
    except OSError:
        # Ended, or of a user who is neither we nor, since we may enter it, the owner of the data.
        return False


def _is_postgres(pid: int) -> bool:
    command = ("ps", "-p", str(pid), "-o", "comm=")
    return "postgres" in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _drop_stale_pid_file(data: Path) -> None:
    """Remove the pid file of a server that is gone if its pid now belongs to another process.

    Postgres would take that process for a server. The file of a dead process stays: from it
    Postgres learns of backends that may have survived.
    """
    lines = _lines(data / "postmaster.pid")
    if lines and lines[0].isdigit() and _exists(int(lines[0])):
        (data / "postmaster.pid").unlink()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _command(place: Place, binaries: Binaries, settings: Mapping[str, str], port: int) -> tuple[str, ...]:
    options = {
        **DEFAULTS,
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": _socket_directory(place.data),
        **settings,
    }
    given = (part for name, value in options.items() for part in ("-c", f"{name}={value}"))
    return (str(binaries.postgres), "-D", str(place.data), *given)


def _socket_directory(data: Path) -> str:
    """Return the data directory, which only the server's account may enter, or none if too long."""
    if len(os.fsencode(data / ".s.PGSQL.65535")) > LONGEST_SOCKET:
        return ""
    escaped = str(data).replace('"', '""')
    return f'"{escaped}"'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _becomes_ready(place: Place, process: subprocess.Popen[bytes]) -> bool:
    for _ in tries():
        if process.poll() is not None:
            return False
        running = find_postmaster(place.data)
        if running is not None and running.pid == process.pid and running.ready:
            return True
    return False
