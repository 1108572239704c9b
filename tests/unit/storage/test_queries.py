"""The named queries: each written once, used by the function of its name, at home in any schema."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rota.errors import BadName
from rota.storage.migrate import migrations
from rota.storage.queries import check_schema, in_schema, queries

REPOSITORY = Path(__file__).resolve().parents[3]
STORAGE = REPOSITORY / "storage"
CALLS = {"fetch", "fetchrow", "fetchval", "execute"}


def used_queries() -> dict[str, set[str]]:
    """Query names that storage runs, and the functions that run them."""
    used: dict[str, set[str]] = {}
    for path in STORAGE.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for name in _names_in(function):
                    used.setdefault(name, set()).add(function.name)
    return used


def _names_in(function: ast.AST) -> set[str]:
    """Named in a call of the database, or looked up in `queries`."""
    found: set[str] = set()
    for node in ast.walk(function):
        given: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
            given = node.args[0] if node.args else None
        elif isinstance(node, ast.Subscript) and "queries" in ast.unparse(node.value):
            given = node.slice
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            found.add(given.value)
    return found


def test_every_query_is_used_and_every_used_query_is_written() -> None:
    assert set(used_queries()) == set(queries("rota"))


def test_a_query_of_a_table_is_run_by_the_function_of_its_name() -> None:
    """So that a DBA who sees the name in pg_stat_activity finds the code, and the other way round.
    A function may run another query beside its own, for a case that can be had for less."""
    tables = "".join((STORAGE / "sql" / name).read_text() for name in ("jobs.sql", "pods.sql", "queues.sql"))
    named = set(re.findall(r"^-- name: (\w+)$", tables, re.MULTILINE))
    used = used_queries()
    assert named
    homeless = {name for name in named if not any(home.lstrip("_") in named for home in used[name])}
    assert homeless == set()


def test_every_query_is_marked_with_its_name() -> None:
    assert [
        name for name, text in queries("rota").items() if not text.startswith(f"/* rota.{name} */ ")
    ] == []


def test_comments_do_not_travel_to_the_server() -> None:
    assert [name for name, text in queries("rota").items() if "--" in text] == []


def test_every_query_says_what_its_parameters_are() -> None:
    for file in (STORAGE / "sql").glob("*.sql"):
        for block in file.read_text(encoding="utf-8").split("-- name: ")[1:]:
            comments = [line for line in block.splitlines() if line.startswith("--")]
            statement = "\n".join(line for line in block.splitlines() if not line.startswith("--"))
            parameters = set(re.findall(r"\$\d+", statement))
            documented = set(re.findall(r"\$\d+", "\n".join(comments)))
            assert documented >= parameters, block.splitlines()[0]


def test_another_schema_takes_the_place_of_rota_everywhere() -> None:
    for sql in (*queries("acme").values(), *(in_schema(m.sql, "acme") for m in migrations())):
        statement = re.sub(r"/\* rota\.\w+ \*/", "", sql)
        bare = [line for line in statement.splitlines() if not line.lstrip().startswith("--")]
        assert re.findall(r"\brota\b", "\n".join(bare)) == []


def test_the_channel_moves_with_the_schema() -> None:
    (first, *_) = migrations()
    assert "'acme.notice'" in in_schema(first.sql, "acme")


@pytest.mark.parametrize("text", ["SELECT rotation.x", "SELECT 'the rota of 2024'", "SELECT x.rota"])
def test_other_words_are_left_alone(text: str) -> None:
    assert in_schema(text, "acme") == text


@pytest.mark.parametrize("schema", ["rota", "rota_2", "_x", "a" * 48])
def test_a_plain_schema_name_is_taken(schema: str) -> None:
    assert check_schema(schema) == schema


@pytest.mark.parametrize(
    "schema",
    ["", "Rota", "2nd", "a-b", "a b", 'a"; DROP TABLE job; --', "a.b", "ümlaut", "a" * 49, "pg_rota", "x\n"],
)
def test_a_schema_name_that_would_need_quoting_is_refused(schema: str) -> None:
    with pytest.raises(BadName):
        queries(schema)
