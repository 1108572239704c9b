"""What is declared is what is in the tree, what is shipped and what is locked."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]
LINKED = {"cluster", "runtime", "storage", "chaos"}
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
LOCK = (REPOSITORY / "requirements" / "lock.txt").read_text(encoding="utf-8")
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "rota", *sorted(LINKED))


def test_every_package_in_the_tree_is_declared() -> None:
    assert sorted(SETUPTOOLS["packages"]) == sorted(packages_in_the_tree())


def test_package_dir_maps_each_linked_package_to_the_top_of_the_repository() -> None:
    expected = {"rota": "rota"} | {f"rota.{name}": name for name in LINKED}
    assert SETUPTOOLS["package-dir"] == expected


def test_the_links_tell_editors_what_package_dir_tells_setuptools() -> None:
    links = {path.name: path.readlink() for path in (REPOSITORY / "rota").iterdir() if is_link(path)}
    assert links == {name: Path("..") / name for name in LINKED}


@pytest.mark.parametrize("name", SETUPTOOLS["packages"])
def test_a_package_is_imported_from_this_tree(name: str) -> None:
    file = import_module(name).__file__
    assert file is not None
    assert Path(file).resolve().is_relative_to(REPOSITORY)


def test_the_wheel_holds_every_package_file_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == files_to_ship()


def test_the_wheel_holds_sql_and_the_mark_of_types(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "rota/py.typed" in names
    assert [name for name in names if re.fullmatch(r"rota/storage/migrations/\d{4}_\w+\.sql", name)]


def test_the_wheel_installs_the_command_and_the_license(wheel: zipfile.ZipFile) -> None:
    info = f"rota-{PROJECT['project']['version']}.dist-info"
    assert "rota = rota.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert "Apache License" in wheel.read(f"{info}/licenses/LICENSE").decode()


def test_the_lock_names_no_address() -> None:
    assert [line for line in LOCK.splitlines() if re.search(r"://|--\w*index|--find|@", line)] == []


def test_every_locked_package_is_pinned_and_hashed() -> None:
    entries = re.split(r"\n(?=[\w-])", LOCK.strip())
    assert len(entries) == len(locked_versions())
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_declared_requirement_is_locked_within_its_range() -> None:
    locked = locked_versions()
    outside = {
        str(requirement): locked.get(canonicalize_name(requirement.name))
        for requirement in declared_requirements()
        if locked.get(canonicalize_name(requirement.name)) not in Allowed(requirement)
    }
    assert outside == {}


def test_the_package_declares_ranges_and_not_pins() -> None:
    runtime = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    operators = {r.name: {clause.operator for clause in r.specifier} for r in runtime}
    assert operators == {name: {">=", "<"} for name in operators}


class Allowed:
    """The locked versions that a requirement accepts; a missing one is never accepted."""

    def __init__(self, requirement: Requirement) -> None:
        self._specifier = requirement.specifier

    def __contains__(self, version: str | None) -> bool:
        return version is not None and self._specifier.contains(version, prereleases=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built offline from a copy: building leaves traces beside the sources."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        copy(REPOSITORY / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--no-index", "--quiet", "--wheel-dir", str(out), str(source)],
        check=True,
        timeout=100,
    )
    (built,) = out.glob("rota-*.whl")
    return zipfile.ZipFile(built)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    else:
        shutil.copy(source, target)


def packages_in_the_tree() -> list[str]:
    inside = (REPOSITORY / "rota").rglob("__init__.py")
    own = {".".join(file.parent.relative_to(REPOSITORY).parts) for file in inside if not linked(file)}
    nested = {
        ".".join(("rota", *file.parent.relative_to(REPOSITORY).parts))
        for name in LINKED
        for file in (REPOSITORY / name).rglob("__init__.py")
    }
    return sorted(own | nested)


def linked(file: Path) -> bool:
    return file.relative_to(REPOSITORY / "rota").parts[0] in LINKED


def is_link(path: Path) -> bool:
    return path.is_symlink()


def files_to_ship() -> set[str]:
    own = {str(file.relative_to(REPOSITORY)) for file in shippable("rota") if not linked(file)}
    nested = {str(Path("rota") / file.relative_to(REPOSITORY)) for name in LINKED for file in shippable(name)}
    return own | nested


def shippable(folder: str) -> list[Path]:
    return [
        path
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and path.suffix not in {".md", ".pyc"} and not path.name.startswith(".")
    ]


def declared_requirements() -> list[Requirement]:
    project = PROJECT["project"]
    texts = [
        *PROJECT["build-system"]["requires"],
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
        *PROJECT["dependency-groups"]["dev"],
    ]
    return [Requirement(text) for text in texts]


def locked_versions() -> dict[str, str]:
    pins = re.findall(r"^([\w.-]+)==([^\s;\\]+)", LOCK, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}
