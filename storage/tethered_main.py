"""Becomes a program that does not outlive its owner. Executed by path, never imported.

    python -I -S tethered_main.py kernel|pipe OWNER UID GID PROGRAM ARGUMENT...

A program of its own, because neither dropping rights nor prctl is safe between fork and exec in a
process that has threads. Two ways to notice that the owner is gone, whatever killed it:

- kernel: it sends SIGINT, to Postgres a fast shutdown, when the parent *thread* ends. Linux only;
  nothing has to stay behind.
- pipe: standard input comes from the owner. A watcher process stays behind, sends SIGINT when the
  pipe breaks, and ends with the server.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
PATIENCE = 10.0


def main() -> None:
    way, owner, uid, gid, *program = sys.argv[1:]
    # Ignored in whatever a shell put in the background, and then our signal would be lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Loaded while we may still read the standard library, which can be below a closed home.
    libc = ctypes.CDLL(None)
    if os.geteuid() != int(uid):
        become(int(uid), int(gid))
    if way == "pipe":
        leave_watcher()
    # After dropping rights, which would clear it; and the owner may have gone before.
    elif libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT) != 0 or os.getppid() != int(owner):
        sys.exit("the owner is gone")
    os.execv(program[0], program)


def become(uid: int, gid: int) -> None:
    try:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    except OSError as error:
        sys.exit(f"root may not become user {uid} here: {error}")


def leave_watcher() -> None:
    """Fork twice, so that Postgres has no child that it does not know."""
    server = os.getpid()
    ended, alive = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.dup2(ended, 1)
            os.closerange(2, 65536)
            watch(server, leash=0, ended=1)
        os._exit(0)
    os.waitpid(child, 0)
    # Held open by every process of the server: it breaks when the last of them has ended.
    os.set_inheritable(alive, True)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def watch(server: int, *, leash: int, ended: int) -> None:
    broken, _, _ = select.select([leash, ended], [], [])
    if ended in broken:
        return
    os.kill(server, signal.SIGINT)
    if not select.select([ended], [], [], PATIENCE)[0]:
        os.kill(server, signal.SIGQUIT)


if __name__ == "__main__":
    main()
