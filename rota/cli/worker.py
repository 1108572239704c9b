"""`rota worker`: one pod, from finding its app to having left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from rota.cli.durations import parse_duration
from rota.cli.loading import load_app
from rota.cli.options import AppName, DatabaseUrl
from rota.cli.owner import end_with_owner
from rota.cli.report import Tally, print_report, print_reports
from rota.cli.session import reached, run, watch_server
from rota.cli.signals import stop_on_signals
from rota.errors import BadSettings, Conflict, DatabaseUnavailable, RotaError
from rota.events import SchemaMigrated
from rota.runtime.app import App
from rota.runtime.pod import Pod
from rota.service import Patience
from rota.settings import Settings
from rota.storage.embedded import EmbeddedServer
from rota.telemetry import setup_telemetry


def worker(
    app: AppName = None,
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Queues to serve, with commas. Default: ROTA_QUEUES.", show_default=False
        ),
    ] = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Bring the schema up to date first.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log as JSON, whatever stderr is.")] = False,
    report: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration, metavar="DURATION", help="Print the pod's state as JSON, so often."
        ),
    ] = None,
    owned: Annotated[bool, typer.Option("--owned", hidden=True)] = False,
) -> None:
    """Run a pod: serve queues until SIGTERM or SIGINT, then drain. A second signal ends it at once."""
    if owned:
        end_with_owner()
    name = app or Settings.load().app
    if not name:
        raise BadSettings("No app to run; pass --app module:attribute or set ROTA_APP.")
    loaded = load_app(name)
    _settle(loaded, queues, as_json)
    stop_telemetry = setup_telemetry(loaded.settings.log)
    try:
        with reached(loaded, database_url) as server:
            run(_serve(loaded, server, migrate, report))
    finally:
        stop_telemetry()


def _settle(app: App, queues: str | None, as_json: bool) -> None:
    """Put what the command line says over what the app's settings say."""
    changes: dict[str, Any] = {}
    if queues is not None:
        changes["queues"] = tuple(name.strip() for name in queues.split(",") if name.strip())
    if as_json:
        changes["log"] = replace(app.settings.log, format="json")
    app.settings = app.settings.model_copy(update=changes)


async def _serve(app: App, server: EmbeddedServer | None, migrate: bool, report: float | None) -> None:
    tally = app.telemetry = Tally(app.clock)
    pod = Pod(app)
    async with asyncio.TaskGroup() as group:
        aside = [group.create_task(watch_server(server))]
        if report is not None:
            aside.append(group.create_task(print_reports(pod, tally, every=report)))
        with stop_on_signals(_end_at_once) as stop:
            await _run_pod(app, pod, migrate, stop)
        for task in aside:
            task.cancel()
    if report is not None:
        print_report(pod, tally)


async def _run_pod(app: App, pod: Pod, migrate: bool, stop: asyncio.Event) -> None:
    """Run the pod until told to stop, however long it takes until the database answers."""
    patience = Patience("starting", app.telemetry.tell)
    while not stop.is_set():
        try:
            if await _unless(stop, app.open()):
                async with _closing(app):
                    if await _unless(stop, _have_schema(app, migrate)):
                        patience.over()
                        await pod.run(stop)
                        return  # drained, by a signal or by an operator
        except (DatabaseUnavailable, Conflict) as error:
            await _unless(stop, patience.wait(error))


@asynccontextmanager
async def _closing(app: App) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await app.close()


async def _have_schema(app: App, migrate: bool) -> None:
    if migrate and (applied := await app.migrate()):
        app.telemetry.tell(SchemaMigrated(app.settings.database.schema, [step.version for step in applied]))
    await app.check_schema()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work, or leave it where it is once told to stop; whether it was done."""
    async with asyncio.TaskGroup() as group:
        stopped = group.create_task(stop.wait())
        working = group.create_task(_kept(work))
        await asyncio.wait((stopped, working), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        working.cancel()
    if working.cancelled():
        return False
    if (error := working.result()) is not None:
        raise error
    return True


async def _kept(work: Coroutine[Any, Any, None]) -> RotaError | None:
    """The error as a value: raised in a group it would come out wrapped."""
    try:
        await work
    except RotaError as error:
        return error
    return None


def _end_at_once(number: int) -> None:
    os._exit(128 + number)
