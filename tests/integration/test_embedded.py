"""The embedded Postgres, with real servers: one per directory, never left behind, found again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rota.errors import EmbeddedPostgresError
from rota.storage import postmaster
from rota.storage.binaries import find_binaries
from rota.storage.embedded import EmbeddedServer, start_embedded
from rota.storage.tether import start_tethered, stop_tethered
from rota.storage.unprivileged import server_account
from tests.support.owner import Owner, start_owner
from tests.support.postgres import FAST
from tests.support.processes import Watch, is_alive, processes_that_name
from tests.support.scratch import scratch_directory

HASTE = {**FAST, "max_connections": "20", "shared_buffers": "16MB"}
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def initialised() -> Iterator[Path]:
    """A directory that a server has run in; most claims begin with a copy of it, which is quick."""
    with scratch_directory() as directory:
        start_embedded(directory=directory / "used", settings=HASTE).stop()
        yield directory / "used"


@pytest.fixture
def place(initialised: Path, scratch: Path) -> Path:
    subprocess.run(["cp", "-a", initialised, scratch / "embedded"], check=True)
    return scratch / "embedded"


@pytest.fixture
def own(place: Path) -> Iterator[Callable[..., Owner]]:
    """Start processes that own a server in the place, or attach to the one that is there."""
    owners: list[Owner] = []

    def own(**options: Any) -> Owner:
        owners.append(start_owner(place, HASTE, **options))
        return owners[-1]

    yield own
    for owner in owners:
        owner.end()


def start(place: Path, **settings: str) -> EmbeddedServer:
    return start_embedded(directory=place, settings={**HASTE, **settings})


def ask(server: EmbeddedServer, question: str) -> Any:
    async def asking() -> Any:
        connection = await asyncpg.connect(server.dsn)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    return asyncio.run(asking())


def data_of(place: Path) -> Path:
    return place / str(find_binaries().version) / "data"


def test_a_first_start_makes_a_database_that_is_durable_and_local(scratch: Path) -> None:
    with start_embedded(directory=scratch / "new") as server:
        assert not server.attached
        assert server.running()
        assert ask(server, "SELECT current_database()") == "rota"
        assert ask(server, "SHOW server_encoding") == "UTF8"
        assert ask(server, "SHOW fsync") == "on"
        assert ask(server, "SHOW synchronous_commit") == "on"
        assert ask(server, "SHOW listen_addresses") == "127.0.0.1"
        assert ask(server, "SHOW server_version").startswith(str(server.version))
    assert not server.running()
    assert not is_alive(server.pid)


def test_data_persists_between_runs(place: Path) -> None:
    with start(place) as first:
        ask(first, "CREATE TABLE kept AS SELECT 17 AS number")
    with start(place) as second:
        assert ask(second, "SELECT number FROM kept") == 17


def test_it_starts_inside_a_running_event_loop(place: Path) -> None:
    async def inside() -> None:
        with start(place) as server:
            connection = await asyncpg.connect(server.dsn)
            assert await connection.fetchval("SELECT 1") == 1
            await connection.close()

    asyncio.run(inside())


def test_another_database_is_made_if_asked_for(place: Path) -> None:
    name = 'odd "name" of a/database'
    with start_embedded(directory=place, settings=HASTE, database=name) as server:
        assert ask(server, "SELECT current_database()") == name


def test_a_database_that_cannot_be_made_is_an_error_and_leaves_no_server(place: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="zero-length"):
        start_embedded(directory=place, settings=HASTE, database="")
    assert processes_that_name(str(place)) == []


def test_stopping_twice_is_stopping_once(place: Path) -> None:
    server = start(place)
    server.stop()
    server.stop()
    assert not server.running()


def test_the_socket_is_in_a_directory_that_only_the_server_may_enter(place: Path) -> None:
    with start(place) as server:
        assert server.socket == server.data
        assert server.data.stat().st_mode & 0o077 == 0
        assert list(server.data.glob(".s.PGSQL.*"))


@pytest.mark.parametrize("name", ["a path, with \"quotes\" and 'more'", "long" * 40])
def test_it_runs_in_a_directory_whatever_its_name(place: Path, name: str) -> None:
    with start(place.rename(place.with_name(name))) as server:
        assert ask(server, "SELECT 1") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("off_main_thread", [False, True], ids=["by kernel", "by pipe"])
def test_the_server_does_not_outlive_an_owner_that_is_killed(
    own: Callable[..., Owner], place: Path, number: int, off_main_thread: bool
) -> None:
    owner = own(off_main_thread=off_main_thread)
    processes = Watch([owner.told()["pid"], *processes_that_name(str(place))])
    owner.kill(number)
    processes.wait_until_gone()


def test_nothing_is_left_when_the_owner_stops_the_server(own: Callable[..., Owner], place: Path) -> None:
    owner = own(off_main_thread=True)
    processes = Watch([owner.told()["pid"], *processes_that_name(str(place))])
    assert owner.end() == 0
    processes.wait_until_gone()


@on_linux
def test_the_server_ends_with_its_owner_even_if_a_shell_made_it_ignore_sigint(
    own: Callable[..., Owner],
) -> None:
    ignoring = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable)
    owner = own(python=ignoring)
    server = Watch([owner.told()["pid"]])
    owner.kill()
    server.wait_until_gone()


def test_ctrl_c_in_a_terminal_does_not_reach_the_server(own: Callable[..., Owner]) -> None:
    owner = own()
    server = owner.told()["pid"]
    assert os.getsid(server) != os.getsid(owner.process.pid)
    assert os.getpgid(server) != os.getpgid(owner.process.pid)


@on_linux
def test_the_server_is_not_told_our_secrets(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_TEST_SECRET", "told")
    with start(place) as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert b"told" not in environment
    assert b"PATH=" in environment


def test_a_second_start_attaches_and_leaves_the_server_running(place: Path) -> None:
    with start(place) as owner:
        with start(place) as other:
            assert other.attached
            assert (other.pid, other.dsn) == (owner.pid, owner.dsn)
            assert ask(other, "SELECT 1") == 1
        assert other.running()
        assert ask(owner, "SELECT 1") == 1


def test_an_attached_process_can_tell_that_the_server_went(place: Path) -> None:
    with start(place):
        attached = start(place)
        assert attached.running()
    assert not attached.running()


def test_an_attached_process_does_not_take_a_later_server_for_its_own(place: Path) -> None:
    with start(place):
        attached = start(place)
    with start(place):
        assert not attached.running()


def test_a_server_that_somebody_started_by_hand_is_attached_to(place: Path) -> None:
    data, log = data_of(place), data_of(place).parent / "by-hand.log"
    options = (f"port={postmaster._free_port()}", "unix_socket_directories=", "fsync=off")
    command = [str(find_binaries().postgres), "-D", str(data)]
    command += [part for option in options for part in ("-c", option)]
    by_hand = start_tethered(command, server_account(data), log=log)
    try:
        wait_until_ready(data)
        with start(place) as server:
            assert server.attached
            assert server.pid == by_hand.pid
        assert by_hand.poll() is None
    finally:
        stop_tethered(by_hand)


def test_starts_at_the_same_time_make_one_server(own: Callable[..., Owner]) -> None:
    owners = [own() for _ in range(4)]
    told = [owner.told() for owner in owners]
    assert len({server["pid"] for server in told}) == 1
    assert sorted(server["attached"] for server in told) == [False, True, True, True]


def test_first_starts_at_the_same_time_make_one_server(scratch: Path) -> None:
    owners = [start_owner(scratch / "new", HASTE) for _ in range(2)]
    told = [owner.told() for owner in owners]
    for owner in owners:
        owner.end()
    assert len({server["pid"] for server in told}) == 1


def test_a_start_right_after_the_owner_was_killed_waits_and_has_a_server_of_its_own(
    own: Callable[..., Owner], place: Path
) -> None:
    owner = own()
    before = owner.told()["pid"]
    owner.kill()
    with start(place) as server:
        assert not server.attached
        assert server.pid != before
        assert ask(server, "SELECT 1") == 1


def test_the_pid_file_of_a_dead_server_is_recovered_from(place: Path) -> None:
    server = start(place)
    processes = Watch(processes_of(server))
    os.kill(server.pid, signal.SIGKILL)
    processes.wait_until_gone()
    server.stop()
    assert (server.data / "postmaster.pid").exists()
    with start(place) as after:
        assert ask(after, "SELECT 1") == 1


def test_the_pid_file_of_a_server_whose_pid_another_process_has_now_is_recovered_from(
    place: Path,
) -> None:
    with start(place) as server:
        content = (server.data / "postmaster.pid").read_text().splitlines()
    # Postgres itself sees through a pid of another user, and through that of its parent.
    user = server.data.stat().st_uid
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=user) as bystander:
        content[0] = str(bystander.pid)
        (server.data / "postmaster.pid").write_text("\n".join(content) + "\n")
        with start(place) as after:
            assert not after.attached
            assert ask(after, "SELECT 1") == 1
        assert bystander.poll() is None


def test_the_remains_of_a_killed_initdb_do_not_matter(scratch: Path, place: Path) -> None:
    data = data_of(place)
    remains = data.with_name("initdb-killed") / "data"
    remains.mkdir(parents=True)
    (remains / "PG_VERSION").write_text("half")
    shutil.rmtree(data)
    with start(place) as server:
        assert ask(server, "SELECT 1") == 1
    assert not remains.exists()


def test_a_port_that_somebody_takes_first_is_given_up_for_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_free_port = postmaster._free_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], find_free_port()])
        monkeypatch.setattr(postmaster, "_free_port", lambda: next(ports))
        with start(place) as server:
            assert ask(server, "SELECT 1") == 1


def test_a_directory_of_something_else_is_refused_and_left_alone(scratch: Path) -> None:
    data = data_of(scratch)
    data.mkdir(parents=True)
    (data / "letter").write_text("dear")
    with pytest.raises(EmbeddedPostgresError, match="move it away") as raised:
        start(scratch)
    assert str(data) in str(raised.value)
    assert (data / "letter").read_text() == "dear"


def test_data_of_another_version_is_refused(place: Path) -> None:
    (data_of(place) / "PG_VERSION").write_text("13\n")
    with pytest.raises(EmbeddedPostgresError, match=r"PG_VERSION: 13\).*ROTA_EMBEDDED_DIR"):
        start(place)


def test_the_data_directory_of_another_postgres_is_refused(place: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="is the data directory of another Postgres"):
        start(data_of(place))


def test_a_file_in_place_of_the_directory_is_refused(scratch: Path) -> None:
    (scratch / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match="set ROTA_EMBEDDED_DIR to a directory"):
        start(scratch / "file")


def test_a_server_that_cannot_start_shows_the_end_of_its_log(place: Path) -> None:
    (data_of(place) / "global" / "pg_control").unlink()
    with pytest.raises(EmbeddedPostgresError, match="may be lost, remove") as raised:
        start(place)
    assert "pg_control" in str(raised.value)


def test_a_setting_that_postgres_does_not_know_is_shown(place: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="unrecognized configuration parameter"):
        start(place, nonsense="1")


def test_the_log_is_of_this_run_and_the_one_before(place: Path) -> None:
    logs = data_of(place).parent
    for _ in range(2):
        start(place).stop()
    assert sorted(path.name for path in logs.glob("server.log*")) == ["server.log", "server.log.1"]
    assert (logs / "server.log").read_text().count("ready to accept connections") == 1


def test_the_setting_for_the_binaries_is_used(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_POSTGRES_BIN", str(scratch / "nothing"))
    with pytest.raises(EmbeddedPostgresError, match=f"^{scratch}/nothing does not hold"):
        start(scratch)


def wait_until_ready(data: Path) -> None:
    for _ in postmaster.tries():
        found = postmaster.find_postmaster(data)
        if found is not None and found.ready:
            return
    pytest.fail("the server did not become ready")


def processes_of(server: EmbeddedServer) -> list[int]:
    """Return the server and its children, which end a moment later if it is killed."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    family = (map(int, line.split()) for line in listed.stdout.splitlines())
    return [server.pid, *(pid for pid, parent in family if parent == server.pid)]
