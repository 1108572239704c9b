"""PgQueuer's own virtual environment: made on first use, and again when its versions change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.process import ROOT

REQUIREMENTS = ROOT / "bench" / "requirements-pgqueuer.txt"
HOME = ROOT / ".tools" / "pgqueuer-venv"


class PeerMissing(Exception):
    """PgQueuer could not be installed."""


def pgqueuer_python() -> Path:
    """The interpreter that has PgQueuer, in the versions and with the hashes we pinned."""
    python, stamp = HOME / "bin" / "python", HOME / "installed.txt"
    wanted = REQUIREMENTS.read_text()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"Setting up PgQueuer in {HOME.relative_to(ROOT)} ...", flush=True)
    install = (python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", REQUIREMENTS)
    try:
        subprocess.run((sys.executable, "-m", "venv", "--clear", HOME), check=True)
        subprocess.run((*install, "--disable-pip-version-check"), check=True)
    except subprocess.CalledProcessError as error:
        raise PeerMissing(
            "PgQueuer could not be installed (see above); bench without it by --contenders rota,ceiling."
        ) from error
    stamp.write_text(wanted)
    return python
