"""What the demo shows, put together from rows and reports."""

import io
from uuid import UUID

import pytest
from rich.console import Console

from rota.cli.report import PodReport, QueueReport
from rota.demo.display import plain_line, pod_table
from rota.demo.picture import (
    Picture,
    PodLine,
    QueueLine,
    Rows,
    SlotCell,
    Speed,
    done_by_name,
    pod_lines,
    queue_lines,
)
from rota.storage.rows import AssignmentRow, JobCount, PodRow, QueueRow
from rota.words import JobState

OURS = PodReport(
    str(UUID(int=1)), "rota-1", 4711, {"emails": QueueReport(20, 3, {"done": 8, "retry": 2, "dead": 1})}
)
GONE = PodReport(str(UUID(int=9)), "rota-9", 4719, {"emails": QueueReport(20, 0, {"done": 4})})


def pod(number: int, *, leads: bool = False) -> PodRow:
    return PodRow(
        id=UUID(int=number),
        incarnation=1,
        name=f"rota-{number}",
        state="up",
        zone="",
        version="",
        capacity=256,
        queues=("emails",),
        kinds=(),
        running=0,
        age=1.0,
        expires_in=9.0,
        leads=leads,
    )


ROWS = Rows(
    counts=[
        JobCount("emails", "send", JobState.READY, 5, 1.0),
        JobCount("emails", "remind", JobState.READY, 2, 1.0),
        JobCount("emails", "remind", JobState.SCHEDULED, 4, 0.0),
        JobCount("old", "gone", JobState.READY, 1, 99.0),
    ],
    queues=[QueueRow("emails", 20, paused=False, cooling=False, retry=None)],
    pods=[pod(1, leads=True), pod(2)],
    assignments=[
        AssignmentRow("emails", UUID(int=1), "rota-1", "up", target=12, held=14, acting=12, running=3),
        AssignmentRow("emails", UUID(int=2), "rota-2", "up", target=8, held=8, acting=8, running=6),
    ],
)


def test_a_queue_counts_all_its_kinds_and_what_pods_ended_that_are_gone_too() -> None:
    emails, old = queue_lines(ROWS, [OURS, GONE], Speed())
    assert emails == QueueLine("emails", 20, ready=7, scheduled=4, done=12, retried=2, dead=1)
    assert old == QueueLine("old", 0, ready=1)


def test_a_pod_is_shown_with_its_slots_of_each_queue_and_its_process_where_it_is_ours() -> None:
    ours, other = pod_lines(ROWS, [OURS], Speed())
    assert ours == PodLine("rota-1", "up", {"emails": SlotCell(3, 12, 14)}, leads=True, pid=4711)
    assert other == PodLine("rota-2", "up", {"emails": SlotCell(6, 8, 8)})


def test_what_a_pod_still_has_to_give_back_stands_behind_a_minus() -> None:
    picture = Picture(1.0, 20, queue_lines(ROWS, [OURS], Speed()), pod_lines(ROWS, [OURS], Speed()))
    console = Console(file=io.StringIO(), width=160)
    console.print(pod_table(picture))
    assert isinstance(console.file, io.StringIO)
    _, ours, other = console.file.getvalue().splitlines()
    assert "4711" in ours
    assert "leader" in ours
    assert "3/12 -2" in ours
    assert "6/8 " in other


def test_the_whole_is_the_sum_of_the_queues() -> None:
    picture = Picture(1.0, 20, queue_lines(ROWS, [OURS, GONE], Speed()), pod_lines(ROWS, [OURS], Speed()))
    assert picture.total == QueueLine("all", 20, ready=8, scheduled=4, done=12, retried=2, dead=1)
    assert picture.slots == SlotCell(9, 20, 22)


def test_a_speed_is_taken_over_the_last_seconds_only() -> None:
    speed = Speed()
    for second in range(10):
        speed.see(float(second), {"emails": 10 * min(second, 5)})
    assert speed.of("emails") == pytest.approx(0.0)
    speed.see(10.0, {"emails": 90})
    assert speed.of("emails") == pytest.approx(10.0)


def test_there_is_no_speed_before_there_are_two_readings() -> None:
    speed = Speed()
    speed.see(0.0, {"emails": 10})
    assert speed.of("emails") == 0.0


def test_jobs_done_are_known_by_queue_and_by_pod() -> None:
    assert done_by_name([OURS, GONE]) == {OURS.id: 8, GONE.id: 4, "emails": 12}


def test_a_picture_fits_into_one_plain_line() -> None:
    picture = Picture(
        12.3, 20, queue_lines(ROWS, [OURS], Speed()), pod_lines(ROWS, [OURS], Speed()), "no database"
    )
    assert plain_line(picture).split("  ") == [
        "", "12s", "enqueued 20", "ready 8", "scheduled 4", "running 0", "done 8 (0.0/s)", "retried 2",
        "dead 1", "pods 2", "slots 9/20", "no database",
    ]  # fmt: skip
