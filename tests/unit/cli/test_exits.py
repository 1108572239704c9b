"""Every error ends in an exit code that means something."""

import inspect

import pytest

from rota import errors
from rota.cli.exits import MEANING, ExitCode, exit_code
from rota.errors import RotaError

EXPECTED = {
    ExitCode.USAGE: {
        "BadInput",
        "BadName",
        "BadOption",
        "BadPayload",
        "BadSettings",
        "HandlerConflict",
        "HandlerMissing",
        "RefusedData",
    },
    ExitCode.UNAVAILABLE: {"Conflict", "DatabaseUnavailable", "EmbeddedPostgresError"},
    ExitCode.REFUSED: {"DatabaseRefused", "SchemaEdited", "SchemaMissing", "SchemaTooNew", "SchemaTooOld"},
}
ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, RotaError) and error.__module__ == errors.__name__
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_ends_in_the_code_of_its_kind(error: type[RotaError]) -> None:
    expected = next((code for code, names in EXPECTED.items() if error.__name__ in names), ExitCode.FAILED)
    assert exit_code(error.__new__(error)) is expected


@pytest.mark.parametrize("code", ExitCode)
def test_every_code_is_explained(code: ExitCode) -> None:
    assert f"{code:d} " in MEANING
