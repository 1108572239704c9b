"""`rota db`: bring the schema up to date, or say where it stands."""

from __future__ import annotations

from typing import Any

import typer

from rota.cli.exits import exit_code
from rota.cli.options import AsJson, DatabaseUrl
from rota.cli.output import print_json, say, show
from rota.cli.session import with_app
from rota.errors import RotaError
from rota.runtime.app import App
from rota.storage.migrate import SchemaStatus, schema_status

commands = typer.Typer(no_args_is_help=True)


@commands.command()
def migrate(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Bring the schema up to this code; safe to run by many at once, and again."""

    async def work(app: App) -> tuple[list[str], SchemaStatus]:
        applied = [step.title for step in await app.migrate()]
        return applied, await schema_status(app.database)

    applied, status = with_app(work, database_url, checked=False)
    if as_json:
        print_json({"applied": applied, **_facts(status)})
    elif applied:
        show(f'Schema "{status.schema}" is now at version {status.version}; applied {", ".join(applied)}.')
    else:
        show(f'Schema "{status.schema}" is at version {status.version} already.')
    _end_unless_usable(status)


@commands.command()
def status(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Say where the schema stands; exit code 4 if this Rota may not run on it."""

    async def work(app: App) -> SchemaStatus:
        return await schema_status(app.database)

    found = with_app(work, database_url, checked=False)
    if as_json:
        print_json(_facts(found))
    elif _problem(found) is None:
        show(f'Schema "{found.schema}" is at version {found.version}; this Rota knows {found.known}.')
    _end_unless_usable(found)


def _facts(status: SchemaStatus) -> dict[str, Any]:
    return {
        "schema": status.schema,
        "version": status.version,
        "known": status.known,
        "pending": status.pending,
        "edited": status.edited,
        "usable": _problem(status) is None,
    }


def _problem(status: SchemaStatus) -> RotaError | None:
    try:
        status.check()
    except RotaError as error:
        return error
    return None


def _end_unless_usable(status: SchemaStatus) -> None:
    if (problem := _problem(status)) is not None:
        say(str(problem))
        raise typer.Exit(exit_code(problem))
