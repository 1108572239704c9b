"""Queues and their slots as people see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from rich.console import RenderableType

from rota.cli.output import console
from rota.cli.queue_view import (
    QueueDetails,
    queue_details,
    queue_json,
    queue_table,
    summarize,
    unserved,
)
from rota.cli.slot_view import slot_json, slot_table
from rota.storage.rows import AssignmentRow, CapChangeRow, JobCount, PlanRow, PodRow, QueueRow
from rota.words import JobState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EMAILS = QueueRow("emails", 10, paused=False, cooling=False, retry={"policy": "fixed", "wait": 30.0})
REPORTS = QueueRow("reports", 2, paused=True, cooling=True, retry=None)
POD = PodRow(
    id=UUID(int=1),
    incarnation=1,
    name="rota-a",
    state="up",
    zone="",
    version="",
    capacity=256,
    queues=("emails",),
    kinds=("send",),
    running=3,
    age=1.0,
    expires_in=9.0,
)
A = AssignmentRow("emails", POD.id, "rota-a", "up", target=4, held=6, acting=4, running=5)
B = AssignmentRow("emails", UUID(int=2), "rota-b", "silent", target=0, held=1, acting=0, running=0)
C = AssignmentRow("reports", UUID(int=2), "rota-b", "silent", target=2, held=2, acting=2, running=1)
COUNTS = [
    JobCount("emails", "send", JobState.READY, 7, 1.0),
    JobCount("emails", "bounce", JobState.READY, 1, 1.0),
    JobCount("emails", "send", JobState.RUNNING, 5, 1.0),
    JobCount("reports", "draw", JobState.SCHEDULED, 4, 1.0),
]
SUMMARIES = summarize([EMAILS, REPORTS], [A, B, C], [POD, replace(POD, expires_in=-1.0)], COUNTS)
DETAILS = QueueDetails(
    SUMMARIES[0],
    EMAILS.retry,
    [A, B],
    [
        CapChangeRow(3, 10, NOON + timedelta(seconds=9), None),
        CapChangeRow(2, 30, NOON + timedelta(seconds=5), None),
        CapChangeRow(1, 20, NOON, NOON + timedelta(seconds=0.25)),
        CapChangeRow(0, 40, NOON, NOON),
    ],
    [PlanRow(NOON, 1, "emails", 4, 2, "emails was resized", "emails: a plan, because.")],
)


def drawn(capsys: pytest.CaptureFixture[str], thing: RenderableType) -> list[str]:
    console().print(thing)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_queue_at_a_glance_adds_up_its_pods_and_jobs() -> None:
    emails, reports = SUMMARIES
    assert (emails.granted, emails.held, emails.running) == (4, 7, 5)
    assert (emails.ready, emails.scheduled, emails.pods, emails.state) == (8, 0, 1, "")
    assert (reports.granted, reports.held, reports.running) == (2, 2, 0)
    assert (reports.ready, reports.scheduled, reports.pods, reports.state) == (0, 4, 0, "paused, cooling")


def test_queues_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    head, emails, reports = drawn(capsys, queue_table(SUMMARIES))
    assert head == "queue cap state granted held running ready scheduled pods"
    assert emails == "emails 10 4 7 5 8 0 1"
    assert reports == "reports 2 paused, cooling 2 2 0 0 4 0"


def test_a_queue_that_nobody_serves_is_warned_of() -> None:
    assert unserved(SUMMARIES) == "Warning: no pod that is up serves reports."
    assert unserved(SUMMARIES[:1]) is None
    assert unserved([SUMMARIES[1]] * 12, most=2) == (
        "Warning: no pod that is up serves reports, reports and 10 more."
    )
    assert replace(SUMMARIES[1], paused=False, cooling=False).state == "unserved"


def test_one_queue_is_shown_with_all_that_is_known_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = drawn(capsys, queue_details(DETAILS))
    assert "retry fixed:wait=30s" in lines
    assert "emails rota-a up 4 6 5 giving back 2" in lines
    assert any(line.endswith("10 not yet") for line in lines)
    assert any(line.endswith("30 never, overtaken by the next") for line in lines)
    assert any(line.endswith("20 after 250ms") for line in lines)
    assert any(line.endswith("40 at once") for line in lines)
    assert any(line.endswith("emails: a plan, because.") for line in lines)


def test_a_queue_without_pods_changes_or_plans_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    lines = drawn(capsys, queue_details(QueueDetails(SUMMARIES[1], None, [], [], [])))
    assert lines[-1] == "pods 0 up"


def test_one_queue_is_told_to_machines_with_the_same() -> None:
    told = queue_json(DETAILS)
    assert (told["queue"], told["max_workers"], told["retry"]) == ("emails", 10, EMAILS.retry)
    assert told["slots"][0]["pod"] == str(POD.id)
    assert (told["changes"], told["plans"]) == (DETAILS.changes, DETAILS.plans)


def test_slots_add_up_by_queue_and_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = drawn(capsys, slot_table([A, B, C]))
    assert head == "queue pod state target held running"
    assert lines == [
        "emails rota-a up 4 6 5 giving back 2",
        "rota-b silent 0 1 0 giving back 1",
        "total 4 7 5",
        "reports rota-b silent 2 2 1",
        "all queues 6 9 6",
    ]
    assert slot_json(A)["held"] == 6


def test_a_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = replace(A, name="rota\x1b[2J")
    assert "\x1b" not in "".join(drawn(capsys, slot_table([evil])))
