"""`rota pod`: have one leave."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rota.cli.durations import parse_duration
from rota.cli.exits import ExitCode
from rota.cli.options import AsJson, DatabaseUrl
from rota.cli.output import print_json, say, show
from rota.cli.pod_view import find_pod
from rota.cli.session import with_app
from rota.errors import PodNotFound
from rota.runtime.app import App
from rota.runtime.queues import pauses
from rota.storage.rows import PodRow
from rota.words import Incarnation, PodId

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def pod() -> None:
    """Have a pod leave."""


@commands.command(epilog="Examples: rota pod drain rota-worker-88ad --wait; rota pod drain 88ad.")
def drain(
    pod: Annotated[
        str,
        typer.Argument(metavar="POD", help="Its name or id, or how one of them begins.", show_default=False),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has left.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Wait no longer, and end with code 1.",
            show_default=False,
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have a pod claim nothing new, finish what runs, hand its slots over and end."""
    asked: list[PodRow] = []

    async def work(app: App) -> tuple[PodRow, bool]:
        found = find_pod(pod, await app.pods.list_pods())
        id, incarnation = PodId(found.id), Incarnation(found.incarnation)
        if not await app.pods.drain_pod(id, incarnation):
            raise PodNotFound(pod, [other.name for other in await app.pods.list_pods()])
        asked.append(found)
        return found, wait and not found.silent and await _left(app, found, timeout)

    try:
        found, left = with_app(work, database_url)
    except KeyboardInterrupt:
        if asked:
            say(f"No longer waiting; pod {asked[0].name} goes on draining.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if as_json:
        print_json({"pod": str(found.id), "name": found.name, "running": found.running, "left": left})
    else:
        (show if left or not wait else say)(_sentence(found, left, wait))
    if wait and not left:
        raise typer.Exit(ExitCode.FAILED)


async def _left(app: App, pod: PodRow, timeout: float | None) -> bool:
    """Wait until it has gone, or another boot has taken its place; False: not in time."""
    try:
        async with asyncio.timeout(timeout):
            for pause in pauses():
                pods = await app.pods.list_pods()
                if not any((one.id, one.incarnation) == (pod.id, pod.incarnation) for one in pods):
                    return True
                await asyncio.sleep(pause)
    except TimeoutError:
        pass
    return False


def _sentence(pod: PodRow, left: bool, waited: bool) -> str:
    if left:
        return f"Pod {pod.name} has left."
    if pod.silent:
        return f"Pod {pod.name} fell silent and cannot hear it; a leader removes it, or rota rescue."
    if waited:
        return f"Pod {pod.name} has not left in time; it goes on draining."
    jobs = "1 job" if pod.running == 1 else f"{pod.running} jobs"
    return f"Pod {pod.name} drains: it claims nothing new, finishes {jobs}, hands its slots over and ends."
