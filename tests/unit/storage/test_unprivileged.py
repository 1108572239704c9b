"""Who the embedded server runs as, and what that account can reach."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from rota.errors import EmbeddedPostgresError
from rota.storage import unprivileged
from rota.storage.unprivileged import Account, server_account

STRANGER = Account("stranger", uid=54321, gid=54321)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a claim about root")
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="a claim about users other than root")


@pytest.fixture
def open_path(scratch: Path) -> Path:
    path = scratch / "home" / "below"
    path.mkdir(parents=True)
    path.parent.chmod(0o755)
    path.chmod(0o755)
    return path


def test_a_stranger_reaches_what_is_open_to_all(open_path: Path) -> None:
    assert STRANGER.can_reach(open_path)


def test_a_stranger_does_not_get_through_a_closed_home(open_path: Path) -> None:
    open_path.parent.chmod(0o700)
    assert not STRANGER.can_reach(open_path)
    assert open_path.parent.stat().st_mode & 0o777 == 0o700


def test_the_owner_gets_through_his_own_closed_home(open_path: Path) -> None:
    open_path.parent.chmod(0o700)
    me = Account("me", os.getuid(), os.getgid())
    assert me.can_reach(open_path)


def test_a_member_of_the_group_is_judged_by_the_bits_of_the_group(open_path: Path) -> None:
    member = Account("member", STRANGER.uid, open_path.stat().st_gid)
    open_path.chmod(0o705)
    assert not member.can_reach(open_path)
    open_path.chmod(0o710)
    assert member.can_reach(open_path)


@as_root
def test_for_new_data_root_takes_an_account_without_rights(tmp_path: Path) -> None:
    account = server_account(tmp_path / "data")
    assert account.uid != 0
    assert pwd.getpwnam(account.name).pw_uid == account.uid


@as_root
def test_root_takes_the_next_account_if_the_first_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(unprivileged, "CANDIDATES", ("no-such-user", "root", "nobody"))
    assert server_account(tmp_path / "data").name == "nobody"


@as_root
def test_without_any_account_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(unprivileged, "CANDIDATES", ("no-such-user",))
    with pytest.raises(EmbeddedPostgresError, match="add the user postgres"):
        server_account(tmp_path / "data")


@as_root
def test_root_runs_existing_data_as_its_owner(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
    assert server_account(tmp_path) == Account("nobody", nobody.pw_uid, nobody.pw_gid)


@as_root
def test_data_that_belongs_to_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="belongs to root: give it to the user"):
        server_account(tmp_path)


@as_user
def test_a_user_runs_the_server_as_himself(tmp_path: Path) -> None:
    assert server_account(tmp_path / "data").uid == os.geteuid()
    assert server_account(tmp_path).uid == os.geteuid()


@as_user
def test_data_of_somebody_else_is_refused() -> None:
    with pytest.raises(EmbeddedPostgresError, match="belongs to root"):
        server_account(Path("/"))
