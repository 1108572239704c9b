"""`rota rescue`: what the leader does every few seconds, by hand."""

from __future__ import annotations

import typer

from rota.cli.exits import ExitCode
from rota.cli.options import AsJson, DatabaseUrl
from rota.cli.output import print_json, say, show
from rota.cli.session import with_app
from rota.runtime.app import App


def rescue(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Remove pods whose time has run out, and make the jobs they ran ready again; the leader does it too."""

    async def work(app: App) -> tuple[list[str], int] | None:
        names = {pod.id: pod.name for pod in await app.pods.list_pods()}
        swept = await app.pods.rescue(app.settings.job.max_rescues)
        if swept is None:
            return None
        expired, jobs = swept
        return [names.get(pod, str(pod)) for pod in expired], jobs

    swept = with_app(work, database_url)
    if swept is None:
        say(
            "The server took over from another a moment ago, and pods have one TTL to say that they live; "
            "try again."
        )
        raise typer.Exit(ExitCode.FAILED)
    expired, jobs = swept
    if as_json:
        print_json({"expired": expired, "rescued": jobs})
    else:
        pods = f"{_many(len(expired), 'pod')} expired" + (f" ({', '.join(expired)})" if expired else "")
        show(f"{pods}, {_many(jobs, 'job')} rescued.")


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
