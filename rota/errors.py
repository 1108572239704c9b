"""Every error Rota raises on purpose.

A message is one plain sentence that says what is wrong and what to do about it;
what a program may want to know is in attributes.

    RotaError
    ├── BadInput                  the caller's mistake; nothing was written
    │   ├── BadPayload            does not validate, cannot be written as JSON, or is too large
    │   ├── BadName               of a queue, a kind, a schema
    │   ├── BadOption             a delay, priority, timeout, ... out of range
    │   ├── BadSettings           an environment variable or argument that cannot be used
    │   └── HandlerConflict       two handlers for one kind
    ├── HandlerMissing            this app has no handler of that kind
    ├── AppClosed                 the app was used before it was opened or after it was closed
    ├── JobNotFound
    ├── QueueNotFound
    ├── QueueExists               a queue of that name cannot be created again
    ├── PodNotFound
    ├── CapOvertaken              the change of a cap that was waited for gave way to a later one
    ├── HandOverTimeout           the change of a cap that was waited for goes on
    ├── JobFailed                 `await job.result()` of a job that ended dead or cancelled
    ├── ResultTimeout             `await job.result(timeout=...)` did not see an end in time
    ├── SchemaMissing, SchemaTooOld, SchemaTooNew, SchemaEdited
    ├── EmbeddedPostgresError     the embedded server cannot be found, started or reached
    ├── PodRetired                a later incarnation of this pod registered over this one
    ├── PodTwin                   another process runs as this pod
    ├── LeaseLost                 the lease has passed on, or can no longer be trusted
    └── StorageError              Postgres said no
        ├── DatabaseUnavailable   waiting may heal it
        ├── DatabaseRefused       waiting cannot: wrong password, no such database, no right
        ├── Conflict              deadlock, serialization, cancelled; the statement may be sent again whole
        └── RefusedData           this very data was refused (SQLSTATE 22, 23, 54)
"""

from __future__ import annotations

from collections.abc import Sequence


class RotaError(Exception):
    """Base of every error raised on purpose."""


class BadInput(RotaError):
    """The caller's mistake; nothing was written."""


class BadPayload(BadInput):
    """A payload that does not validate, cannot be written as JSON, or is too large."""


class BadName(BadInput):
    """A name of a queue, a kind or a schema that cannot be used."""


class BadOption(BadInput):
    """A delay, priority, timeout or other option that is out of range."""


class BadSettings(BadInput):
    """An environment variable or argument that cannot be used."""


class HandlerConflict(BadInput):
    """Two handlers were registered for one kind."""


class HandlerMissing(RotaError):
    """This app has no handler of that kind."""


class AppClosed(RotaError):
    """The app was used before it was opened or after it was closed."""


class JobNotFound(RotaError):
    """No job has this id, waiting, running or kept in history."""

    def __init__(self, job: int) -> None:
        super().__init__(f"There is no job {job}; it may have been pruned.")
        self.job = job


class QueueNotFound(RotaError):
    """No queue has this name."""

    def __init__(self, queue: str, known: Sequence[str]) -> None:
        super().__init__(f'There is no queue "{queue}"; {_there_are(known)}.')
        self.queue = queue
        self.known = tuple(known)


class QueueExists(RotaError):
    """A queue of this name is there already; it was left as it is."""

    def __init__(self, queue: str) -> None:
        super().__init__(f'Queue "{queue}" exists already and was left as it is; resize or set changes it.')
        self.queue = queue


class PodNotFound(RotaError):
    """No pod has this name or id."""

    def __init__(self, pod: str, known: Sequence[str]) -> None:
        super().__init__(f'There is no pod "{pod}"; {_there_are(known)}.')
        self.pod = pod
        self.known = tuple(known)


class CapOvertaken(RotaError):
    """A later change took the place of the one that was waited for."""

    def __init__(self, queue: str, cap: int, aim: str) -> None:
        super().__init__(
            f'The cap {cap} of queue "{queue}" was overtaken by a later change before it was {aim}.'
        )
        self.queue = queue
        self.cap = cap


class HandOverTimeout(RotaError, TimeoutError):
    """The change that was waited for had not come far enough in time; it goes on."""

    def __init__(self, queue: str, cap: int, aim: str, timeout: float, left: str) -> None:
        super().__init__(
            f'The cap {cap} of queue "{queue}" is not {aim} after {timeout:g} s ({left}); the change stays.'
        )
        self.queue = queue
        self.cap = cap
        self.timeout = timeout


class JobFailed(RotaError):
    """The job whose result was awaited ended dead or cancelled."""

    def __init__(self, job: int, state: str, reason: str | None) -> None:
        super().__init__(f"Job {job} ended {state}: {reason or 'no reason was recorded'}.")
        self.job = job
        self.state = state
        self.reason = reason


class ResultTimeout(RotaError, TimeoutError):
    """The job whose result was awaited had not ended in time; it goes on."""

    def __init__(self, job: int, timeout: float) -> None:
        super().__init__(f"Job {job} has not ended after {timeout:g} s; it is still waiting or running.")
        self.job = job
        self.timeout = timeout


class SchemaMissing(RotaError):
    """The database holds no Rota schema of this name."""

    def __init__(self, schema: str) -> None:
        super().__init__(
            f'The database has no Rota schema "{schema}"; run "rota db migrate" '
            "or start the worker with --migrate."
        )
        self.schema = schema


class SchemaTooOld(RotaError):
    """The schema is older than this code."""

    def __init__(self, schema: str, found: int, needed: int) -> None:
        super().__init__(
            f'Schema "{schema}" is at version {found} and this Rota needs {needed}; '
            'run "rota db migrate" or start the worker with --migrate.'
        )
        self.schema = schema
        self.found = found
        self.needed = needed


class SchemaTooNew(RotaError):
    """The schema has moved on beyond what this code may run on."""

    def __init__(self, schema: str, found: int, known: int) -> None:
        super().__init__(
            f'Schema "{schema}" is at version {found} and no longer serves code that knows '
            f"version {known}; install a newer Rota."
        )
        self.schema = schema
        self.found = found
        self.known = known


class SchemaEdited(RotaError):
    """A migration of the schema is not the one that this code has under its number."""

    def __init__(self, schema: str, migrations: Sequence[str]) -> None:
        super().__init__(
            f'Schema "{schema}" was made by another build of Rota, which has something else in '
            f"{', '.join(migrations)}; use the release that made it, or start from an empty schema."
        )
        self.schema = schema
        self.migrations = tuple(migrations)


class EmbeddedPostgresError(RotaError):
    """The embedded server cannot be found, started or reached."""


class PodRetired(RotaError):
    """A later incarnation of this pod registered over this one."""


class PodTwin(RotaError):
    """Another process runs as this pod."""


class LeaseLost(RotaError):
    """The lease has passed on, or can no longer be trusted."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"The lease of epoch {epoch} is over; another pod may lead.")
        self.epoch = epoch


class StorageError(RotaError):
    """Postgres said no."""


class DatabaseUnavailable(StorageError):
    """The database did not answer; waiting may heal it, and the outcome is unknown."""


class DatabaseRefused(StorageError):
    """The database will not have us, and waiting cannot change that."""


class Conflict(StorageError):
    """A deadlock, a serialization failure, a statement cancelled: it may be sent again whole."""


class RefusedData(StorageError):
    """This very data was refused (SQLSTATE class 22, 23 or 54)."""


_MOST_NAMES = 12


def _there_are(known: Sequence[str]) -> str:
    """What there is instead, as far as a sentence can hold it."""
    if not known:
        return "there is none"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(known[:_MOST_NAMES])}{more}"
