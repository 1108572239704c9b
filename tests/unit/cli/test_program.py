"""The command as a whole: how errors end it, and what loading it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rota.cli import worker
from rota.cli.exits import ExitCode
from rota.cli.program import program
from rota.errors import DatabaseRefused, PodRetired, RotaError, SchemaMissing

runner = CliRunner()


def ended_by(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(worker, "load_app", fail)
    result = runner.invoke(program, ["worker", "--app", "shop:app"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RotaError("No."), ExitCode.FAILED),
        (SchemaMissing("rota"), ExitCode.REFUSED),
        (ExceptionGroup("pod", [ExceptionGroup("lane", [DatabaseRefused("No.")])]), ExitCode.REFUSED),
        (BaseExceptionGroup("pod", [PodRetired("No."), DatabaseRefused("Nor.")]), ExitCode.FAILED),
    ],
)
def test_an_error_made_on_purpose_is_one_sentence_and_a_code(
    error: BaseException, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, told = ended_by(error, monkeypatch)
    assert ended == code
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "error", [KeyError("bug"), ExceptionGroup("pod", [RotaError("No."), KeyError("bug")])]
)
def test_a_bug_keeps_its_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        ended_by(error, monkeypatch)


@pytest.mark.parametrize(
    "arguments",
    [
        ["job", "show", "x"],
        ["job", "show", "0"],
        ["job", "show", str(2**63)],
        ["job", "list", "--state", "asleep"],
        ["job", "list", "--limit", "0"],
        ["enqueue", "kind", "--delay", "later"],
        ["enqueue", "kind", "--at", "soon"],
        ["enqueue", "kind", "{", "--database-url", "postgresql://127.0.0.1:1/x"],
        ["enqueue", "k\udcff"],
        ["demo", "--for", "ever"],
        ["queue", "resize", "emails"],
        ["queue", "resize", "emails", "4", "--wait=later"],
        ["queue", "resize", "emails", "4", "--timeout", "soon"],
        ["queue", "resize", "emails", "4", "--wait", "--dry-run"],
        ["queue", "set", "emails", "colour=red"],
        ["queue", "set", "emails"],
        ["queue", "create", "emails", "--retry", "sometimes"],
        ["queue", "show", "emails", "--last", "-1"],
        ["pod", "drain"],
        ["frobnicate"],
        ["job", "list", "--database-url", "mysql://root:secret@host/db"],
        ["job", "list", "--database-url", "postgresql://root:secret@host:port/db"],
        ["job", "list", "--database-url", "host=localhost dbname=x"],
    ],
)
def test_wrong_usage_ends_with_code_2_and_no_traceback(arguments: list[str]) -> None:
    result = runner.invoke(program, arguments, env={"ROTA_DATABASE_URL": "", "ROTA_APP": ""})
    assert result.exit_code == ExitCode.USAGE
    assert isinstance(result.exception, SystemExit)
    assert "secret" not in result.output


@pytest.mark.parametrize(
    "command",
    [[], ["worker"], ["enqueue"], ["job"], ["job", "list"], ["queue"], ["pods"], ["slots"], ["db"], ["demo"]],
)
def test_help_explains_the_exit_codes(command: list[str]) -> None:
    result = runner.invoke(program, [*command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert ("4 refused by the database" in result.output) == (command != ["job", "list"])


def test_a_bad_setting_is_named_as_its_variable() -> None:
    result = runner.invoke(program, ["job", "list"], env={"ROTA_POD_GRACE": "long"})
    assert result.exit_code == ExitCode.USAGE
    assert "ROTA_POD_GRACE" in result.stderr


def test_importing_rota_loads_neither_typer_nor_rich() -> None:
    ask = "import sys, rota, rota.cli; print([m for m in ('typer', 'rich', 'click') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"
