"""What stands between a command and an open app: settings, the embedded server, the loop."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rota.errors import BadSettings, EmbeddedPostgresError
from rota.runtime.app import App
from rota.settings import EMBEDDED, Settings
from rota.storage.embedded import EmbeddedServer, start_embedded

T = TypeVar("T")

_HOST = re.compile(r"(\[[^\]]*\]|[^\[\]:]*)(:\d{0,5})?", re.ASCII)

LOOK = 1.0
"""Seconds between two looks whether the embedded server is still there."""


def bare_app() -> App:
    """An app without handlers, for commands that only speak to the database."""
    return App(Settings.load())


@contextmanager
def reached(app: App, database_url: str | None = None) -> Iterator[EmbeddedServer | None]:
    """Have the app know its database; the embedded one is started or joined, and given back if any.

    On the main thread and before the loop. The app is given the server's own address, so that it
    will not start another when this one is gone.
    """
    if database_url is not None:
        app.settings = app.settings.with_database(url=database_url)
    url = app.settings.database.url
    if not url:
        raise BadSettings("No database is configured; set ROTA_DATABASE_URL to a Postgres DSN.")
    if url != EMBEDDED:
        _check_url(url)
        yield None
        return
    with start_embedded() as server:
        app.settings = app.settings.with_database(url=server.dsn, direct_url=None)
        yield server


def _check_url(url: str) -> None:
    """Refuse what can never be an address; the URL is not repeated, as it may hold a password."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if parts.scheme not in ("postgresql", "postgres") or not all(map(_HOST.fullmatch, hosts)):
        raise BadSettings(
            "The database URL cannot be used; write it as postgresql://user@host:5432/database, "
            "or embedded for a Postgres that Rota starts itself."
        )


async def watch_server(server: EmbeddedServer | None) -> None:
    """Raise once the embedded server, where there is one, is gone for good."""
    while server is not None:
        await asyncio.sleep(LOOK)
        if not server.running():
            raise EmbeddedPostgresError(
                "The embedded Postgres was stopped by the process that started it, so this one ends too."
                if server.attached
                else f"The embedded Postgres has ended unexpectedly; its log is beside {server.data}."
            )


def with_app(
    work: Callable[[App], Coroutine[Any, Any, T]],
    database_url: str | None = None,
    *,
    app: App | None = None,
    checked: bool = True,
) -> T:
    """Do something with an open app, on a schema that this code may run on unless not `checked`."""
    app = app or bare_app()

    async def opened() -> T:
        async with app:
            if checked:
                await app.check_schema()
            return await work(app)

    with reached(app, database_url):
        return run(opened())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, on uvloop where there is one."""
    if sys.implementation.name != "cpython" or sys.platform == "win32":
        return asyncio.run(work)
    import uvloop  # noqa: PLC0415  not to be had on every platform

    return uvloop.run(work)
