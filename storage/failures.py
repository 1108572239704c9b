"""What asyncpg raises, told in Rota's words; nothing above storage catches asyncpg's errors."""

from __future__ import annotations

from types import TracebackType

import asyncpg

from rota.errors import Conflict, DatabaseRefused, DatabaseUnavailable, RefusedData, StorageError

_REFUSED = ("28", "3D", "42501")
_UNAVAILABLE = ("08", "25006", "53", "57P", "58")
_CONFLICT = ("40", "55P03", "57014")
_DATA = ("22", "23", "54")


class translated:  # noqa: N801 - reads as a word at its use
    """`with translated(address):` around every use of a connection."""

    __slots__ = ("_address",)

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, StorageError):
            told = translate(error, self._address)
            if told is not None:
                raise told from error


def translate(error: BaseException, address: str) -> StorageError | None:
    """The StorageError that says the same, or None where the error is not the database's."""
    if isinstance(error, asyncpg.PostgresError):
        return _by_state(error, address)
    if isinstance(error, asyncpg.InterfaceError) and "password" in str(error):
        return DatabaseRefused(
            f"{address} wants a password; put it into the URL, PGPASSWORD or a password file."
        )
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return DatabaseRefused(f"{address} cannot be used with this DSN: {error}.")
    if isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)):
        reason = str(error).split("\n")[0].rstrip(".") or "no answer in time"
        return DatabaseUnavailable(f"{address} cannot be reached: {reason}.")
    return None


def _by_state(error: asyncpg.PostgresError, address: str) -> StorageError:
    state = error.sqlstate or ""
    reason = str(error).rstrip(".")
    if state.startswith(_REFUSED):
        return DatabaseRefused(f"{address} refused us: {reason}; check user, password, database and rights.")
    if state.startswith(_UNAVAILABLE):
        return DatabaseUnavailable(f"{address} is not available: {reason}.")
    if state.startswith(_CONFLICT):
        return Conflict(f"{address} asks us to try again: {reason}.")
    if state.startswith(_DATA):
        return RefusedData(f"{reason}.")
    return StorageError(f"{address} says: {reason} (SQLSTATE {state}).")
