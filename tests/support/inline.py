"""The `rota` command within the test's own process: quicker where processes do not matter."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from rota.cli.program import program


class Rota:
    """The command on one database; what it said to stderr last is in `err`."""

    def __init__(self, dsn: str) -> None:
        self._environment = {"ROTA_DATABASE_URL": dsn, "ROTA_APP": None}
        self._runner = CliRunner()

    def __call__(self, *arguments: str, code: int = 0, given: str | None = None) -> str:
        result = self._runner.invoke(program, arguments, env=self._environment, input=given)
        assert result.exit_code == code, result.output
        self.err = result.stderr
        return result.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))
