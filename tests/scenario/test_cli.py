"""The `rota` command on a real database: what it does, what it says and how it ends."""

from __future__ import annotations

import asyncio
import json
import select
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.support.command import Command, rota, running
from tests.support.inline import Rota
from tests.support.owner import start_owner
from tests.support.postgres import FAST
from tests.support.scratch import scratch_directory

SHOP = '''
import asyncio
from pathlib import Path

from pydantic import BaseModel

from rota import App, Context, Dead

app = App()


class Greeting(BaseModel):
    name: str


@app.job(queue="front")
async def greet(greeting: Greeting) -> str:
    return f"hello {greeting.name}"


@app.job(queue="front")
async def wait_for(ctx: Context, path: str) -> str:
    """Runs until the file is there."""
    ctx.log.info("waiting")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "seen"


@app.job(queue="front")
async def fail() -> None:
    raise Dead("never")
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with a user's app in it."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def worker(shop: Path, dsn: str, *arguments: str, **environment: str) -> Any:
    """A pod of the shop; single jobs are logged."""
    settings = {"ROTA_LOG_LEVEL": "debug", "ROTA_DATABASE_URL": dsn, **environment}
    return running("worker", "--app", "shop:app", "--queues", "front", *arguments, directory=shop, **settings)


def told(command: Command) -> list[str]:
    """The messages of its log."""
    return [json.loads(line)["message"] for line in command.err if line.startswith("{")]


def test_a_worker_runs_a_job_that_the_command_line_enqueued(shop: Path, dsn: str, here: Rota) -> None:
    with worker(shop, dsn) as pod:
        pod.line("serves front")
        enqueued = rota(
            "enqueue", "greet", '{"name": "ada"}', "--app", "shop:app", "--json",
            directory=shop, ROTA_DATABASE_URL=dsn,
        )  # fmt: skip
        job = json.loads("\n".join(enqueued.out))
        assert job["queue"] == "front"
        assert enqueued.err == []
        pod.line(rf"Job {job['id']} \(greet in front\) done")
        shown = here.json("job", "show", str(job["id"]))
        assert (shown["state"], shown["result"], shown["attempt"]) == ("done", "hello ada", 1)
        pod.send(signal.SIGTERM)
        assert pod.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_what_runs_finishes_first(
    number: signal.Signals, shop: Path, dsn: str, here: Rota
) -> None:
    with worker(shop, dsn) as pod:
        job = here.json("enqueue", "wait_for", json.dumps(str(shop / "go")), "--queue", "front")["id"]
        pod.line("waiting")
        pod.send(number)
        pod.line("Draining")
        (shop / "go").touch()
        assert pod.ended() == 0
    assert here.json("job", "show", str(job))["result"] == "seen"


def test_what_does_not_finish_in_the_grace_time_is_released_and_no_attempt_burned(
    shop: Path, dsn: str, here: Rota
) -> None:
    with worker(shop, dsn, ROTA_POD_GRACE="0.1") as pod:
        job = here.json("enqueue", "wait_for", '"/never"', "--queue", "front")["id"]
        pod.line("waiting")
        pod.send(signal.SIGTERM)
        assert pod.ended() == 0
    shown = here.json("job", "show", str(job))
    assert (shown["state"], shown["attempt"]) == ("ready", 0)
    assert shown["waiting"].endswith("but no pod is up")


def test_a_second_signal_ends_it_at_once(shop: Path, dsn: str, here: Rota) -> None:
    with worker(shop, dsn, ROTA_POD_GRACE="60") as pod:
        here("enqueue", "wait_for", '"/never"', "--queue", "front")
        pod.line("waiting")
        pod.send(signal.SIGTERM)
        pod.line("Draining")
        pod.send(signal.SIGTERM)
        assert pod.ended() == 128 + signal.SIGTERM


def test_a_worker_without_a_database_names_the_variable_and_ends(shop: Path) -> None:
    ended = rota("worker", "--app", "shop:app", "--queues", "front", directory=shop)
    assert ended.process.returncode == 2
    assert ended.err == ["No database is configured; set ROTA_DATABASE_URL to a Postgres DSN."]


def test_a_worker_without_queues_says_how_to_name_them(shop: Path, dsn: str) -> None:
    ended = rota("worker", "--app", "shop:app", directory=shop, ROTA_DATABASE_URL=dsn)
    assert ended.process.returncode == 2
    assert "--queues" in ended.err[-1]


def test_a_worker_refuses_an_unmigrated_schema(shop: Path, empty_dsn: str) -> None:
    with worker(shop, empty_dsn) as pod:
        assert pod.ended() == 4
    assert len(pod.err) == 1
    assert '"rota db migrate"' in pod.err[0]


def test_a_worker_migrates_when_asked_to(shop: Path, empty_dsn: str) -> None:
    with worker(shop, empty_dsn, "--migrate") as pod:
        pod.line("serves front")
        pod.send(signal.SIGTERM)
        assert pod.ended() == 0
    assert any(message.startswith("Migrated schema rota") for message in told(pod))


def test_an_unreachable_database_is_named_without_the_password_and_tried_again(shop: Path) -> None:
    with worker(shop, f"postgresql://ada:secret@127.0.0.1:{closed_port()}/shop") as pod:
        line = pod.line("does not answer while starting")
        assert "127.0.0.1:" in line
        assert 'database \\"shop\\"' in line
        pod.send(signal.SIGTERM)
        assert pod.ended() == 0
    assert not any("secret" in line for line in (*pod.err, *pod.out))


def test_a_worker_joins_once_its_database_is_there(shop: Path, dsn: str) -> None:
    port = closed_port()
    parts = urlsplit(dsn)
    address = (parts.hostname or "", parts.port or 5432)
    netloc = parts.netloc.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
    with worker(shop, parts._replace(netloc=netloc).geturl()) as pod:
        pod.line("does not answer while starting")
        with forwarded(port, address):
            pod.line("answers again while starting")
            pod.line("serves front")
            pod.send(signal.SIGTERM)
            assert pod.ended() == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"netloc": "nobody_here:secret@{host}"}, "nobody_here"),
        ({"path": "/no_such_database"}, "no_such_database"),
    ],
)
def test_what_waiting_cannot_heal_ends_the_worker(
    shop: Path, dsn: str, change: dict[str, str], said: str
) -> None:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    wrong = parts._replace(**{name: value.format(host=host) for name, value in change.items()}).geturl()
    with worker(shop, wrong) as pod:
        assert pod.ended() == 4
    assert len(pod.err) == 1
    assert said in pod.err[0]
    assert "secret" not in pod.err[0]


def test_a_worker_that_joined_the_embedded_server_ends_when_that_is_stopped(shop: Path) -> None:
    with scratch_directory() as directory:
        owner = start_owner(directory, FAST)
        owner.told()
        with worker(shop, "embedded", "--migrate", ROTA_EMBEDDED_DIR=str(directory)) as pod:
            pod.line("serves front")
            owner.end()
            assert pod.ended() == 3
        assert pod.err[-1] == (
            "The embedded Postgres was stopped by the process that started it, so this one ends too."
        )


def test_a_worker_reports_how_it_stands(shop: Path, dsn: str, here: Rota) -> None:
    here("enqueue", "fail", "--queue", "front")
    with worker(shop, dsn, "--report", "50ms") as pod:
        report = json.loads(pod.line(r'"ended":\{"dead":1\}'))
        assert report["queues"]["front"]["slots"] == 10
        assert report["name"].startswith("rota-worker-")
        pod.send(signal.SIGTERM)
        assert pod.ended() == 0


def test_a_kind_that_the_app_does_not_know_is_let_in_with_a_warning(shop: Path, dsn: str) -> None:
    enqueued = rota("enqueue", "sing", "[1]", "--app", "shop:app", directory=shop, ROTA_DATABASE_URL=dsn)
    assert enqueued.process.returncode == 0
    assert enqueued.out == ["Enqueued job 1 in queue default, ready."]
    assert len(enqueued.err) == 1
    assert 'no handler of kind "sing"' in enqueued.err[0]


def test_a_payload_that_does_not_fit_is_refused_with_its_field(shop: Path, dsn: str, here: Rota) -> None:
    refused = rota(
        "enqueue", "greet", '{"nom": 1}', "--app", "shop:app", directory=shop, ROTA_DATABASE_URL=dsn
    )
    assert refused.process.returncode == 2
    assert len(refused.err) == 1
    assert "name: Field required" in refused.err[0]
    assert here.json("job", "list") == []


def test_a_kind_that_no_pod_runs_from_its_queue_is_let_in_with_a_warning(
    shop: Path, dsn: str, here: Rota
) -> None:
    with worker(shop, dsn) as pod:
        pod.line("serves front")
        here("enqueue", "sing", "--queue", "front")
        assert 'no pod that serves queue "front" runs kind "sing"' in here.err
        here("enqueue", "greet")
        assert 'no pod that is up serves queue "default"' in here.err


def test_every_option_of_an_enqueue_is_kept(here: Rota) -> None:
    job = here.json(
        "enqueue", "sing", '{"a": [1]}', "--queue", "front", "--priority", "7", "--delay", "1h",
        "--dedupe", "k", "--max-attempts", "2", "--timeout", "1m30s", "--note", "why",
        "--tag", "a", "--tag", "b",
    )  # fmt: skip
    shown = here.json("job", "show", str(job["id"]))
    kept = {
        "payload": {"a": [1]}, "queue": "front", "priority": 7, "dedupe": "k", "max_attempts": 2,
        "timeout": 90.0, "note": "why", "tags": ["a", "b"], "state": "scheduled",
    }  # fmt: skip
    assert {name: shown[name] for name in kept} == kept


def test_a_job_can_be_due_at_a_time_and_a_payload_come_from_standard_input(here: Rota) -> None:
    here("enqueue", "sing", "-", "--at", "2099-01-01T00:00:00+00:00", given='{"from": "stdin"}')
    (job,) = here.json("job", "list")
    assert (job["payload"], job["scheduled_at"]) == ({"from": "stdin"}, "2099-01-01T00:00:00+00:00")


def test_a_twin_is_skipped_and_the_other_named(here: Rota) -> None:
    first = here.json("enqueue", "sing", "--dedupe", "k")
    second = here.json("enqueue", "sing", "--dedupe", "k")
    assert (first["skipped"], second["skipped"]) == (False, True)
    assert first["id"] == second["id"]
    assert here("enqueue", "sing", "--dedupe", "k").startswith(f"Skipped: job {first['id']}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--priority", "99999"),
        ("--max-attempts", "0"),
        ("--delay", "1s", "--at", "2099-01-01"),
        ("--queue", " "),
        ("--tag", ""),
        ("--timeout", "0s"),
    ],
)
def test_an_option_out_of_range_is_refused_in_a_sentence(here: Rota, arguments: tuple[str, ...]) -> None:
    here("enqueue", "sing", *arguments, code=2)
    assert here.err.count("\n") == 1
    assert here.json("job", "list") == []


def test_jobs_are_listed_by_state_queue_kind_and_tag_page_by_page(here: Rota) -> None:
    ids = [
        here.json("enqueue", kind, "--queue", queue, "--tag", tag, *more)["id"]
        for kind, queue, tag, *more in (
            ("sing", "front", "a"),
            ("sing", "back", "a", "--delay", "1h"),
            ("dance", "front", "b"),
        )
    ]

    def listed(*arguments: str) -> list[int]:
        return [job["id"] for job in here.json("job", "list", *arguments)]

    assert listed() == ids[::-1]
    assert listed("--state", "scheduled") == [ids[1]]
    assert listed("--state", "scheduled", "--state", "ready") == ids[::-1]
    assert listed("--queue", "front") == [ids[2], ids[0]]
    assert listed("--kind", "dance") == [ids[2]]
    assert listed("--tag", "a") == [ids[1], ids[0]]
    assert listed("--limit", "2") == [ids[2], ids[1]]
    assert listed("--limit", "2", "--before", str(ids[1])) == [ids[0]]
    assert "sing" in here("job", "list", "--limit", "1", "--kind", "sing")
    assert f"--before {ids[1]}" in here.err


def test_several_jobs_are_cancelled_and_brought_back(here: Rota) -> None:
    one, two = (str(here.json("enqueue", "sing")["id"]) for _ in range(2))
    assert [told["outcome"] for told in here.json("job", "cancel", one, two)] == ["cancelled", "cancelled"]
    here("job", "cancel", one, code=1)
    assert here.err == f"Job {one} has ended already.\n"
    assert here("job", "retry", one, two) == f"Job {one} is ready.\nJob {two} is ready.\n"
    assert {job["state"] for job in here.json("job", "list")} == {"ready"}


def test_what_could_be_done_is_done_when_one_job_is_missing(here: Rota) -> None:
    job = here.json("enqueue", "sing")["id"]
    outcomes = here.json("job", "cancel", "999", str(job), code=1)
    assert [told["outcome"] for told in outcomes] == ["missing", "cancelled"]


def test_a_retry_whose_key_is_taken_names_the_other(here: Rota) -> None:
    ended = str(here.json("enqueue", "sing", "--dedupe", "k")["id"])
    here("job", "cancel", ended)
    other = here.json("enqueue", "sing", "--dedupe", "k")["id"]
    here("job", "retry", ended, code=1)
    assert f"job {other} holds its dedupe key" in here.err


def test_a_job_that_is_not_there_is_exit_code_1(here: Rota) -> None:
    assert here("job", "show", "999", code=1) == ""
    assert here.err == "There is no job 999; it may have been pruned.\n"


def test_an_unreachable_database_is_exit_code_3(here: Rota) -> None:
    here("job", "list", "--database-url", f"postgresql://ada:secret@127.0.0.1:{closed_port()}/shop", code=3)
    assert "secret" not in here.err


def test_the_schema_is_missing_then_migrated_then_at_its_version(empty_dsn: str) -> None:
    on = Rota(empty_dsn)
    assert on.json("db", "status", code=4)["version"] == 0
    on("job", "list", code=4)
    assert '"rota db migrate"' in on.err
    assert on.json("db", "migrate")["applied"][0] == "0001_initial"
    assert on.json("db", "migrate")["applied"] == []
    status = on.json("db", "status")
    assert (status["usable"], status["version"], status["pending"]) == (True, status["known"], [])


async def test_a_schema_that_another_build_made_is_exit_code_4(
    here: Rota, connection: asyncpg.Connection
) -> None:
    await connection.execute("UPDATE rota.migration SET digest = 'another' WHERE version = 1")
    for command in ("status", "migrate"):
        await asyncio.to_thread(here, "db", command, code=4)
        assert here.err.count("\n") == 1
        assert "something else in 0001_initial; use the release that made it" in here.err
    status = await asyncio.to_thread(here.json, "db", "status", code=4)
    assert (status["usable"], status["edited"]) == (False, ["0001_initial"])


def test_version_says_what_this_is(here: Rota) -> None:
    assert set(here.json("version")) == {"rota", "python", "schema"}
    assert here("version").startswith("Rota ")


@contextmanager
def forwarded(port: int, address: tuple[str, int]) -> Iterator[None]:
    """A way from this port to the address."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(address) as far:
                ends = {self.request: far, far: self.request}
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        if not (data := end.recv(65536)):
                            return
                        ends[end].sendall(data)

    class Forwarder(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Forwarder(("127.0.0.1", port), Forward) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield
        server.shutdown()
        serving.join()


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
