"""`rota job`: show one, list many, cancel or retry some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from rota.cli.exits import ExitCode
from rota.cli.job_view import job_details, job_table
from rota.cli.options import AsJson, DatabaseUrl, JobIds
from rota.cli.output import print_json, say, show
from rota.cli.session import with_app
from rota.cli.waiting import why_waiting
from rota.runtime.app import App
from rota.storage.rows import JobRow
from rota.words import JobState

commands = typer.Typer(no_args_is_help=True)

CANCELLED = {
    "cancelled": "Job {id} is cancelled.",
    "requested": "Job {id} runs; it was asked to stop.",
    "ended": "Job {id} has ended already.",
    "missing": "There is no job {id}; it may have been pruned.",
}
RETRIED = {
    "ready": "Job {id} is ready.",
    "running": "Job {id} is running already.",
    "missing": "There is no job {id}; it may have been pruned.",
    "skipped": "Job {id} was left alone: job {other} holds its dedupe key.",
}
SUCCESSES = {"cancelled", "requested", "ready"}


@commands.command(name="show")
def show_job(
    job: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, show_default=False)],
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Everything about one job: where it stands and why, its payload, errors, progress and result."""

    async def work(app: App) -> tuple[JobRow, str | None]:
        row = await app.read_job(job)
        if row.state not in (JobState.SCHEDULED, JobState.READY):
            return row, None
        queues, pods = await app.queues.list_queues(), await app.pods.list_pods()
        return row, why_waiting(row, queues, pods, await app.assignments.list_assignments())

    row, why = with_app(work, database_url)
    if as_json:
        print_json({**asdict(row), "waiting": why})
    else:
        show(job_details(row, why))


@commands.command(name="list")
def list_jobs(
    state: Annotated[list[JobState] | None, typer.Option(help="May be given several times.")] = None,
    queue: Annotated[str | None, typer.Option(help="Of this queue.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of this kind.")] = None,
    tag: Annotated[str | None, typer.Option(help="With this tag.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    before: Annotated[
        int | None,
        typer.Option(metavar="ID", min=1, max=2**63 - 1, help="Older than this one: the next page."),
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first."""

    async def work(app: App) -> list[JobRow]:
        return await app.jobs.list_jobs(
            states=state, queue=queue, kind=kind, tag=tag, before=before, most=limit
        )

    jobs = with_app(work, database_url)
    if as_json:
        print_json(jobs)
        return
    if not jobs:
        say("There is no such job.")
        return
    show(job_table(jobs))
    if len(jobs) == limit:
        say(f"There may be more: --before {jobs[-1].id} shows the next.")


@commands.command()
def cancel(
    jobs: JobIds,
    reason: Annotated[str | None, typer.Option(help="Kept with a job that was waiting.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs: waiting ones at once, running ones as soon as their handler ends."""

    async def one(app: App, job: int) -> dict[str, Any]:
        return {"id": job, "outcome": await app.jobs.cancel_job(job, reason)}

    _each(jobs, one, CANCELLED, database_url, as_json)


@commands.command()
def retry(jobs: JobIds, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Bring ended jobs back with all their attempts, or make scheduled ones ready now."""

    async def one(app: App, job: int) -> dict[str, Any]:
        outcome, other = await app.jobs.retry_job(job)
        return {"id": job, "outcome": outcome, "other": other}

    _each(jobs, one, RETRIED, database_url, as_json)


def _each(
    jobs: list[int],
    one: Callable[[App, int], Awaitable[dict[str, Any]]],
    sentences: dict[str, str],
    database_url: str | None,
    as_json: bool,
) -> None:
    """Do it to each job and say what came of it; exit code 1 unless it could be done to all."""

    async def work(app: App) -> list[dict[str, Any]]:
        return [await one(app, job) for job in dict.fromkeys(jobs)]

    told = with_app(work, database_url)
    if as_json:
        print_json(told)
    for result in told:
        done = result["outcome"] in SUCCESSES
        if not as_json:
            (show if done else say)(sentences[result["outcome"]].format(**result))
    if any(result["outcome"] not in SUCCESSES for result in told):
        raise typer.Exit(ExitCode.FAILED)
