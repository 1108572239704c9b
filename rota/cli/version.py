"""`rota version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

from rota.cli.options import AsJson
from rota.cli.output import print_json, show
from rota.storage.migrate import migrations


def version(as_json: AsJson = False) -> None:
    """Say which Rota this is, and which version of the schema it knows."""
    told = {
        "rota": version_of("rota"),
        "python": platform.python_version(),
        "schema": migrations()[-1].version,
    }
    if as_json:
        print_json(told)
    else:
        show(f"Rota {told['rota']}, Python {told['python']}, schema version {told['schema']}")
