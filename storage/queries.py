"""The named SQL of Rota, read from storage/sql once and put into the configured schema."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from rota.errors import BadName

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_SCHEMA = re.compile(r"\brota(?=\.\w)|(?<=CREATE SCHEMA IF NOT EXISTS )rota\b")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@cache
def queries(schema: str) -> dict[str, str]:
    """Every named query, written for this schema and marked with its name for the DBA."""
    folder = files("rota.storage").joinpath("sql")
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            for name, text in _blocks(file.read_text("utf-8")):
                if name in found:
                    raise ValueError(f"query {name} is written twice")
                found[name] = f"/* rota.{name} */ {in_schema(text, schema)}"
    return found


def in_schema(sql: str, schema: str) -> str:
    """The same SQL with every object of `rota` in another schema."""
    return sql if check_schema(schema) == "rota" else _SCHEMA.sub(schema, sql)


def check_schema(schema: str) -> str:
    """Schema names go into SQL as they are, so only plain ones are taken."""
    if not _PLAIN.fullmatch(schema) or schema.startswith("pg_"):
        raise BadName(
            f'The schema name "{schema}" cannot be used; take small letters, digits and "_", '
            'at most 48, not starting with a digit or "pg_".'
        )
    return schema


def _blocks(text: str) -> list[tuple[str, str]]:
    """Split a file into (name, sql), comments left out."""
    parts = _NAME.split(text)
    return [
        (name, "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip())
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    ]
