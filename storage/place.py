"""Where the embedded server lives on disk, one place for each major version.

    <directory>/<major>/data          the database, kept between runs
                       /binaries      a copy, if the server's account cannot reach the originals
                       /server.log    of this run; server.log.1 is of the run before
                       /start.lock    held by whoever is starting a server
                       /server.lock   held by the server's own processes

As root all but the data is root's, so that nothing that root writes here can be turned against it
by the server's account. A data directory is complete or absent: initdb works beside it, and a
rename ends its work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rota.errors import EmbeddedPostgresError

from .binaries import Binaries, copy_binaries
from .tether import open_owned, start_tethered, stop_tethered
from .unprivileged import Account

SYSTEM_DIRECTORY = Path("/var/lib/rota/postgres")
SUPERUSER = "postgres"
INITDB_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of one major version, and what is where in it."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def binaries(self) -> Path:
        return self.root / "binaries"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def start_lock(self) -> Path:
        return self.root / "start.lock"

    @property
    def server_lock(self) -> Path:
        return self.root / "server.lock"

    def turn_log(self) -> None:
        """Begin a new log and keep the last, no more."""
        if self.log.exists():
            self.log.replace(self.root / "server.log.1")


def default_directory() -> Path:
    """Return where data persists: in the user's data directory, root's in the system's."""
    if os.geteuid() == 0:
        return SYSTEM_DIRECTORY
    if os.path.isabs(data_home := os.environ.get("XDG_DATA_HOME", "")):
        return Path(data_home) / "rota" / "postgres"
    try:
        return Path.home() / ".local" / "share" / "rota" / "postgres"
    except RuntimeError:
        raise EmbeddedPostgresError(
            "The embedded Postgres keeps its data in your home, and you have none: "
            "set ROTA_EMBEDDED_DIR to a directory that you may write."
        ) from None


def make_place(directory: Path, version: int) -> Place:
    """Make what is missing of the place, and refuse one that holds something else."""
    place = Place(directory.absolute().resolve() / str(version))
    if (directory / "PG_VERSION").exists():
        raise EmbeddedPostgresError(
            f"{directory} is the data directory of another Postgres: set ROTA_EMBEDDED_DIR to an "
            "empty directory, or ROTA_DATABASE_URL to that server."
        )
    _make_directories(place.root)
    _require_data_if_any(place.data, version)
    return place


def within_reach(place: Place, binaries: Binaries, account: Account) -> Binaries:
    """Make sure that the account can get to its place, and to the binaries, if by a copy."""
    if os.geteuid() != 0:
        return binaries
    if not account.can_reach(place.root):
        raise EmbeddedPostgresError(
            f"The embedded Postgres, which root has to run as {account.name}, cannot get to "
            f"{place.root}: set ROTA_EMBEDDED_DIR to a directory that every user may enter."
        )
    if account.can_reach(binaries.postgres):
        return binaries
    return copy_binaries(binaries, into=place.binaries)


def have_data(place: Place, binaries: Binaries, account: Account) -> None:
    """Run initdb beside the place of the data, if there is none yet."""
    if (place.data / "PG_VERSION").exists():
        return
    for remains in place.root.glob("initdb-*"):
        shutil.rmtree(remains, ignore_errors=True)
    workshop = Path(tempfile.mkdtemp(prefix="initdb-", dir=place.root))
    try:
        draft = workshop / "data"
        draft.mkdir(mode=0o700)
        if os.geteuid() == 0:
            workshop.chmod(0o711)
            os.chown(draft, account.uid, account.gid)
        _run_initdb(binaries, draft, account, log=workshop / "log")
        draft.rename(place.data)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def did_not_start(place: Place) -> EmbeddedPostgresError:
    """Return the error of a server that did not start, with the end of its log."""
    return EmbeddedPostgresError(
        f"The embedded Postgres did not start on {place.data}; if its data may be lost, remove "
        f"that directory and try again; its log ends:{tail(place.log)}"
    )


def tail(log: Path, lines: int = 8) -> str:
    with os.fdopen(open_owned(log, os.O_RDONLY), errors="replace") as file:
        return "".join(f"\n    {line.rstrip()}" for line in file.readlines()[-lines:])


def _make_directories(path: Path) -> None:
    """Make what is missing: for ourselves alone, or as root so that the server can get through."""
    if path.is_dir():
        return
    _make_directories(path.parent)
    path.mkdir(exist_ok=True)
    path.chmod(0o755 if os.geteuid() == 0 else 0o700)


def _require_data_if_any(data: Path, version: int) -> None:
    if not data.exists() or (data.is_dir() and not any(data.iterdir())):
        return
    try:
        found = (data / "PG_VERSION").read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        found = "missing"
    if found != str(version):
        raise EmbeddedPostgresError(
            f"{data} is not a data directory of Postgres {version} (PG_VERSION: {found}): move it "
            "away to begin with an empty database, or set ROTA_EMBEDDED_DIR to another directory."
        )


def _run_initdb(binaries: Binaries, data: Path, account: Account, *, log: Path) -> None:
    options = ("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
    command = (str(binaries.initdb), "-D", str(data), "-U", SUPERUSER, *options)
    initdb = start_tethered(command, account, log=log)
    try:
        failed = initdb.wait(INITDB_PATIENCE) != 0
    except subprocess.TimeoutExpired:
        failed = True
    finally:
        stop_tethered(initdb)
    if failed:
        raise EmbeddedPostgresError(
            f"initdb could not make a database below {log.parent.parent}; its output ends:{tail(log)}"
        )
