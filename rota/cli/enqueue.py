"""`rota enqueue`: one job, of any kind."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from rota.cli.durations import parse_duration
from rota.cli.loading import load_app
from rota.cli.options import AppName, AsJson, DatabaseUrl
from rota.cli.output import print_json, say, show
from rota.cli.payload import read_payload
from rota.cli.session import bare_app, with_app
from rota.cli.waiting import no_taker
from rota.runtime.app import App
from rota.runtime.handlers import Options
from rota.runtime.job import Job
from rota.settings import Settings
from rota.storage.rows import JobRow


def parse_time(text: str) -> datetime:
    """An ISO time; one without a zone is this machine's."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-01-31T18:30 or 2026-01-31T18:30:00+01:00."
        ) from None


def enqueue(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of job.", show_default=False)],
    payload: Annotated[
        str, typer.Argument(metavar="JSON", help="The payload: JSON, @FILE, or - for standard input.")
    ] = "{}",
    queue: Annotated[str | None, typer.Option(help="Default: the kind's own, else `default`.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first; -32000 to 32000.")] = None,
    delay: Annotated[
        float | None,
        typer.Option(parser=parse_duration, metavar="DURATION", help="Due so much later: 30s, 5m."),
    ] = None,
    at: Annotated[
        datetime | None, typer.Option(parser=parse_time, metavar="TIME", help="Due then: an ISO time.")
    ] = None,
    dedupe: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Skip it while a job of this queue and key has not ended."),
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Runs before it is dead.")] = None,
    timeout: Annotated[
        float | None, typer.Option(parser=parse_duration, metavar="DURATION", help="A run may take so long.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why it is enqueued, for people.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be given several times.")] = None,
    app: AppName = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Add a job. With an app its payload is checked; a kind that nobody knows is let in with a warning."""
    value = read_payload(payload)
    given = {
        "queue": queue,
        "priority": priority,
        "delay": delay,
        "run_at": at,
        "dedupe": dedupe,
        "max_attempts": max_attempts,
        "timeout": timeout,
        "note": note,
        "tags": tag or None,
    }
    options: Options = {name: wanted for name, wanted in given.items() if wanted is not None}  # type: ignore[assignment]
    name = app or Settings.load().app
    target = load_app(name) if name else bare_app()

    async def work(opened: App) -> tuple[Job, JobRow | None, str | None]:
        job = await opened.enqueue_raw(kind, value, **options)
        row = await opened.jobs.read_job(job.id)
        return job, row, await _warning(opened, kind, row)

    job, row, warning = with_app(work, database_url, app=target)
    if warning is not None:
        say(warning)
    _show(job, row, as_json)


async def _warning(app: App, kind: str, row: JobRow | None) -> str | None:
    """What keeps this job from being run, as far as the app and the pods that are up can tell."""
    if app.handlers and kind not in app.handlers:
        return f'Warning: the app has no handler of kind "{kind}"; the job waits for a pod that has one.'
    pods = await app.pods.list_pods()
    missing = no_taker(row.queue, kind, pods) if row is not None and pods else None
    return f"Warning: {missing}; the job waits until one does." if missing else None


def _show(job: Job, row: JobRow | None, as_json: bool) -> None:
    if as_json:
        facts = {"queue": row.queue, "state": row.state, "scheduled_at": row.scheduled_at} if row else {}
        print_json({"id": job.id, "skipped": job.skipped, **facts})
    elif job.skipped:
        show(f"Skipped: job {job.id} holds the dedupe key and has not ended.")
    else:
        show(f"Enqueued job {job.id}" + (f" in queue {row.queue}, {row.state}." if row else "."))
