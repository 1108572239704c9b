"""A proxy before Postgres that stops a connection at a chosen statement.

A snare is laid for a statement and catches it once: before the server gets the request, or when
the server has answered it, which is after the commit. From the catch on nothing passes on that
connection in either direction, as on a half-open line, until the test says what becomes of it:
the client is cut off, the server gets the request after all, or all goes on. A server whose client
was cut off notices nothing, and may go on with the statement long after the client has given it up.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.until import PATIENCE
from tests.support.wire import (
    QUERY,
    READY,
    SYNC,
    Statement,
    Statements,
    asks_to_cancel,
    messages,
    read_startup,
)

Choice = Callable[[Statement], bool]
_RESET = struct.pack("ii", 1, 0)


class At(enum.Enum):
    """The moment at which a snare catches."""

    REQUEST = "the server has not got the request"
    ANSWER = "the server gets the request, the client never the answer"


class Snare:
    """Waits for one statement."""

    def __init__(self, choice: Choice, at: At) -> None:
        self.choice = choice
        self.at = at
        self._link: _Link | None = None
        self._caught = asyncio.Event()
        self._answered = asyncio.Event()

    async def caught(self) -> None:
        """Return once the statement is held: seen whole, and with At.ANSWER passed on."""
        await _soon(self._caught)

    async def answered(self) -> None:
        """Return once the server has answered; the client has not heard of it."""
        await _soon(self._answered)

    def cut(self) -> None:
        """The client loses its connection; the server notices nothing."""
        self._held().cut_client()

    def drop(self) -> None:
        """Both lose it; a request that was held never arrives."""
        self._held().close()

    def deliver(self) -> None:
        """Let the server have the request after all."""
        self._held().deliver()

    def let_go(self) -> None:
        """Pass on all that was held, and go on as if nothing had been."""
        self._held().let_go()

    def _catch(self, link: _Link) -> None:
        self._link = link

    def _held(self) -> _Link:
        assert self._link is not None, "the snare has caught nothing yet"
        return self._link


class Cutter:
    """The proxy; `dsn` leads through it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._target = _address(dsn)
        self._snares: list[Snare] = []
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self.silent = False

    @property
    def dsn(self) -> str:
        parts = urlsplit(self._dsn)
        who, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{who}{at}127.0.0.1:{self._port}").geturl()

    def lead_to(self, dsn: str) -> None:
        """Lead new connections to another server."""
        self._target = _address(dsn)

    def snare(self, choice: Choice, at: At) -> Snare:
        """Lay a snare for the next statement of this choice, on whichever connection."""
        snare = Snare(choice, at)
        self._snares.append(snare)
        return snare

    def cut_all(self) -> None:
        """Every client loses its connection, and the server its clients."""
        for link in list(self._links):
            link.close()

    def fall_silent(self) -> None:
        """Pass on nothing any more, on old connections and new ones, and tell nobody."""
        self.silent = True
        for link in self._links:
            link.hold()

    def speak_again(self) -> None:
        """Pass on new connections; what was sent on the old ones is lost with them."""
        self.silent = False
        self.cut_all()

    def match(self, statement: Statement) -> Snare | None:
        for snare in self._snares:
            if snare.choice(statement):
                self._snares.remove(snare)
                return snare
        return None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut_all()
        await asyncio.gather(*self._links.values())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._links[link] = task
        if self.silent:
            link.hold()
        try:
            await link.run(*self._target)
        finally:
            link.close()
            del self._links[link]


class _Link:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, cutter: Cutter, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._cutter = cutter
        self._reader = reader
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._statements = Statements()
        self._snare: Snare | None = None
        self._holds_requests = self._holds_answers = False
        self._requests: list[bytes] = []
        self._answers: list[bytes] = []
        self._closed = asyncio.Event()

    async def run(self, host: str, port: int) -> None:
        """Pass messages on until either side ends; a held server stays until it is let go."""
        try:
            startup = await read_startup(self._reader, self._client)
            answers, self._server = await asyncio.open_connection(host, port)
        except (asyncio.IncompleteReadError, OSError):
            return
        self._send_request(startup)
        if asks_to_cancel(startup):
            await answers.read()
            return
        closed = asyncio.create_task(self._closed.wait())
        pumps = [asyncio.create_task(self._pump_requests()), asyncio.create_task(self._pump_answers(answers))]
        await asyncio.wait({closed, *pumps}, return_when=asyncio.FIRST_COMPLETED)
        if self._holds_answers and not pumps[1].done():
            await asyncio.wait({closed, pumps[1]}, return_when=asyncio.FIRST_COMPLETED)
        for task in (closed, *pumps):
            task.cancel()
        await asyncio.gather(closed, *pumps, return_exceptions=True)

    def hold(self) -> None:
        self._holds_requests = self._holds_answers = True

    def deliver(self) -> None:
        held, self._requests = self._requests, []
        for message in held:
            if self._server is not None:
                self._server.write(message)

    def let_go(self) -> None:
        self._holds_requests = self._holds_answers = False
        self._snare = None
        self.deliver()
        held, self._answers = self._answers, []
        for message in held:
            self._client.write(message)

    def cut_client(self) -> None:
        _reset(self._client)

    def close(self) -> None:
        self._closed.set()
        for side in (self._client, self._server):
            if side is not None:
                _reset(side)

    async def _pump_requests(self) -> None:
        async for message in messages(self._reader):
            statement = self._statements.read(message)
            if statement is not None and self._snare is None:
                self._snare = self._cutter.match(statement)
                if self._snare is not None:
                    self._holds_answers = True
                    self._holds_requests = self._snare.at is At.REQUEST
                    self._snare._catch(self)
            self._send_request(message)
            if self._snare is not None and message[:1] in (SYNC, QUERY):
                self._snare._caught.set()

    def _send_request(self, message: bytes) -> None:
        if self._holds_requests:
            self._requests.append(message)
        elif self._server is not None:
            self._server.write(message)

    async def _pump_answers(self, reader: asyncio.StreamReader) -> None:
        async for message in messages(reader):
            if not self._holds_answers:
                self._client.write(message)
                continue
            self._answers.append(message)
            if self._snare is not None and message[:1] == READY:
                self._snare._answered.set()


def named(*names: str) -> Choice:
    """Queries of storage/sql, by their names."""
    return lambda statement: any(statement.is_named(name) for name in names)


def claims(statement: Statement) -> bool:
    """A round trip that claims and writes no outcome."""
    return statement.is_named("work_jobs") and not ends_runs(statement)


def ends_runs(statement: Statement) -> bool:
    """A round trip that writes outcomes, with or without a claim beside."""
    done, others = (8, 11) if statement.is_named("work_jobs") else (2, 5)
    if not (statement.is_named("work_jobs") or statement.is_named("finalize_jobs")):
        return False
    return _has_elements(statement.values[done]) or statement.values[others] is not None


def text(start: str) -> Choice:
    """A statement that starts so."""
    return lambda statement: statement.text.startswith(start)


def _has_elements(array: bytes | None) -> bool:
    """The head of an array is 12 bytes and 8 more for each dimension; elements come after it."""
    return array is not None and len(array) > 12 + 8 * struct.unpack_from("!i", array)[0]


def _address(dsn: str) -> tuple[str, int]:
    parts = urlsplit(dsn)
    return parts.hostname or "127.0.0.1", parts.port or 5432


def _reset(side: asyncio.StreamWriter) -> None:
    """End it at once, as a machine does that has lost all memory of it."""
    if not side.is_closing():
        connection: socket.socket = side.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    side.transport.abort()


async def _soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()
