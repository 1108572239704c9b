"""`rota pods`: who is there."""

from __future__ import annotations

from rota.cli.options import AsJson, DatabaseUrl
from rota.cli.output import print_json, say, show
from rota.cli.pod_view import pod_json, pod_table
from rota.cli.session import with_app
from rota.runtime.app import App
from rota.storage.rows import AssignmentRow, PodRow


def pods(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Every pod, oldest first, with its slots and what it runs; * marks the leader."""

    async def work(app: App) -> tuple[list[PodRow], list[AssignmentRow]]:
        return await app.pods.list_pods(), await app.assignments.list_assignments()

    found, slots = with_app(work, database_url)
    if as_json:
        print_json([pod_json(pod, slots) for pod in found])
    elif found:
        show(pod_table(found, slots))
    else:
        say("There is no pod; rota worker runs one.")
