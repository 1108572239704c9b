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
    ├── JobFailed                 `await job.result()` of a job that ended dead or cancelled
    ├── ResultTimeout             `await job.result(timeout=...)` did not see an end in time
    ├── SchemaMissing, SchemaTooOld, SchemaTooNew
    ├── EmbeddedPostgresError     the embedded server cannot be found, started or reached
    ├── PodRetired                a later incarnation of this pod registered over this one
    └── StorageError              Postgres said no
        ├── DatabaseUnavailable   waiting may heal it
        ├── DatabaseRefused       waiting cannot: wrong password, no such database, no right
        ├── Conflict              deadlock, serialization, cancelled; the statement may be sent again whole
        └── RefusedData           this very data was refused (SQLSTATE 22, 23, 54)
"""

from __future__ import annotations


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


class EmbeddedPostgresError(RotaError):
    """The embedded server cannot be found, started or reached."""


class PodRetired(RotaError):
    """A later incarnation of this pod registered over this one."""


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
