"""The command line. A file named after a command is that command:

    worker  enqueue  job  queue  pods  pod  slots  rescue  db  demo  version

The others are what commands share: `program` puts them together and turns errors into exit
codes (`exits`), `options` holds what several commands ask, `session` opens the database,
`loading` finds the user's App, `output` writes to the terminal. `job_view`, `queue_view`,
`pod_view` and `slot_view` show what there is, `handover_view` how far a resize has come, and
`waiting` says why a job does not run yet. `durations`, `payload` and `queue_settings` read what
users type, and `owner` ends a worker whose owner is gone.
"""

from __future__ import annotations


def main() -> None:
    """The `rota` command."""
    from rota.cli.program import program  # noqa: PLC0415  typer is slow, and only the command needs it

    program(prog_name="rota")
