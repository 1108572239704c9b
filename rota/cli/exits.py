"""What the exit codes of `rota` mean, and which error ends in which."""

from __future__ import annotations

from enum import IntEnum

from rota.errors import (
    BadInput,
    Conflict,
    DatabaseRefused,
    DatabaseUnavailable,
    EmbeddedPostgresError,
    HandlerMissing,
    RefusedData,
    RotaError,
    SchemaEdited,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
)

MEANING = (
    "Exit codes: 0 done; 1 not found, or could not be done; 2 wrong usage or bad input; "
    "3 database not available; 4 refused by the database, or schema missing, or of another version or build; "
    "130 Ctrl-C."
)


class ExitCode(IntEnum):
    """How a command ended, for scripts."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    REFUSED = 4
    INTERRUPTED = 130


_BY_ERROR: dict[ExitCode, tuple[type[RotaError], ...]] = {
    ExitCode.USAGE: (BadInput, HandlerMissing, RefusedData),
    ExitCode.UNAVAILABLE: (DatabaseUnavailable, Conflict, EmbeddedPostgresError),
    ExitCode.REFUSED: (DatabaseRefused, SchemaMissing, SchemaTooOld, SchemaTooNew, SchemaEdited),
}


def exit_code(error: RotaError) -> ExitCode:
    """The code that says what kind of error it was."""
    return next((code for code, errors in _BY_ERROR.items() if isinstance(error, errors)), ExitCode.FAILED)
