"""Directories that are gone after the run, even if the run before this one was killed.

Each is locked while its process lives, and whoever makes one sweeps away those that nobody holds.
Unlike pytest's tmp_path they can be entered by the account that a server runs as under root.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.storage.postmaster import take_lock

PREFIX = f"rota-test-{os.getuid()}-"
MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30


@contextmanager
def scratch_directory(*, in_memory: bool = False) -> Iterator[Path]:
    """A directory of our own, in memory if asked for and if there is plenty."""
    root = MEMORY if in_memory and _plenty_of(MEMORY) else Path("/tmp")
    with (root / f"{PREFIX}lock").open("w") as sweeping:
        fcntl.flock(sweeping, fcntl.LOCK_EX)
        _sweep(root)
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = take_lock(directory / "in-use")
        assert lock is not None
    try:
        directory.chmod(0o755)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _sweep(root: Path) -> None:
    for in_use in root.glob(f"{PREFIX}*/in-use"):
        if (lock := take_lock(in_use)) is not None:
            shutil.rmtree(in_use.parent, ignore_errors=True)
            os.close(lock)


def _plenty_of(memory: Path) -> bool:
    return os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ENOUGH
