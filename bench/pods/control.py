"""The child's end of the line: one JSON command per line in, one JSON answer per line out.

The end of input ends the process, so that no child outlives the harness.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Command = Callable[..., Awaitable[dict[str, Any] | None]]


def options() -> dict[str, Any]:
    """What the harness wants of this process: its one argument."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    return told


async def serve(commands: Mapping[str, Command]) -> None:
    """Say that we are ready, then do as told until told to stop."""
    line_out = _own_line_out()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    _answer(line_out, {"ready": True})
    while line := await reader.readline():
        command = json.loads(line)
        name = command.pop("do")
        _answer(line_out, await _obey(commands[name], command))
        if name == "stop":
            return
    os._exit(1)


def speak_up(running: asyncio.Task[None]) -> None:
    """A pod that ends by itself must not look like one that is slow."""
    if not running.cancelled() and (error := running.exception()):
        traceback.print_exception(error)
        os._exit(3)


def _own_line_out() -> int:
    """The line to the harness; whatever else is printed goes to the log."""
    line_out = os.dup(1)
    os.dup2(2, 1)
    return line_out


async def _obey(command: Command, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return await command(**arguments) or {}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _answer(line_out: int, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(line_out, data) :]
