"""Notices: one LISTEN connection, an accelerator that nothing depends on.

A notice is a word and a subject ("ready:emails"). A transaction-mode pooler takes LISTEN and
then delivers nothing, without an error; so a probe sends a notice to itself and waits for it.
After each (re)LISTEN the receiver acts as if notified, since notices may have been missed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from rota.errors import DatabaseUnavailable

from .failures import translated
from .pool import Database

Receive = Callable[[str, str], None]

_PROBE = "probe"
_PROBE_WAIT = 3.0
_STILL_THERE = 15.0


class Notices:
    """A LISTEN connection and what it hears."""

    def __init__(self, database: Database, receive: Receive) -> None:
        self._database = database
        self._receive = receive
        self._channel = f"{database.schema}.notice"
        self._token = uuid.uuid4().hex
        self._heard = asyncio.Event()
        self._ended = asyncio.Event()

    async def listen(self, listening: Callable[[bool], None]) -> None:
        """Listen until the connection is lost (DatabaseUnavailable) or this is cancelled.

        `listening` is told once whether notices arrive.
        """
        self._heard.clear()
        self._ended.clear()
        connection = await self._database.connect(direct=True)
        try:
            connection.add_termination_listener(lambda _: self._ended.set())
            with translated(self._database.address):
                await connection.add_listener(self._channel, self._hear)
                await self._database.execute("probe_notices", self._token)
                listening(await _within(self._heard, _PROBE_WAIT))
                while not await _within(self._ended, _STILL_THERE):
                    # A half-open connection says nothing for ever unless it is asked.
                    await connection.fetchval(self._database.queries["still_there"], timeout=_PROBE_WAIT)
            raise DatabaseUnavailable(f"{self._database.address} ended the LISTEN connection.")
        finally:
            connection.terminate()

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        word, _, subject = str(payload).partition(":")
        if word != _PROBE:
            self._receive(word, subject)
        elif subject == self._token:
            self._heard.set()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
