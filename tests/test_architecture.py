"""The laws of the tree that no linter knows: see "Import law" and "Conventions" in CONTRIBUTING.md.

Each law is a function from a source text to what it finds wrong, so that the laws themselves are
tested: every one must reject the examples written for it.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
LINKED = ("cluster", "runtime", "storage", "chaos")
PRODUCT = ("rota", *LINKED)
PYTHON = (*PRODUCT, "tests", "bench")
PURE = (
    "chaos/invariants.py",
    "cluster/planner.py",
    "cluster/rules.py",
    "cluster/view.py",
    "runtime/backoff.py",
    "runtime/cron.py",
    "runtime/outcome.py",
)
LONGEST_FILE = 400
SKIPPED = {"__pycache__", "bench/out", "build", "dist"}

# Joined here, because a test that names a host would be the file that names it.
REGISTRIES = re.compile(
    "|".join(
        rf"\b{re.escape('.'.join(labels))}\b"
        for labels in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("crates", "io"),
            ("proxy", "golang", "org"),
            ("sum", "golang", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("maven", "org"),
            ("maven", "apache", "org"),
            ("debian", "org"),
        )
    )
)

SQL = re.compile(
    r"""^\s*(
        SELECT\s
      | select\s.+\sfrom\s
      | insert\s+into\s
      | update\s+[\w.]+\s+(as\s+\w+\s+)?set\s
      | delete\s+from\s
      | with\s+(recursive\s+)?\w+\s+as\s+(materialized\s+)?\(
      | (create|alter|drop)\s+(or\s+replace\s+)?
        (database|extension|function|index|role|schema|sequence|table|type|unlogged|view)\s
      | truncate\s+(table\s+)?[\w.]+\s*;?\s*$
      | (LISTEN|NOTIFY|UNLISTEN)\s
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
# Upper-case SELECT and LISTEN are SQL; in a sentence they are not shouted.
SHOUTED = re.compile(r"^\s*(SELECT|LISTEN|NOTIFY|UNLISTEN)\s", re.IGNORECASE)


def python_files(*folders: str) -> list[Path]:
    return [
        path for folder in folders for path in committed_files(REPOSITORY / folder) if path.suffix == ".py"
    ]


def committed_files(folder: Path = REPOSITORY) -> Iterator[Path]:
    """Every file below the folder, once: links are not followed, what tools left is not seen."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = path.relative_to(REPOSITORY).as_posix()
        hidden = path.name.startswith(".") and path.is_dir() and path.name != ".ci"
        if path.is_symlink() or hidden or {name, path.name} & SKIPPED or name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from committed_files(path)
        else:
            yield path


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Every absolute import as (line, dotted name); `from a import b` is a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def relative_imports(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = "." * node.level + (node.module or "")
            separator = "." if node.module else ""
            yield from ((node.lineno, f"{module}{separator}{alias.name}") for alias in node.names)


def belongs_to(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def top_level_imports(source: str) -> list[str]:
    """Imports of a linked package by the generic name of its folder."""
    return [f"{line}: {name}" for line, name in imports(source) if belongs_to(name, LINKED)]


def absolute_imports_of_linked_packages(source: str) -> list[str]:
    linked = tuple(f"rota.{package}" for package in LINKED)
    return [f"{line}: {name}" for line, name in imports(source) if belongs_to(name, linked)]


def impure_imports(source: str) -> list[str]:
    found = [
        *((line, name) for line, name in imports(source) if belongs_to(name, IMPURE)),
        *((line, name) for line, name in relative_imports(source) if RELATIVE_STORAGE.match(name)),
    ]
    return [f"{line}: {name}" for line, name in found]


IMPURE = ("asyncio", "time", "random", "secrets", "rota.storage", "rota.clock.SystemClock")
RELATIVE_STORAGE = re.compile(r"\.\.+storage\b")


def asyncpg_imports(source: str) -> list[str]:
    return [f"{line}: {name}" for line, name in imports(source) if belongs_to(name, ("asyncpg",))]


def sql_in_strings(source: str) -> list[str]:
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        f"{node.lineno}: {node.value.strip()[:60]!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in prose and looks_like_sql(node.value)
    ]


def looks_like_sql(text: str) -> bool:
    if SHOUTED.match(text) and not text.lstrip()[:6].isupper():
        return re.match(r"\s*select\s.+\sfrom\s", text, re.DOTALL) is not None
    return SQL.match(text) is not None


def registry_hosts(text: str) -> list[str]:
    return [
        f"{line}: {found.group()}"
        for line, content in enumerate(text.splitlines(), start=1)
        for found in REGISTRIES.finditer(content)
    ]


def missing_docstring(source: str) -> list[str]:
    return [] if ast.get_docstring(ast.parse(source)) else ["1: no module docstring"]


def too_long(source: str) -> list[str]:
    lines = source.count("\n")
    return [] if lines <= LONGEST_FILE else [f"{lines} lines: split it by responsibility"]


def untidy(text: str) -> list[str]:
    return [
        complaint
        for complaint, wrong in (
            ("does not end in one newline", text != "" and not re.search(r"[^\n]\n\Z", text)),
            ("has Windows line ends", "\r" in text),
            ("has merge conflict marks", re.search(r"^(<{7}|>{7}) ", text, re.MULTILINE)),
            ("has trailing spaces", re.search(r"[ \t]$", text, re.MULTILINE)),
        )
        if wrong
    ]


def broken(law: Callable[[str], list[str]], files: list[Path]) -> list[str]:
    assert files, "the law was applied to no file at all"
    return [
        f"{path.relative_to(REPOSITORY)}:{complaint}"
        for path in files
        for complaint in law(path.read_text(encoding="utf-8"))
    ]


def test_nobody_imports_a_linked_package_by_its_folder_name() -> None:
    assert broken(top_level_imports, python_files(*PYTHON)) == []


def test_linked_packages_import_each_other_relatively() -> None:
    assert broken(absolute_imports_of_linked_packages, python_files(*LINKED)) == []


def test_pure_files_import_no_time_no_chance_no_loop_and_no_storage() -> None:
    for path in PURE:
        if (REPOSITORY / path).exists():
            assert broken(impure_imports, [REPOSITORY / path]) == []


def test_only_storage_names_asyncpg() -> None:
    others = [folder for folder in PRODUCT if folder != "storage"]
    assert broken(asyncpg_imports, python_files(*others)) == []


def test_sql_lives_in_sql_files() -> None:
    assert broken(sql_in_strings, python_files(*PRODUCT)) == []


def test_no_committed_file_names_a_package_registry() -> None:
    assert broken(registry_hosts, text_files()) == []


def test_every_module_says_what_it_owns() -> None:
    assert broken(missing_docstring, python_files(*PRODUCT)) == []


def test_no_file_grew_past_one_sitting() -> None:
    assert broken(too_long, python_files(*PRODUCT)) == []


def test_files_are_tidy() -> None:
    assert broken(untidy, [path for path in text_files() if path.name != "LICENSE"]) == []


def test_files_are_named_after_what_they_do() -> None:
    vague = re.compile(r"manager|helper|utils?\b|misc|common")
    assert [path for path in python_files(*PYTHON) if vague.search(path.stem)] == []


def text_files() -> list[Path]:
    return [path for path in committed_files() if b"\0" not in path.read_bytes()[:4096]]


@pytest.mark.parametrize(
    ("law", "source"),
    [
        (top_level_imports, "import storage"),
        (top_level_imports, "import storage.jobs as jobs"),
        (top_level_imports, "from cluster.planner import plan"),
        (top_level_imports, "def late() -> None:\n    from runtime import app"),
        (absolute_imports_of_linked_packages, "from rota.storage.jobs import claim_jobs"),
        (absolute_imports_of_linked_packages, "from rota import cluster"),
        (absolute_imports_of_linked_packages, "import rota.runtime"),
        (impure_imports, "import asyncio.timeouts"),
        (impure_imports, "from time import monotonic"),
        (impure_imports, "from random import random"),
        (impure_imports, "from ..storage import jobs"),
        (impure_imports, "from .. import storage"),
        (asyncpg_imports, "import asyncpg"),
        (asyncpg_imports, "from asyncpg.exceptions import PostgresError"),
        (sql_in_strings, 'query = "SELECT 1"'),
        (sql_in_strings, 'query = "select id from rota.job"'),
        (sql_in_strings, 'query = f"DELETE FROM {schema}.job"'),
        (sql_in_strings, 'run("""\n    UPDATE rota.job\n    SET state = 1""")'),
        (sql_in_strings, 'run("WITH ready AS (")'),
        (sql_in_strings, 'run("CREATE SCHEMA rota")'),
        (sql_in_strings, 'run("LISTEN rota")'),
        (registry_hosts, "index-url = https://" + "pypi" + ".org/simple"),
        (registry_hosts, "see registry." + "npmjs" + ".org for more"),
        (missing_docstring, "x = 1\n"),
        (too_long, "x = 1\n" * (LONGEST_FILE + 1)),
        (untidy, "x = 1"),
        (untidy, "x = 1\n\n"),
        (untidy, "x = 1 \n"),
        (untidy, "x = 1\r\n"),
        (untidy, "<" * 7 + " mine\n"),
    ],
)
def test_a_law_rejects_what_breaks_it(law: Callable[[str], list[str]], source: str) -> None:
    assert law(source) != []


@pytest.mark.parametrize(
    ("law", "source"),
    [
        (top_level_imports, "from rota.storage import jobs\nfrom .cluster import view"),
        (absolute_imports_of_linked_packages, "from ..storage.jobs import claim_jobs"),
        (absolute_imports_of_linked_packages, "from rota.words import JobId"),
        (impure_imports, "from datetime import timedelta\nfrom .view import ClusterView"),
        (impure_imports, "from rota.clock import Clock\nfrom .timetable import row"),
        (sql_in_strings, '"""SELECT is explained here."""'),
        (sql_in_strings, 'help = "Select a queue, or all of them"'),
        (sql_in_strings, 'help = "Update the queue and set its cap"'),
        (sql_in_strings, 'help = "With each beat as it comes"'),
        (sql_in_strings, 'help = "Listen on this port"'),
        (registry_hosts, "go install github.com/Shopify/toxiproxy/v2/cmd/server"),
        (untidy, ""),
    ],
)
def test_a_law_accepts_what_keeps_it(law: Callable[[str], list[str]], source: str) -> None:
    assert law(source) == []
