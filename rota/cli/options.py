"""Options that several commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

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
