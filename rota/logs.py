"""Log lines: how they look and how many there may be. What is told is telemetry.py's.

Whatever a record holds, it comes out as one line of JSON, or as one entry on the console that nothing
inside it can pass for another.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Protocol, TextIO

import orjson
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

from rota.clock import Clock
from rota.events import Event, Run
from rota.settings import LogSettings

LOG = logging.getLogger("rota")
JOB_LOG = logging.getLogger("rota.job")


class QueuedRun(Run, Protocol):
    """A run that knows its queue."""

    @property
    def queue(self) -> str: ...


current_run: ContextVar[QueuedRun | None] = ContextVar("rota_current_run", default=None)
"""The run this code is part of; where it is set, every log line in it names the job."""

_CHATTY = ("asyncio", "urllib3")
"""Libraries whose debug lines are about themselves."""

_TOLD_BY_US = ("asyncpg.pool",)
"""Logs a traceback whenever a connection breaks, of which DatabaseLost tells in one line."""

_LISTED = 10
"""Members of a list that a message names."""

_COLOURS = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31;1"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OWN = {"event", "facts"}
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z


def setup_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Log to the stream, by default stderr: for programs that are ours. A second call replaces the first."""
    stream = sys.stderr if stream is None else stream
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = RotaHandler(stream)
    handler.setFormatter(_formatter(settings, stream))
    handler.addFilter(stamp)
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one, RotaHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.INFO))
    for name in _TOLD_BY_US:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class RotaHandler(logging.StreamHandler[TextIO]):
    """The handler that setup_logging made, known by its type."""


def _formatter(settings: LogSettings, stream: TextIO) -> logging.Formatter:
    terminal = stream.isatty()
    if settings.format == "json" or (settings.format == "auto" and not terminal):
        return JsonFormatter()
    return ConsoleFormatter(colour=terminal and not os.environ.get("NO_COLOR"))


def stamp(record: logging.LogRecord) -> bool:
    """A filter that lets all pass, and writes on each record which run and which span it belongs to."""
    run = current_run.get()
    if run is not None and not hasattr(record, "job") and not hasattr(record, "facts"):
        vars(record).update(_names(run, run.queue))
    span = get_current_span().get_span_context()
    if span.is_valid:
        record.trace_id = format_trace_id(span.trace_id)
        record.span_id = format_span_id(span.span_id)
    return True


def job_logger(run: Run, queue: str) -> logging.LoggerAdapter[logging.Logger]:
    """A logger whose lines name the job; made when a handler first asks for it."""
    return JobLogger(JOB_LOG, _names(run, queue))


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's names to whatever `extra` a call has of its own."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def _names(run: Run, queue: str) -> dict[str, Any]:
    return {"job": run.id, "kind": run.kind, "queue": queue, "attempt": run.attempt}


def write(log: logging.Logger, level: int, message: str, event: str, facts: Mapping[str, Any]) -> None:
    """One line about an event: its facts fill the message, and stand beside it in JSON."""
    shown = {name: _shown(value) for name, value in facts.items()}
    # Without facts there must be no argument: an empty one would be taken for a value to fill in.
    log.log(level, message, *([shown] if shown else []), extra={"event": event, "facts": facts})


def facts_of(event: Event) -> dict[str, Any]:
    """The fields of the event by their names."""
    return {field.name: getattr(event, field.name) for field in fields(event)}


def _shown(value: Any) -> Any:
    """A list as a person would write it down."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    named = ", ".join(map(str, value[:_LISTED])) or "none"
    return named if len(value) <= _LISTED else f"{named} and {len(value) - _LISTED} more"


class JsonFormatter(logging.Formatter):
    """ts, level, logger, message, the event and its facts, the extra of the call, exception, stack."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        own = vars(record)
        if "event" in own:
            line["event"] = own["event"]
        if isinstance(facts := own.get("facts"), Mapping):
            line.update(facts)
        for key, value in _extra(record):
            # What the caller named like a part of the line is kept beside it, not lost.
            line[f"{key}_" if key in line else key] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _one_line(line)


class ConsoleFormatter(logging.Formatter):
    """Time of day, level, logger, message, the extra of the call; for the eyes of one person."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).astimezone()
        level = f"{record.levelname.lower():<7}"
        if self._colour and record.levelno in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelno]}m{level}\x1b[0m"
        told = "".join(
            [
                record.getMessage(),
                *(f" {key}={_text(value)}" for key, value in _extra(record)),
                "\n" + self.formatException(record.exc_info) if record.exc_info else "",
                "\n" + self.formatStack(record.stack_info) if record.stack_info else "",
            ]
        )
        return f"{when:%H:%M:%S}.{when.microsecond // 1000:03d} {level} {record.name}: {_tame(told)}"


def _extra(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    for key, value in vars(record).items():
        if key not in _STANDARD and key not in _OWN:
            yield key, value


def _tame(text: str) -> str:
    """Text that cannot begin an entry of its own nor speak to the terminal."""
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text).replace("\n", "\n    ")


def _one_line(line: dict[str, Any]) -> str:
    try:
        return orjson.dumps(line, default=str, option=_JSON).decode()
    except TypeError:
        return orjson.dumps({_text(key): _sayable(value) for key, value in line.items()}).decode()


def _sayable(value: Any) -> orjson.Fragment | str:
    """The value as JSON, or else in words."""
    try:
        return orjson.Fragment(orjson.dumps(value, default=str, option=_JSON))
    except TypeError:
        return _text(value)


def _text(value: Any) -> str:
    try:
        text = str(value)
    except Exception:
        text = object.__repr__(value)
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(slots=True)
class _Second:
    ends: float
    lines: int = 0


class Ration:
    """So many lines per key and second; what goes beyond is counted."""

    def __init__(self, clock: Clock, lines: int) -> None:
        self._clock = clock
        self._lines = lines
        self._seconds: dict[tuple[str, int], _Second] = {}

    def take(self, key: tuple[str, int]) -> int:
        """0 if a line may be written, else how many have been refused in this second."""
        second = self._seconds.get(key)
        if second is None:
            second = self._seconds[key] = _Second(self._clock.monotonic() + 1.0)
        second.lines += 1
        return max(0, second.lines - self._lines)

    def settle(self) -> list[tuple[str, int, int]]:
        """End the seconds that are over: the key of each that refused lines, and how many."""
        if not self._seconds:
            return []
        now = self._clock.monotonic()
        # A copy, and pop: enqueues of other threads tell too.
        over = {key: second for key, second in list(self._seconds.items()) if now >= second.ends}
        for key in over:
            self._seconds.pop(key, None)
        return [
            (*key, second.lines - self._lines) for key, second in over.items() if second.lines > self._lines
        ]
