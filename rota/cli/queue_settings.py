"""What can be set of a queue, as people type it: max_workers=40 paused=true retry=fixed:wait=30s."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
import typer

from rota.cli.durations import parse_duration, say_duration
from rota.errors import BadOption
from rota.runtime.backoff import DEFAULT, POLICIES, Retry, policy_from_json
from rota.runtime.queues import QueueSettings

NAMES = tuple(QueueSettings.__annotations__)
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

_WHOLE = re.compile(r"-?\d{1,30}", re.ASCII)
_BARE = ("factor",)
"""Fields of policies that are no durations."""


def read_settings(pairs: Iterable[str]) -> QueueSettings:
    """Settings from NAME=VALUE pairs, or BadOption."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise BadOption(f"{pair!r} sets nothing; write NAME=VALUE, with one of {', '.join(NAMES)}.")
        if name not in _READERS:
            raise BadOption(f"{name!r} is no setting of a queue; {', '.join(NAMES)} can be set.")
        if name in settings:
            raise BadOption(f"{name} is given twice.")
        settings[name] = _READERS[name](value.strip())
    if not settings:
        raise BadOption(f"Nothing is to be set; write NAME=VALUE, with one of {', '.join(NAMES)}.")
    return settings  # type: ignore[return-value]


def read_whole(text: str) -> Any:
    """A whole number; other text as it is, to be refused with all else that is no cap."""
    return int(text) if _WHOLE.fullmatch(text) else text


def read_retry(text: str) -> Retry | None:
    """A policy: `none`, `fixed:wait=30s`, JSON as in the database, or None for `default`."""
    if text == "default":
        return None
    if text.startswith("{"):
        try:
            return policy_from_json(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise BadOption(f"The retry policy is not JSON: {error}.") from None
    name, _, rest = text.partition(":")
    given = dict(_field(part) for part in rest.split(",") if part.strip())
    if name not in POLICIES:
        raise BadOption(f"{name!r} is no retry policy; take one of default, {', '.join(POLICIES)}.")
    return policy_from_json({"policy": name, **given})


def say_retry(policy: Mapping[str, Any] | None) -> str:
    """A policy as the database has it, in the same words."""
    if policy is None:
        return f"default ({say_retry(DEFAULT.to_json())})"
    fields = (f"{name}={_said(name, value)}" for name, value in policy.items() if name != "policy")
    return ":".join(filter(None, (str(policy.get("policy", "")), ",".join(fields))))


def _read_word(text: str) -> bool:
    if text.lower() not in WORDS:
        raise BadOption(f"paused is {text!r}; it must be true or false.")
    return WORDS[text.lower()]


def _field(part: str) -> tuple[str, float]:
    name, _, value = part.partition("=")
    try:
        return name.strip(), float(value) if name.strip() in _BARE else parse_duration(value)
    except (typer.BadParameter, ValueError):
        raise BadOption(
            f"{part.strip()!r} is no part of a retry policy; write it as wait=30s or factor=2."
        ) from None


def _said(name: str, value: object) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:g}" if name in _BARE else say_duration(value)


_READERS: dict[str, Callable[[str], Any]] = {
    "max_workers": read_whole,
    "paused": _read_word,
    "retry": read_retry,
}
