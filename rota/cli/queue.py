"""`rota queue`: look at queues, and change what they may run while everything runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from rota.cli.exits import ExitCode
from rota.cli.handover_view import hand_over_json, outcome, rehearsal_json, rehearsal_table, shown
from rota.cli.options import Aim, AsJson, DatabaseUrl, QueueArgument, Timeout, Wait, Waiting
from rota.cli.output import print_json, say, show
from rota.cli.queue_settings import read_retry, read_settings, read_whole
from rota.cli.queue_view import (
    QueueDetails,
    QueueSummary,
    queue_details,
    queue_json,
    queue_table,
    summarize,
    unserved,
)
from rota.cli.session import with_app
from rota.errors import BadOption
from rota.runtime.app import App
from rota.runtime.queues import Change, HandOver
from rota.storage.rows import QueueRow

commands = typer.Typer(no_args_is_help=True)

PATIENCE = 60.0
"""Seconds that a cap may take to be in force: several times what a pod that is cut off can cost."""

RETRY = (
    "default, none, fixed:wait=30s, linear:step=30s,longest=15m or exponential:base=1s,factor=2,longest=15m"
)
WORKERS = typer.Argument(
    metavar="N", help="So many may run at once, in the whole cluster.", show_default=False
)


@commands.command(name="list")
def list_queues(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Every queue: its cap, its slots, what waits in it, and how many pods serve it."""

    async def work(app: App) -> list[QueueSummary]:
        return await _summaries(app, await app.queues.list_queues())

    queues = with_app(work, database_url)
    if as_json:
        print_json(queues)
    elif queues:
        show(queue_table(queues))
    else:
        say("There is no queue yet; the first pod that serves one makes it, or rota queue create.")
    if (warning := unserved(queues)) is not None:
        say(warning)


@commands.command(name="show")
def show_queue(
    queue: QueueArgument,
    last: Annotated[int, typer.Option(min=0, max=1000, help="So many cap changes and plans.")] = 5,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """One queue with its retry policy, who has its slots, its last cap changes and plans."""

    async def work(app: App) -> QueueDetails:
        row = await app.queues.show(queue)
        (summary,) = await _summaries(app, [row])
        slots = [slot for slot in await app.assignments.list_assignments() if slot.queue == queue]
        changes = await app.queues.list_changes(queue, last)
        return QueueDetails(summary, row.retry, slots, changes, await app.assignments.list_plans(queue, last))

    found = with_app(work, database_url)
    if as_json:
        print_json(queue_json(found))
    else:
        show(queue_details(found))
    if (warning := unserved([found.summary])) is not None:
        say(warning)


@commands.command()
def create(
    queue: QueueArgument,
    max_workers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Default: ROTA_JOB_MAX_WORKERS, or 10.", show_default=False),
    ] = None,
    retry: Annotated[str | None, typer.Option(metavar="POLICY", help=f"{RETRY}.", show_default=False)] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a queue before any pod serves it. One that exists is left as it is: exit code 1."""
    policy = None if retry is None else read_retry(retry)

    async def work(app: App) -> QueueRow:
        default = app.settings.job.max_workers
        workers = default if max_workers is None else read_whole(max_workers)
        await app.queues.create(queue, max_workers=workers, retry=policy)
        return await app.queues.show(queue)

    made = with_app(work, database_url)
    if as_json:
        print_json({"queue": made.name, "max_workers": made.max_workers, "retry": made.retry})
    else:
        show(f'Queue "{made.name}" is made; {made.max_workers} may run at once.')


@commands.command(
    cls=Waiting,
    epilog="Examples: rota queue resize emails 40 --wait; rota queue resize emails 0 --wait=settled "
    "--timeout 10m; rota queue resize emails 100 --dry-run.",
)
def resize(
    queue: QueueArgument,
    max_workers: Annotated[str, WORKERS],
    wait: Wait = None,
    timeout: Timeout = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan it would make; change nothing.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Let N jobs of a queue run at once, in the whole cluster; what runs above a lowered cap finishes."""
    workers = read_whole(max_workers)
    if not dry_run:
        _change(lambda app: app.queues.resize(queue, workers), wait, timeout, database_url, as_json)
        return
    if wait is not None:
        raise BadOption("--dry-run changes nothing, so that there is nothing to wait for; leave one out.")
    plan = with_app(lambda app: app.queues.rehearse(queue, workers), database_url)
    if as_json:
        print_json(rehearsal_json(plan))
    else:
        show(rehearsal_table(plan))


@commands.command(cls=Waiting)
def pause(
    queue: QueueArgument,
    wait: Wait = None,
    timeout: Timeout = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Start no more jobs of a queue, anywhere; what runs finishes."""
    _change(lambda app: app.queues.pause(queue), wait, timeout, database_url, as_json)


@commands.command(cls=Waiting)
def resume(
    queue: QueueArgument,
    wait: Wait = None,
    timeout: Timeout = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """End a pause."""
    _change(lambda app: app.queues.resume(queue), wait, timeout, database_url, as_json)


@commands.command(
    name="set",
    cls=Waiting,
    epilog="Examples: rota queue set emails max_workers=40 retry=fixed:wait=30s; "
    "rota queue set emails retry=default.",
)
def set_queue(
    queue: QueueArgument,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help=f"max_workers=N; paused=true or false; retry={RETRY}.",
            show_default=False,
        ),
    ],
    wait: Wait = None,
    timeout: Timeout = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change some settings of a queue, all at once or none; pods take them up at once."""
    wanted = read_settings(settings)
    told = f'Set {", ".join(wanted)} of queue "{queue}".'
    of_cap = {"max_workers", "paused"} & wanted.keys()
    _change(
        lambda app: app.queues.set(queue, **wanted),
        wait,
        timeout,
        database_url,
        as_json,
        say_first=told,
        say_outcome=bool(of_cap),
    )


def _change(
    ask: Callable[[App], Awaitable[Change]],
    wait: Aim | None,
    timeout: float | None,
    database_url: str | None,
    as_json: bool,
    *,
    say_first: str | None = None,
    say_outcome: bool = True,
) -> None:
    """Ask for a change, wait for it if told to, and say what came of it."""
    asked: list[Change] = []

    async def work(app: App) -> HandOver:
        asked.append(await ask(app))
        if wait is None:
            return await app.queues.look(asked[0])
        with shown(wait, quiet=as_json) as see:
            return await app.queues.wait(
                asked[0],
                settled=wait is Aim.SETTLED,
                timeout=PATIENCE if timeout is None and wait is Aim.IN_FORCE else timeout,
                see=see,
            )

    try:
        now = with_app(work, database_url)
    except KeyboardInterrupt:
        if asked:
            say("No longer waiting; the change stays.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    reached = wait is None or now.in_force
    if as_json:
        print_json(hand_over_json(now))
    else:
        for sentence in (say_first, outcome(now, wait) if say_outcome else None):
            if sentence is not None:
                (show if reached else say)(sentence)
    if not reached:
        raise typer.Exit(ExitCode.FAILED)


async def _summaries(app: App, queues: Sequence[QueueRow]) -> list[QueueSummary]:
    return summarize(
        queues,
        await app.assignments.list_assignments(),
        await app.pods.list_pods(),
        await app.jobs.count_jobs(),
    )
