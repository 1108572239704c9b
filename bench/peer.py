"""PgQueuer's own virtual environment: made on first use, and again when its versions change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.process import ROOT

REQUIREMENTS = ROOT / "bench" / "requirements-pgqueuer.txt"
HOME = ROOT / ".tools" / "pgqueuer-venv"
PYTHON = HOME / "bin" / "python"
STAMP = HOME / "installed.txt"


class PeerMissing(Exception):
    """PgQueuer could not be installed."""


def is_installed() -> bool:
    """Whether PgQueuer is there already, in the versions we pinned."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == REQUIREMENTS.read_text()


def pgqueuer_python() -> Path:
    """The interpreter that has PgQueuer, in the versions and with the hashes we pinned."""
    if is_installed():
        return PYTHON
    print(f"Setting up PgQueuer in {HOME.relative_to(ROOT)} ...", flush=True)
    install = (PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", REQUIREMENTS)
    try:
        subprocess.run((sys.executable, "-m", "venv", "--clear", HOME), check=True)
        subprocess.run((*install, "--disable-pip-version-check"), check=True)
    except subprocess.CalledProcessError as error:
        raise PeerMissing(
            "PgQueuer could not be installed (see above); bench without it by --contenders rota,ceiling."
        ) from error
    STAMP.write_text(REQUIREMENTS.read_text())
    return PYTHON
