"""A payload as the command line takes it: JSON in the argument, in a file, or on stdin."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, NoReturn

from rota.errors import BadPayload


def read_payload(argument: str) -> Any:
    """The value of JSON text, of `@file`, or of stdin for `-`; BadPayload says where it is wrong."""
    text, source = _text(argument)
    try:
        # Not orjson, which turns integers beyond 64 bits into floats.
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadPayload(f"{source} is not JSON: {error.msg} at {where}.") from None
    except RecursionError:
        raise BadPayload(f"{source} is nested too deeply.") from None


def _text(argument: str) -> tuple[str, str]:
    try:
        if argument == "-":
            return sys.stdin.read(), "Standard input"
        if argument.startswith("@"):
            return Path(argument[1:]).read_text("utf-8"), f"The file {argument[1:]}"
    except OSError as error:
        raise BadPayload(f"The payload cannot be read from {argument[1:]}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadPayload(f"The payload in {argument} is not UTF-8 text.") from None
    return argument, "The payload"


def _refuse(word: str) -> NoReturn:
    raise BadPayload(f"The payload holds {word}, which JSON does not have.")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise BadPayload(f"The payload holds {text}, which is too large a number.")
    return number
