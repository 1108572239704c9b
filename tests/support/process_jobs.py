"""Handlers that run in child processes: a module of its own, since the children import it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rota import App, Dead, Release, Settings, Throttled
from tests.support.pods import QUEUE

app = App(Settings())


class Square(BaseModel):
    number: int


class Unpicklable(Exception):
    """Holds what cannot cross over."""

    def __init__(self) -> None:
        super().__init__("unpicklable")
        self.held = lambda: None


class Demanding(Exception):
    """Cannot be made anew from its message alone."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@app.job(queue=QUEUE, process=True, max_attempts=1)
def square(given: Square) -> dict[str, int]:
    return {"square": given.number**2, "pid": os.getpid()}


@app.job(queue=QUEUE, process=True, max_attempts=1)
def no_payload() -> str:
    return "nothing needed"


def throw(error: BaseException) -> None:
    raise error


WAYS: dict[str, Callable[[], Any]] = {
    "raise": lambda: throw(LookupError("not in the child")),
    "exit": lambda: sys.exit(3),
    "os exit": lambda: os._exit(7),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "unpicklable error": lambda: throw(Unpicklable()),
    "demanding error": lambda: throw(Demanding("this", "that")),
    "unpicklable result": lambda: lambda: None,
    "dead": lambda: throw(Dead("said the child")),
    "release": lambda: Release(600),
    "throttled": lambda: throw(Throttled(600)),
}


@app.job(queue=QUEUE, process=True, max_attempts=1)
def end(way: str) -> Any:
    return WAYS[way]()


@app.job(queue=QUEUE, process=True, max_attempts=1)
def hang(file: str) -> None:
    """Write who hangs, then hang."""
    path = Path(file)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(600)
