"""Who the embedded server runs as.

Postgres refuses to run as root. Started by root, the server runs as an account that has no
rights of its own; started by anyone else, it runs as that user. Nothing here changes the mode or
the owner of a file: a home that the account cannot enter stays closed.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from rota.errors import EmbeddedPostgresError

CANDIDATES = ("postgres", "nobody", "daemon")


@dataclass(frozen=True, slots=True)
class Account:
    """A user that exists in passwd, which initdb insists on."""

    name: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Whether mode bits let the account enter, or execute, path and all that is above it."""
        return all(self._may_enter(step.stat()) for step in (path, *path.parents))

    def _may_enter(self, status: os.stat_result) -> bool:
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def server_account(data: Path) -> Account:
    """Return the owner of existing data; for new data ourselves, or an account without rights."""
    me = os.geteuid()
    if not data.exists():
        return _account_of(me) if me != 0 else _unprivileged()
    owner = data.stat().st_uid
    if owner == 0 or me not in (0, owner):
        raise EmbeddedPostgresError(
            f"The embedded Postgres cannot run on {data}, which belongs to {_name_of(owner)}: "
            "give it to the user who is to run it, or set ROTA_EMBEDDED_DIR to another directory."
        )
    return _account_of(owner)


def _account_of(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedPostgresError(
            f"The embedded Postgres needs a user with an entry in passwd, and user id {uid} has "
            "none: add one, or set ROTA_DATABASE_URL to a Postgres that runs elsewhere."
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _unprivileged() -> Account:
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "The embedded Postgres cannot run as root, and passwd has no user "
        f"{' or '.join(CANDIDATES)}: add the user postgres, or run Rota as another user than root."
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"
