"""Options that several commands have in common."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rota.cli.durations import parse_duration

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="DSN",
        help="Postgres, or `embedded`. Default: ROTA_DATABASE_URL, which keeps a password out of `ps`.",
        show_default=False,
    ),
]
AppName = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", help="Your App. Default: ROTA_APP.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
JobIds = Annotated[
    list[int], typer.Argument(metavar="ID...", min=1, max=2**63 - 1, help="Ids of jobs.", show_default=False)
]
QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The name of a queue.", show_default=False)
]


class Aim(StrEnum):
    """What is waited for after a change of a cap."""

    IN_FORCE = "in-force"
    SETTLED = "settled"


Wait = Annotated[
    Aim | None,
    typer.Option(
        "--wait",
        metavar="[=settled]",
        help="Show the hand-over and return when the cap is in force; =settled: when running jobs have "
        "given their slots back and all are granted.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        parser=parse_duration,
        metavar="DURATION",
        help="Wait no longer, and end with code 1; the change stays. Default: 1m, and forever with settled.",
        show_default=False,
    ),
]


class Waiting(TyperCommand):
    """A command whose --wait may stand alone, and whose last argument may be a negative number.

    Neither is in typer's power: an option has a value always or never, and -5 looks like an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spelled_out(args))


def spelled_out(arguments: list[str]) -> list[str]:
    """The same in words that typer knows."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept: list[str] = []
    numbers: list[str] = []
    for before, argument in zip(["", *arguments[:end]], arguments[:end], strict=False):
        if _NEGATIVE.fullmatch(argument) and not before.startswith("-"):
            numbers.append(argument)
        else:
            kept.append(f"--wait={Aim.IN_FORCE}" if argument == "--wait" else argument)
    rest = [*numbers, *arguments[end + 1 :]]
    return [*kept, "--", *rest] if rest else kept


_NEGATIVE = re.compile(r"-\d+(\.\d+)?")
