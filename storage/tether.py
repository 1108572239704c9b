"""Starts programs that do not outlive us; `tethered_main.py` is the other half, in the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from .unprivileged import Account

MAIN = Path(__file__).with_name("tethered_main.py")

# The server gets no other variable of ours: whoever may log in can read its environment.
PASSED_ON = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LD_PRELOAD", "FAKETIME")


def start_tethered(
    program: Sequence[str], account: Account, *, log: Path, keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Run the program as the account, ending when we end, with its output in the log.

    The kernel's way to end it is bound to the thread that started it, so that only the main
    thread, which lives as long as the process, may use it; elsewhere the child watches a pipe.
    In a session of its own, because Ctrl-C in a terminal is meant for us, and we may need the
    server to end in good order.
    """
    by_kernel = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
    tether = ("kernel" if by_kernel else "pipe", os.getpid(), account.uid, account.gid)
    output = open_owned(log, os.O_WRONLY | os.O_APPEND)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(MAIN), *map(str, tether), *program],
            stdin=subprocess.DEVNULL if by_kernel else subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=keep,
            start_new_session=True,
            env=_environment(os.environ),
            cwd=log.parent,
        )
    finally:
        os.close(output)


def stop_tethered(process: subprocess.Popen[bytes], *, patience: float = 20.0) -> None:
    """End it in good order; if that takes too long then at once, and at last by force."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        break
    if process.stdin is not None:
        process.stdin.close()


def open_owned(path: Path, flags: int) -> int:
    """Open or create a file of ours; never what somebody else's link points to."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    passed_on = {name: value for name, value in ours.items() if name.startswith(PASSED_ON)}
    return {**passed_on, "LC_ALL": "C"}
