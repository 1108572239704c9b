"""The command line. A file named after a command is that command:

    worker  enqueue  job  db  demo  version

The others are what commands share: `program` puts them together and turns errors into exit
codes (`exits`), `options` holds what several commands ask, `session` opens the database,
`loading` finds the user's App, `output` writes to the terminal, `job_view` and `waiting` say
what a job is and why it does not run yet, `durations` and `payload` read what users type, and
`owner` ends a worker whose owner is gone.
"""

from __future__ import annotations


def main() -> None:
    """The `rota` command."""
    from rota.cli.program import program  # noqa: PLC0415  typer is slow, and only the command needs it

    program(prog_name="rota")
