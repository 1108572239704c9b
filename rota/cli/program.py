"""The whole of `rota`: every command in one place, and one place where errors become exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from rota.cli import db, job, pod, queue
from rota.cli.demo import demo
from rota.cli.enqueue import enqueue
from rota.cli.exits import MEANING, exit_code
from rota.cli.output import say
from rota.cli.pods import pods
from rota.cli.rescue import rescue
from rota.cli.slots import slots
from rota.cli.version import version
from rota.cli.worker import worker
from rota.errors import RotaError


class Program(TyperGroup):
    """Says an error made on purpose in its one sentence; any other is a bug and keeps its traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for argument in args:
            if not argument.isascii() and argument != argument.encode(errors="replace").decode():
                raise typer.BadParameter(f"{argument!r} is not UTF-8 text.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RotaError as error:
            raise _ended(error) from error
        except BaseExceptionGroup as group:
            errors = list(_leaves(group))
            told = [error for error in errors if isinstance(error, RotaError)]
            if len(told) < len(errors):
                raise
            raise _ended(told[0]) from group


def _ended(error: RotaError) -> typer.Exit:
    say(str(error))
    return typer.Exit(exit_code(error))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


program = typer.Typer(
    name="rota",
    cls=Program,
    help="Run background jobs on a fleet of Python processes over one PostgreSQL.",
    epilog=MEANING,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
program.command(epilog=MEANING)(worker)
program.command(epilog=MEANING)(enqueue)
program.add_typer(job.commands, name="job", help="Look at jobs and change their course.", epilog=MEANING)
program.add_typer(
    queue.commands, name="queue", help="Look at queues and change what they may run, live.", epilog=MEANING
)
program.command(epilog=MEANING)(pods)
program.add_typer(pod.commands, name="pod", help="Have a pod leave.", epilog=MEANING)
program.command(epilog=MEANING)(slots)
program.command(epilog=MEANING)(rescue)
program.add_typer(db.commands, name="db", help="The schema in the database.", epilog=MEANING)
program.command(epilog=MEANING)(demo)
program.command()(version)
