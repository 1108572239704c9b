"""`rota demo`: Rota at work on one machine, to look at."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated

import typer

from rota.cli.durations import parse_duration
from rota.cli.options import AsJson, DatabaseUrl
from rota.cli.output import print_json, show
from rota.cli.session import reached, run
from rota.telemetry import setup_logging


def demo(
    length: Annotated[
        float | None,
        typer.Option(
            "--for",
            parser=parse_duration,
            metavar="DURATION",
            help="End by itself after 20s, 5m, ...",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0, max=100_000, help="Jobs enqueued per second.")] = 40,
    pods: Annotated[int, typer.Option(min=1, max=64, help="Pod processes.")] = 3,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run pods and a feeder of demo jobs, and watch them. Ctrl-C stops all of it, with exit code 0.

    Without a database of your own, set ROTA_DATABASE_URL=embedded.
    """
    from rota.demo import app  # noqa: PLC0415  other commands do not need the demo's jobs
    from rota.demo.display import Heard, Lines, Screen, View  # noqa: PLC0415
    from rota.demo.stage import Play, perform  # noqa: PLC0415

    with reached(app, database_url) as server:
        view: View
        if as_json or not sys.stdout.isatty():
            view = Lines(sys.stderr if as_json else sys.stdout, sys.stderr)
        else:
            view = Screen("Rota demo")
        setup_logging(replace(app.settings.log, format="console"), Heard(view))
        with closing(view):
            summary = run(perform(app, Play(pods, rate, length), view, server))
    if as_json:
        print_json(asdict(summary))
    else:
        show(summary.sentence())
