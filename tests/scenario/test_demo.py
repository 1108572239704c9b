"""`rota demo`, which is `make run`: it shows jobs being run, ends cleanly and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.command import COMMAND, PATIENCE, Command, rota, running
from tests.support.processes import Watch, processes_that_name
from tests.support.scratch import scratch_directory

SUMMARY = re.compile(
    r"Ran [\d.]+ s with (\d+) pods?: (\d+) jobs enqueued, (\d+) done \([\d.]+/s\), \d+ retried, \d+ dead, "
    r"\d+ still waiting\."
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")


@pytest.fixture
def embedded() -> Iterator[Path]:
    """A directory for an embedded server of the demo's own."""
    with scratch_directory() as directory:
        yield directory


def test_it_ends_by_itself_with_a_summary(dsn: str) -> None:
    ended = rota("demo", "--for", "4s", ROTA_DATABASE_URL=dsn)
    assert ended.process.returncode == 0
    line = r"enqueued \d+  ready \d+  scheduled \d+  running \d+  done \d+ .*  pods 3  slots \d+/48$"
    assert any(re.search(line, told) for told in ended.out), "three pods share the slots of all queues"
    summary = SUMMARY.fullmatch(ended.out[-1])
    assert summary is not None
    pods, enqueued, done = map(int, summary.groups())
    assert pods == 3
    assert enqueued > 0
    assert done > 0


@linux
def test_with_the_embedded_server_it_leaves_no_process_behind(embedded: Path) -> None:
    ended = rota("demo", "--for", "1s", ROTA_DATABASE_URL="embedded", ROTA_EMBEDDED_DIR=str(embedded))
    assert ended.process.returncode == 0
    assert SUMMARY.fullmatch(ended.out[-1])
    assert processes_that_name(str(embedded)) == []


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_of_it(number: signal.Signals, dsn: str) -> None:
    with running("demo", "--pods", "2", ROTA_DATABASE_URL=dsn) as demo:
        demo.line(r"done [1-9].* pods 2 ")
        children = Watch(demo.children())
        demo.send(number)
        assert demo.ended() == 0
        children.wait_until_gone()
    assert SUMMARY.fullmatch(demo.out[-1])


@linux
def test_killed_it_takes_its_pods_and_its_server_along(embedded: Path) -> None:
    with joining(embedded) as demo:
        demo.line("done [1-9]")
        left = Watch({*demo.children(), *processes_that_name(str(embedded))})
        demo.send(signal.SIGKILL)
        left.wait_until_gone()
    assert processes_that_name(str(embedded)) == []


@linux
def test_one_that_joined_the_server_of_another_ends_with_it(embedded: Path) -> None:
    with joining(embedded) as first:
        first.line("pods 3 ")
        with joining(embedded) as second:
            second.line("pods 6 ")
            pods = Watch(second.children())
            first.send(signal.SIGINT)
            assert first.ended() == 0
            assert second.ended() == 3
            pods.wait_until_gone()
    assert second.err[-1] == (
        "The embedded Postgres was stopped by the process that started it, so this one ends too."
    )


@linux
def test_a_killed_pod_is_replaced_and_what_it_did_still_counts(dsn: str) -> None:
    with running("demo", ROTA_DATABASE_URL=dsn) as demo:
        before = done(demo.line("done [1-9]"))
        pod, *_ = demo.children()
        os.kill(pod, signal.SIGKILL)
        demo.line("exit code -9; another takes its place")
        demo.line("Pod rota-worker-.* serves")
        assert done(demo.line("done [1-9]")) >= before
        demo.send(signal.SIGINT)
        assert demo.ended() == 0


def test_the_summary_is_one_json_document_when_asked_for(dsn: str) -> None:
    ended = rota("demo", "--for", "500ms", "--rate", "100", "--json", ROTA_DATABASE_URL=dsn)
    summary = json.loads("\n".join(ended.out))
    assert summary["pods"] == 3
    assert summary["seconds"] >= 0.5
    assert {"enqueued", "done", "retried", "dead", "waiting", "jobs_per_second"} <= summary.keys()


def test_a_pod_that_cannot_start_ends_it_with_the_reason(dsn: str) -> None:
    ended = rota("demo", ROTA_DATABASE_URL=dsn, OTEL_TRACES_EXPORTER="no_such_exporter")
    assert ended.process.returncode == 1
    assert "before it was up" in ended.err[-1]
    assert "no_such_exporter" in ended.err[-1]


def test_without_a_database_it_says_so() -> None:
    ended = rota("demo", ROTA_DATABASE_URL="postgresql://ada:secret@127.0.0.1:1/x")
    assert ended.process.returncode == 3
    assert len(ended.err) == 1
    assert "secret" not in ended.err[0]


def test_on_a_terminal_it_draws_tables(dsn: str) -> None:
    code, drawn = on_a_terminal("demo", "--for", "1s", "--database-url", dsn)
    assert code == 0
    for word in (
        "queue",
        "emails",
        "images",
        "reports",
        "pod",
        "rota-worker-",
        "jobs/s",
        "Ctrl-C stops all of it",
    ):
        assert word in drawn
    assert SUMMARY.search(drawn.replace("\r\n", ""))


def joining(directory: Path) -> AbstractContextManager[Command]:
    return running("demo", ROTA_DATABASE_URL="embedded", ROTA_EMBEDDED_DIR=str(directory))


def done(line: str) -> int:
    found = re.search(r"done (\d+)", line)
    assert found is not None
    return int(found[1])


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Exit code and output of `rota` where all three streams are a terminal."""
    terminal, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    drawn = b""
    try:
        while more := os.read(terminal, 65536):
            drawn += more
    except OSError as error:  # Linux' way to say that the other end is closed
        if error.errno != errno.EIO:
            raise
    os.close(terminal)
    return process.wait(PATIENCE), drawn.decode()
