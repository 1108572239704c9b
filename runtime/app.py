"""The App: where handlers are registered and jobs are enqueued.

Touches nothing until opened: no connection, no environment, no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Any, Self, Unpack

from rota.clock import Clock, SystemClock
from rota.errors import AppClosed, BadOption, HandlerConflict, JobNotFound
from rota.settings import EMBEDDED, DatabaseSettings, Settings, check_name
from rota.telemetry import Telemetry

from ..storage.assignments import Assignments
from ..storage.embedded import EmbeddedServer, start_embedded
from ..storage.jobs import Enqueued, Jobs
from ..storage.migrate import Migration, migrate, schema_status
from ..storage.pods import Pods
from ..storage.pool import Database, Kept, Password
from ..storage.rows import JobRow, Request, Shape
from .backoff import Retry
from .enqueuer import MOST_AT_ONCE, Enqueuer
from .handlers import Function, Handler, Options, raw_request
from .hooks import Hook
from .job import Inserted, Job, Skipped
from .middleware import Middleware
from .queues import QueueControl, check_max_workers
from .results import Results
from .routing import Router, to_queue
from .sync_door import SyncDoor


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """What code says of a queue that no operator has set yet."""

    max_workers: int
    retry: Retry | None = None


@dataclass(slots=True)
class Opened:
    """All that exists only while an app is open."""

    database: Database
    jobs: Jobs
    enqueuer: Enqueuer
    results: Results


class App:
    """An application: its handlers, its queues, its database."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        database_url: str | None = None,
        queues: Sequence[str] = (),
        router: Router | None = None,
        password: Password | None = None,
    ) -> None:
        if isinstance(queues, str):
            raise BadOption(f"queues is the text {queues!r}; give a list of names.")
        self._settings = settings
        self._database_url = database_url
        self._queues = tuple(queues)
        self._router = router
        self._password = password
        self._handlers: dict[str, Handler[Any]] = {}
        self._declared: dict[str, QueueDefaults] = {}
        self._opened: Opened | None = None
        self._opens = 0
        self._server: EmbeddedServer | None = None
        self.middleware: list[Middleware] = []
        self.hooks: list[Hook] = []
        self.clock: Clock = SystemClock()

    @cached_property
    def settings(self) -> Settings:
        """Read from the environment at first use, with what the code gave on top."""
        settings = self._settings or Settings.load()
        if self._database_url is not None:
            settings = settings.with_database(url=self._database_url)
        if self._queues:
            settings = settings.model_copy(update={"queues": self._queues})
        return settings

    @cached_property
    def telemetry(self) -> Telemetry:
        """Made at first use, when whoever sets up OpenTelemetry's SDK has done so."""
        return Telemetry(self.clock)

    @cached_property
    def _sync_door(self) -> SyncDoor:
        return SyncDoor(lambda: self.connect_to(pool_size=1), self.telemetry.tell)

    @property
    def handlers(self) -> Mapping[str, Handler[Any]]:
        """Handlers by kind."""
        return MappingProxyType(self._handlers)

    @property
    def declared_queues(self) -> Mapping[str, QueueDefaults]:
        """Queues that code speaks of, with their defaults."""
        return MappingProxyType(self._declared)

    def queue(self, name: str, *, max_workers: int = 10, retry: Retry | None = None) -> None:
        """Declare a queue's defaults; what operators set since is never overwritten."""
        check_name("queue", name)
        self._declared[name] = QueueDefaults(check_max_workers(name, max_workers), retry)

    def job(
        self,
        *,
        kind: str | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: float | None = None,
        retry: Retry | None = None,
        fatal: tuple[type[BaseException], ...] = (),
        priority: int = 0,
        process: bool = False,
        replace: bool = False,
    ) -> Callable[[Function], Handler[Any]]:
        """Register a function as the handler of a kind (its name, unless given).

        `fatal` errors are not retried; `process` runs a plain function in a child process;
        `replace` takes the place of a handler that is registered already.
        """

        def register(function: Function) -> Handler[Any]:
            defaults: Options = {"priority": priority}
            if queue is not None:
                defaults["queue"] = queue
            if max_attempts is not None:
                defaults["max_attempts"] = max_attempts
            handler: Handler[Any] = Handler(
                self,
                function,
                kind=kind if kind is not None else str(getattr(function, "__name__", function)),
                timeout=timeout,
                retry=retry,
                fatal=fatal,
                process=process,
                defaults=defaults,
            )
            known = self._handlers.get(handler.kind)
            if known is not None and not replace:
                raise HandlerConflict(
                    f'Kind "{handler.kind}" has two handlers, {known.name} and {handler.name}; '
                    "give one another kind, or replace=True."
                )
            self._handlers[handler.kind] = handler
            return handler

        return register

    def use(self, middleware: Middleware) -> Middleware:
        """Put a middleware around every run, inside those registered before."""
        self.middleware.append(middleware)
        return middleware

    def on_change(self, hook: Hook) -> Hook:
        """Have a hook called after every transition that is in the database."""
        self.hooks.append(hook)
        return hook

    def route(self, kind: str) -> str:
        """The queue of a kind that names none."""
        return (self._router or to_queue(self.settings.job.queue))(kind)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; may be nested, the last close closes."""
        if self._opened is None:
            database = self.connect_to()
            await database.open()
            jobs = Jobs(database)
            self._opened = Opened(
                database,
                jobs,
                Enqueuer(jobs, Kept(database), self.telemetry.tell),
                Results(database, jobs, self.clock, self.telemetry.tell),
            )
        self._opens += 1

    async def close(self) -> None:
        """Give the connections back, and stop the embedded server if this app started it."""
        if self._opened is None:
            return
        self._opens -= 1
        if not self._opens:
            opened, self._opened = self._opened, None
            await opened.results.close()
            await opened.enqueuer.close()
            await opened.database.close()
            self.stop_embedded()

    def connect_to(self, **changes: Any) -> Database:
        """A Database of this app's settings, with changes; not opened."""
        section: DatabaseSettings = self.settings.database
        if section.url == EMBEDDED:
            section = replace(section, url=self.start_embedded().dsn)
        return Database(replace(section, **changes), password=self._password)

    def start_embedded(self) -> EmbeddedServer:
        """The embedded Postgres, started or joined."""
        if self._server is None:
            self._server = start_embedded()
        return self._server

    def stop_embedded(self) -> None:
        """Stop the embedded Postgres if this app started it."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    @property
    def database(self) -> Database:
        return self._require().database

    @property
    def jobs(self) -> Jobs:
        return self._require().jobs

    @property
    def queues(self) -> QueueControl:
        return QueueControl(self.database)

    @property
    def assignments(self) -> Assignments:
        return Assignments(self.database)

    @property
    def pods(self) -> Pods:
        return Pods(self.database)

    async def migrate(self) -> list[Migration]:
        """Bring the schema up to this code."""
        return await migrate(self.database)

    async def check_schema(self) -> None:
        """Raise unless this code may run on the schema."""
        (await schema_status(self.database)).check()

    async def enqueue(self, request: Request, *, connection: Any = None) -> Job:
        """Enqueue one request; with `connection`, in the caller's own transaction."""
        return (await self.enqueue_many([request], connection=connection))[0]

    async def enqueue_many(self, requests: Sequence[Request], *, connection: Any = None) -> list[Job]:
        """Enqueue many, all or none."""
        opened = self._require()
        if not requests:
            return []
        queue, kind = _common(requests)
        with self.telemetry.enqueue_span(queue, kind, len(requests)) as span:
            if span.trace is not None:
                requests = [request.traced(span.trace) for request in requests]
            if connection is not None:
                rows = await opened.jobs.enqueue_jobs(requests, on=connection)
            elif len(requests) <= MOST_AT_ONCE:
                rows = await opened.enqueuer.put(requests)
            else:
                rows = opened.enqueuer.told(await self._enqueue_parts(opened, requests))
            if len(rows) == 1:
                span.created(rows[0][0])
        return [Skipped(self, id) if skipped else Inserted(self, id) for id, skipped in rows]

    async def enqueue_raw(
        self, kind: str, payload: Any = None, *, connection: Any = None, **options: Unpack[Options]
    ) -> Job:
        """Enqueue a job of any kind, whether this app has a handler for it or not."""
        jobs = self.settings.job
        base = Shape(queue=self.route(kind), kind=kind, max_attempts=jobs.max_attempts)
        handler = self._handlers.get(kind)
        if handler is not None:
            return await self.enqueue(handler.request(payload, **options), connection=connection)
        return await self.enqueue(
            raw_request(base, payload, jobs.max_payload, options), connection=connection
        )

    def enqueue_sync(self, request: Request) -> Job:
        """Enqueue from code without an event loop; the app need not be open."""
        with self.telemetry.enqueue_span(request.shape.queue, request.shape.kind) as span:
            if span.trace is not None:
                request = request.traced(span.trace)
            id, skipped = self._sync_door.put(request)
            span.created(id)
        return Skipped(self, id) if skipped else Inserted(self, id)

    async def result(self, job: int, *, timeout: float | None = None) -> Any:
        """Wait for a job's end and give its result."""
        return await self._require().results.wait(job, timeout)

    async def read_job(self, job: int) -> JobRow:
        """A job as it stands."""
        row = await self.jobs.read_job(job)
        if row is None:
            raise JobNotFound(job)
        return row

    async def _enqueue_parts(self, opened: Opened, requests: Sequence[Request]) -> Enqueued:
        """Parts small enough for one statement each, in one transaction."""
        rows: Enqueued = []
        async with opened.database.connection() as connection, connection.transaction():
            for start in range(0, len(requests), MOST_AT_ONCE):
                rows += await opened.jobs.enqueue_jobs(requests[start : start + MOST_AT_ONCE], on=connection)
        return rows

    def _require(self) -> Opened:
        if self._opened is None:
            raise AppClosed('The app is not open; use "async with app:" around this, or enqueue_sync.')
        return self._opened


def _common(requests: Sequence[Request]) -> tuple[str | None, str | None]:
    """The queue and kind of all of them, where they have one in common."""
    first = requests[0].shape
    for request in requests:
        if request.shape is not first and (request.shape.queue, request.shape.kind) != (
            first.queue,
            first.kind,
        ):
            return None, None
    return first.queue, first.kind
