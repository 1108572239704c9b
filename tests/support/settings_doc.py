"""docs/settings.md, written from settings.py: `python -m tests.support.settings_doc`."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from rota.settings import Settings

DOC = Path(__file__).parents[2] / "docs" / "settings.md"

HEAD = """# Settings

Every knob, read once at start from the environment. Times are seconds. This page is written from
`rota/settings.py` (`python -m tests.support.settings_doc`), and a test keeps it true.
"""

FOOT = """
## Embedded

Read only when `ROTA_DATABASE_URL` is `embedded`.

| variable | default | what and why |
| --- | --- | --- |
| `ROTA_EMBEDDED_DIR` | a directory of the user's | where its data is kept between runs |
| `ROTA_POSTGRES_BIN` | the system's, else a wheel's | the directory of `initdb` and `postgres`, 14 or later |
"""


def written() -> str:
    """The page."""
    top, sections = [], []
    for name, field in Settings.model_fields.items():
        if hasattr(field.default, "__dataclass_fields__"):
            section = type(field.default)
            rows = [_row(f"{name}_{each.name}", each.default) for each in fields(section)]
            sections.append(f"\n## {name.capitalize()}\n\n{section.__doc__}\n\n{_table(rows)}")
        else:
            top.append(_row(name, field))
    return f"{HEAD}\n{_table(top)}{''.join(sections)}{FOOT}"


def _row(name: str, field: Any) -> str:
    default = field.default
    if default in (MISSING, PydanticUndefined, None, "", ()):
        shown = ""
    else:
        shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
    return f"| `ROTA_{name.upper()}` | {shown} | {field.description} |"


def _table(rows: list[str]) -> str:
    return "\n".join(["| variable | default | what and why |", "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    DOC.write_text(written())
