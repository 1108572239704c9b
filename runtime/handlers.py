"""Handlers: a user's function, its kind, how its payload is read and how it is called."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from rota.errors import BadInput, BadOption
from rota.settings import check_name

from ..storage.rows import Request, Shape
from .backoff import Retry
from .codec import Codec, encode_any
from .context import Context
from .middleware import Call

if TYPE_CHECKING:
    from .app import App
    from .job import Job

P = TypeVar("P")
Function = Callable[..., Any]

LONGEST_DELAY = 10 * 366 * 86_400.0
LONGEST_NOTE = 10_000
_UNFIT = re.compile(r"[\x00\ud800-\udfff]")


class Options(TypedDict, total=False):
    """What one enqueue may say beside its payload."""

    queue: str
    priority: int
    delay: float
    run_at: datetime
    dedupe: str
    max_attempts: int
    timeout: float
    note: str
    tags: Sequence[str]


class Handler(Generic[P]):
    """What `@app.job` makes of a function: call it as before, or enqueue it."""

    def __init__(
        self,
        app: App,
        function: Function,
        *,
        kind: str,
        timeout: float | None,
        retry: Retry | None,
        fatal: tuple[type[BaseException], ...],
        process: bool,
        defaults: Options,
    ) -> None:
        if isinstance(function, type) or not hasattr(function, "__qualname__"):
            raise BadInput(f"{function!r} cannot be a handler; give a function.")
        self.app = app
        self.function = function
        self.kind = check_name("kind", kind)
        self._timeout = timeout
        self.retry = retry
        self.fatal = fatal
        self.process = process
        self.is_async = inspect.iscoroutinefunction(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadInput(f"{self.name} yields; a handler returns its result.")
        if not _are_errors(fatal):
            raise BadOption(f"fatal of {self.name} is {fatal!r}; it must be a tuple of exception types.")
        if process and self.is_async:
            raise BadInput(f"{self.name} is async and process=True; a process runs plain functions.")
        self.takes_context, annotation = _signature(function, self.name)
        if process and self.takes_context:
            raise BadInput(
                f"{self.name} runs in a process and cannot take a Context; take the payload alone."
            )
        self.codec = Codec(self.kind, annotation)
        self.takes_payload = annotation is not None
        self._defaults = defaults
        _shape(Shape(queue="unknown yet", kind=self.kind), defaults)
        if timeout is not None:
            _between("timeout", timeout, 0.001, LONGEST_DELAY)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", self.kind)
        self.__wrapped__ = function

    @property
    def name(self) -> str:
        """The function, as in a traceback."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @cached_property
    def shape(self) -> Shape:
        """What its jobs share unless the call says otherwise; settings are read no earlier than this."""
        jobs = self.app.settings.job
        base = Shape(queue=self.app.route(self.kind), kind=self.kind, max_attempts=jobs.max_attempts)
        return _shape(base, self._defaults)

    @property
    def queue(self) -> str:
        return self.shape.queue

    @property
    def timeout(self) -> float | None:
        """Seconds a run may take, of the kind or else of the settings."""
        return self.app.settings.job.timeout if self._timeout is None else self._timeout

    def __repr__(self) -> str:
        return f"<Handler {self.kind} of {self.name}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function itself, for tests and for other code."""
        return self.function(*arguments, **named)

    def call(self) -> Call:
        """The function as the runtime calls an async one: with context and payload, whatever it takes."""
        function = self.function
        if self.takes_context and self.takes_payload:
            return typing.cast("Call", function)
        if self.takes_context:
            return lambda ctx, payload: function(ctx)
        if self.takes_payload:
            return lambda ctx, payload: function(payload)
        return lambda ctx, payload: function()

    def request(self, payload: P | None = None, **options: Unpack[Options]) -> Request:
        """A job to be enqueued with others; checked here, with the field that is wrong."""
        text = "null"
        if self.takes_payload or payload is not None:
            text = self.codec.encode(payload, self.app.settings.job.max_payload)
        if not options:
            return Request(self.shape, text)
        return Request(_shape(self.shape, options), text, _key(options))

    async def enqueue(
        self, payload: P | None = None, *, connection: Any = None, **options: Unpack[Options]
    ) -> Job:
        """Enqueue one job; with `connection`, in the caller's own transaction."""
        return await self.app.enqueue(self.request(payload, **options), connection=connection)

    def enqueue_sync(self, payload: P | None = None, **options: Unpack[Options]) -> Job:
        """Enqueue from code without an event loop: Flask, a script, a shell."""
        return self.app.enqueue_sync(self.request(payload, **options))


