"""`rota slots`: who has the slots."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import AsJson, DatabaseUrl
from rota.cli.output import print_json, say, show
from rota.cli.session import with_app
from rota.cli.slot_view import slot_json, slot_table
from rota.runtime.app import App
from rota.storage.rows import AssignmentRow


def slots(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Of this queue only.", show_default=False)
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Who has the slots: what each pod should have of each queue, holds and runs, and what it gives back."""

    async def work(app: App) -> list[AssignmentRow]:
        if queue is not None:
            await app.queues.show(queue)
        return [row for row in await app.assignments.list_assignments() if queue in (None, row.queue)]

    rows = with_app(work, database_url)
    if as_json:
        print_json([slot_json(row) for row in rows])
    elif rows:
        show(slot_table(rows))
    else:
        say("No pod serves it." if queue is not None else "There is no pod; rota worker runs one.")
