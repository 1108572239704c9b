"""Which directories count as Postgres binaries, and which of them is taken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.errors import EmbeddedPostgresError
from rota.storage import binaries
from rota.storage.binaries import Binaries, copy_binaries, examine, find_binaries

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(name: str, version: str, *programs: str) -> Path:
        directory = tmp_path / name
        directory.mkdir(parents=True)
        for program in programs or ("initdb", "postgres"):
            _program(directory / program, f"{program} (PostgreSQL) {version}")
        return directory

    return make


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has no Postgres."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(binaries, "INSTALLED", ())
    monkeypatch.setattr(binaries, "WHEELS", ())


def _program(path: Path, answer: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("answer", "version"),
    [("14.0", 14), ("15.18 (Debian 15.18-0+deb12u1)", 15), ("18.6", 18), ("19beta1", 19)],
)
def test_a_directory_with_both_programs_counts(make: Make, answer: str, version: int) -> None:
    directory = make("bin", answer)
    assert examine(directory) == Binaries(directory, version)


@pytest.mark.parametrize("version", ["13.22", "9.6.24", "nonsense"])
def test_a_version_before_14_does_not_count(make: Make, version: str) -> None:
    assert examine(make("bin", version)) is None


@pytest.mark.parametrize("program", ["initdb", "postgres", "psql"])
def test_a_directory_that_lacks_a_program_does_not_count(make: Make, program: str) -> None:
    assert examine(make("bin", "17.1", program)) is None


def test_a_program_that_cannot_be_executed_does_not_count(make: Make) -> None:
    directory = make("bin", "17.1")
    (directory / "initdb").chmod(0o644)
    assert examine(directory) is None


def test_a_program_that_fails_does_not_count(make: Make) -> None:
    directory = make("bin", "17.1")
    (directory / "postgres").write_text("#!/bin/sh\nexit 127\n")
    assert examine(directory) is None


@pytest.mark.usefixtures("bare")
def test_the_explicit_directory_may_be_the_one_above_bin(make: Make, tmp_path: Path) -> None:
    directory = make("opt/bin", "16.2")
    assert find_binaries(tmp_path / "opt").directory == directory


def test_an_explicit_directory_that_does_not_count_is_an_error(make: Make) -> None:
    directory = make("bin", "13.4")
    with pytest.raises(EmbeddedPostgresError, match="ROTA_POSTGRES_BIN") as raised:
        find_binaries(directory)
    assert str(directory) in str(raised.value)


@pytest.mark.usefixtures("bare")
def test_without_any_postgres_the_error_says_what_to_install() -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"install rota\[embedded\], or set ROTA_POST"):
        find_binaries()


@pytest.mark.usefixtures("bare")
def test_pg_config_is_asked_first(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = make("asked/bin", "15.1")
    make("16/bin", "16.1")
    _program(make("path", "", "pg_config") / "pg_config", str(asked))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    monkeypatch.setattr(binaries, "INSTALLED", (f"{tmp_path}/*/bin",))
    assert find_binaries().directory == asked


@pytest.mark.usefixtures("bare")
def test_pg_config_of_a_client_is_passed_over(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = make("client/bin", "17.1", "psql")
    server = make("14/bin", "14.1")
    _program(make("path", "", "pg_config") / "pg_config", str(client))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    monkeypatch.setattr(binaries, "INSTALLED", (f"{tmp_path}/[0-9]*/bin",))
    assert find_binaries().directory == server


@pytest.mark.usefixtures("bare")
def test_of_the_installed_versions_the_newest_is_taken(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for version in ("9", "14", "16"):
        make(f"{version}/bin", f"{version}.1")
    make("18/bin", "18.1", "psql")
    monkeypatch.setattr(binaries, "INSTALLED", (f"{tmp_path}/*/bin",))
    assert find_binaries().version == 16


@pytest.mark.usefixtures("bare")
def test_a_wheel_is_the_last_resort_and_is_not_imported(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make("some_wheel/pginstall/bin", "16.3")
    newest = make("some_wheel/pginstall18/bin", "18.4")
    (tmp_path / "some_wheel" / "__init__.py").write_text("raise RuntimeError('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(binaries, "WHEELS", ("missing_wheel", "some_wheel"))
    assert find_binaries() == Binaries(newest, 18)
    assert "some_wheel" not in sys.modules


def test_a_copy_keeps_the_layout_of_a_wheel_and_is_readable_for_all(make: Make, tmp_path: Path) -> None:
    wheel = _wheel(make, tmp_path)
    copied = copy_binaries(Binaries(wheel, 18), into=tmp_path / "place" / "binaries")
    beside = copied.directory / "../../../wheel.libs/libpq.so"
    assert beside.read_text() == "library"
    assert (copied.directory / "../share/postgres.bki").stat().st_mode & 0o777 == 0o644
    assert copied.directory.stat().st_mode & 0o777 == 0o755
    assert not (copied.directory / "../include").exists()
    done = subprocess.run([copied.postgres, "--version"], capture_output=True, check=True)
    assert b"18.6" in done.stdout


def test_a_copy_is_made_once_and_replaced_when_the_original_changed(make: Make, tmp_path: Path) -> None:
    wheel, into = Binaries(_wheel(make, tmp_path), 18), tmp_path / "place"
    first = copy_binaries(wheel, into=into)
    made = first.postgres.stat().st_ino
    assert copy_binaries(wheel, into=into) == first
    assert first.postgres.stat().st_ino == made
    _program(wheel.postgres, "postgres (PostgreSQL) 18.10, longer than before")
    assert copy_binaries(wheel, into=into) != first
    assert len(list(into.iterdir())) == 1


def test_a_copy_that_was_interrupted_is_made_again(make: Make, tmp_path: Path) -> None:
    wheel, into = Binaries(_wheel(make, tmp_path), 18), tmp_path / "place"
    (into / "draft" / "wheel").mkdir(parents=True)
    assert shutil.which("postgres", path=str(copy_binaries(wheel, into=into).directory))


def _wheel(make: Make, tmp_path: Path) -> Path:
    directory = make("site/wheel/pginstall/bin", "18.6")
    prefix = directory.parent
    for path, content in {
        prefix / "lib" / "plpgsql.so": "module",
        prefix / "share" / "postgres.bki": "catalogue",
        prefix / "include" / "postgres.h": "header",
        tmp_path / "site" / "wheel.libs" / "libpq.so": "library",
    }.items():
        path.parent.mkdir()
        path.write_text(content)
        path.chmod(0o600)
    return directory
