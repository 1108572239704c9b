"""Jobs as people see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from rich.console import RenderableType

from rota.cli.job_view import job_details, job_table
from rota.cli.output import console
from rota.storage.rows import JobRow
from rota.words import JobState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ERRORS: tuple[dict[str, Any], ...] = (
    {"attempt": 1, "at": "2026-01-01T12:00:01+00:00", "type": "ValueError", "message": "first"},
    {
        "attempt": 2,
        "at": "2026-01-01T12:00:05+00:00",
        "type": "KeyError",
        "message": "second\nline",
        "traceback": "Traceback (most recent call last): ...",
    },
)
DEAD = JobRow(
    id=7,
    queue="emails",
    kind="send",
    state=JobState.DEAD,
    payload={"to": "a@b.c", "nested": [1, 2]},
    priority=3,
    attempt=2,
    max_attempts=2,
    claim=4,
    rescues=1,
    cancelling=False,
    created_at=NOON,
    scheduled_at=NOON + timedelta(seconds=3),
    claimed_at=NOON + timedelta(seconds=4),
    ended_at=NOON + timedelta(seconds=5.5),
    pod=UUID(int=1),
    timeout=90.0,
    dedupe="welcome:17",
    trace="00-abc",
    note="because",
    tags=("a", "b"),
    progress={"done": 0.5},
    errors=ERRORS,
    result=None,
)


def drawn(capsys: pytest.CaptureFixture[str], thing: RenderableType) -> str:
    console().print(thing)
    return capsys.readouterr().out


def test_a_job_is_shown_with_everything_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    told = drawn(capsys, job_details(DEAD, None))
    for word in (
        "7", "dead", "emails", "send", "2 of 2", "1m30s", "welcome:17", "00-abc", "because", "a, b",
        str(DEAD.pod), "having waited 1s", "having run 1.5s", '"to": "a@b.c"', '"done": 0.5',
        "ValueError", "first", "KeyError", "Traceback (most recent call last)",
    ):  # fmt: skip
        assert word in told


def test_what_a_job_does_not_have_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(DEAD, dedupe=None, note=None, tags=(), trace=None, progress=None, errors=(), rescues=0)
    told = drawn(capsys, job_details(job, None))
    for word in ("dedupe", "note", "tags", "trace", "progress", "errors", "rescues", "result", "waiting"):
        assert word not in told


def test_a_waiting_job_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no pod is up" in drawn(capsys, job_details(DEAD, "ready, but no pod is up"))


def test_a_requested_cancel_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(DEAD, state=JobState.RUNNING, cancelling=True)
    assert "running, cancel requested" in drawn(capsys, job_details(job, None))


def test_a_table_has_one_line_per_job_with_the_last_error(capsys: pytest.CaptureFixture[str]) -> None:
    lines = drawn(capsys, job_table([DEAD, replace(DEAD, id=8, errors=())])).splitlines()
    assert len(lines) == 3
    assert "second" in lines[1]
    assert "line" not in lines[1]


def test_users_data_can_neither_mark_up_nor_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(DEAD, note="[bold]\x1b[2J:smile:", kind="[red]k", errors=({"message": "\x1b]0;x\x07"},))
    told = drawn(capsys, job_details(job, None)) + drawn(capsys, job_table([job]))
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "[bold]\\x1b[2J:smile:" in told
    assert "[red]k" in told
