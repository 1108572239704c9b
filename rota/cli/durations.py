"""Spans of time as people type them: 30s, 5m, 1h30m, 500ms, or plain seconds."""

from __future__ import annotations

import re

import typer

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

_PART = r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])"
_SPAN = re.compile(rf"(?:{_PART}\s*)+", re.ASCII)
_PLAIN = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def parse_duration(text: str | float) -> float:
    """Seconds, or BadParameter; a number without a unit is seconds."""
    text = str(text).strip().lower()
    if _PLAIN.fullmatch(text):
        return float(text)
    if not _SPAN.fullmatch(text):
        raise typer.BadParameter(
            f"{text!r} is no duration; write 30s, 5m, 2h, 1d, 1h30m or a number of seconds."
        )
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(_PART, text))


def say_duration(seconds: float) -> str:
    """The same the other way, in at most two units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole, said = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        size = int(UNITS[unit])
        if whole >= size:
            said.append(f"{whole // size}{unit}")
            whole %= size
    return "".join(said[:2])
