"""Just enough of Postgres' wire protocol to know which statement a client is about to run."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

PARSE, BIND, QUERY, SYNC = b"P", b"B", b"Q", b"S"
READY = b"Z"
"""What ends the server's answer; outside a transaction block it says that the work is committed."""

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_NO = b"N"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with the values it is sent with, each as its bytes on the wire."""

    text: str
    values: Sequence[bytes | None] = ()

    def is_named(self, name: str) -> bool:
        """Whether it is this query of storage/sql."""
        return self.text.startswith(f"/* rota.{name} */")


class Statements:
    """The statements one client prepared."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, str] = {}

    def read(self, message: bytes) -> Statement | None:
        """The statement this message runs, if it runs one."""
        kind, body = message[:1], message[5:]
        if kind == PARSE:
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode()
        elif kind == QUERY:
            return Statement(body.rstrip(b"\0").decode())
        elif kind == BIND:
            _, name, rest = body.split(b"\0", 2)
            return Statement(self._prepared.get(name, ""), _values(rest))
        return None


async def read_startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The first message of a client; encryption is declined, since nothing could be read then."""
    while True:
        size = await reader.readexactly(4)
        rest = await reader.readexactly(struct.unpack("!i", size)[0] - 4)
        if struct.unpack("!i", rest[:4])[0] not in (_SSL, _GSS):
            return size + rest
        writer.write(_NO)


def asks_to_cancel(startup: bytes) -> bool:
    """Whether this connection is only there to have another's statement cancelled."""
    return bool(struct.unpack("!i", startup[4:8])[0] == _CANCEL)


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Every message whole, until the connection ends, however it does."""
    while True:
        try:
            head = await reader.readexactly(5)
            yield head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
        except (asyncio.IncompleteReadError, OSError):
            return


def _values(rest: bytes) -> list[bytes | None]:
    (formats,) = struct.unpack_from("!h", rest)
    place = 2 + 2 * formats
    (count,) = struct.unpack_from("!h", rest, place)
    place += 2
    values: list[bytes | None] = []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", rest, place)
        place += 4
        values.append(rest[place : place + size] if size >= 0 else None)
        place += max(size, 0)
    return values