def raw_request(base: Shape, payload: Any, limit: int, options: Options) -> Request:
    """A request of any kind, known here or not."""
    check_name("kind", base.kind)
    text = encode_any(payload, f"payload of {base.kind}", limit)
    return Request(_shape(base, options), text, _key(options))


def _signature(function: Function, name: str) -> tuple[bool, Any]:
    """Whether a context is wanted, and the payload's type (None: no payload wanted)."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadInput(f"The annotations of {name} cannot be read: {error}.") from None
    parameters = list(inspect.signature(function).parameters.values())
    context = bool(parameters) and (hints.get(parameters[0].name) is Context or parameters[0].name == "ctx")
    rest = parameters[1:] if context else parameters
    if len(rest) > 1 or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in rest):
        raise BadInput(f"{name} must take a Context, a payload, both in this order, or nothing.")
    return context, hints.get(rest[0].name, Any) if rest else None


def _are_errors(fatal: Any) -> bool:
    return isinstance(fatal, tuple) and all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in fatal
    )


def _shape(base: Shape, options: Options) -> Shape:
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise BadOption(f"{min(unknown)} is no option of a job; take {', '.join(Options.__annotations__)}.")
    queue = check_name("queue", options.get("queue", base.queue))
    tags = options.get("tags", base.tags)
    if isinstance(tags, str) or not all(_is_text(tag, 128) for tag in tags):
        raise BadOption("tags must be several texts of 1 to 128 characters each, without NUL.")
    note = options.get("note", base.note)
    if note is not None and not _is_text(note, LONGEST_NOTE):
        raise BadOption(f"note must be a text of 1 to {LONGEST_NOTE:,} characters, without NUL.")
    run_at = options.get("run_at")
    if run_at is not None:
        if "delay" in options:
            raise BadOption("delay and run_at exclude each other; give one.")
        if not isinstance(run_at, datetime) or run_at.tzinfo is None:
            raise BadOption(f"run_at is {run_at!r}; it must be a datetime with a time zone.")
    timeout = options.get("timeout", base.timeout)
    return Shape(
        queue=queue,
        kind=base.kind,
        priority=_whole("priority", options.get("priority", base.priority), -32_000, 32_000),
        delay=float(_between("delay", options.get("delay", 0.0), 0, LONGEST_DELAY)),
        run_at=run_at,
        max_attempts=_whole("max_attempts", options.get("max_attempts", base.max_attempts), 1, 32_000),
        timeout=None if timeout is None else float(_between("timeout", timeout, 0.001, LONGEST_DELAY)),
        note=note,
        tags=tuple(tags),
    )


def _key(options: Options) -> str | None:
    key = options.get("dedupe")
    if key is not None and not _is_text(key, 512):
        raise BadOption("dedupe must be a text of 1 to 512 characters, without NUL.")
    return key


def _is_text(value: Any, longest: int) -> bool:
    """Text that Postgres takes: no NUL, no lone surrogate."""
    return isinstance(value, str) and 0 < len(value) <= longest and not _UNFIT.search(value)


def _whole(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadOption(f"{what} is {value!r}; it must be a whole number from {least:,} to {most:,}.")
    return value


def _between(what: str, value: Any, least: float, most: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise BadOption(f"{what} is {value!r}; it must be a number from {least:,g} to {most:,.0f}.")
    return value
