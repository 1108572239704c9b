"""What a command writes: results to stdout, as a table or one JSON document; all else to stderr."""

from __future__ import annotations

import re
import sys
from typing import Any

import orjson
from rich.console import Console, RenderableType

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_WIDTH_OF_PIPES = 160
"""Columns where nobody looks: enough that no table is cut."""


def print_json(value: Any) -> None:
    """One JSON document, readable by machines and people."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    sys.stdout.write(text)
    sys.stdout.flush()


def show(thing: RenderableType) -> None:
    """Results for people; a sentence stays one line, however narrow the terminal."""
    if isinstance(thing, str):
        print(plain(thing), flush=True)
    else:
        console().print(thing)


def say(sentence: str) -> None:
    """A diagnostic, to stderr, on one line."""
    print(plain(sentence).replace("\n", " "), file=sys.stderr, flush=True)


def console() -> Console:
    """Stdout, taking users' data as it is: no markup, no emoji, no guessing of colours."""
    wide = None if sys.stdout.isatty() else _WIDTH_OF_PIPES
    return Console(markup=False, emoji=False, highlight=False, width=wide)


def plain(text: str) -> str:
    """Text that cannot steer the terminal: control characters are shown, not sent."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
