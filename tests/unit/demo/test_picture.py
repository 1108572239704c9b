"""What the demo shows, put together from rows and reports."""

from uuid import UUID

import pytest

from rota.cli.report import PodReport, QueueReport
from rota.demo.display import plain_line
from rota.demo.picture import Picture, PodLine, QueueLine, Rows, Speed, done_by_name, pod_lines, queue_lines
from rota.storage.rows import JobCount, PodRow, QueueRow
from rota.words import JobState

OURS = PodReport(
    str(UUID(int=1)), "rota-1", {"emails": QueueReport(20, 3, {"done": 8, "retry": 2, "dead": 1})}
)
GONE = PodReport(str(UUID(int=9)), "rota-9", {"emails": QueueReport(20, 0, {"done": 4})})


def pod(number: int, running: int = 0) -> PodRow:
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
        running=running,
        age=1.0,
        expires_in=9.0,
    )


ROWS = Rows(
    counts=[
        JobCount("emails", "send", JobState.READY, 5, 1.0),
        JobCount("emails", "remind", JobState.READY, 2, 1.0),
        JobCount("emails", "remind", JobState.SCHEDULED, 4, 0.0),
        JobCount("old", "gone", JobState.READY, 1, 99.0),
    ],
    queues=[QueueRow("emails", 20, paused=False, cooling=False, retry=None)],
    pods=[pod(1, running=3), pod(2, running=6)],
)


def test_a_queue_counts_all_its_kinds_and_what_pods_ended_that_are_gone_too() -> None:
    emails, old = queue_lines(ROWS, [OURS, GONE], Speed())
    assert emails == QueueLine("emails", 20, ready=7, scheduled=4, done=12, retried=2, dead=1)
    assert old == QueueLine("old", 0, ready=1)


def test_a_pod_of_someone_else_is_shown_without_slots() -> None:
    ours, other = pod_lines(ROWS, [OURS], Speed())
    assert ours == PodLine("rota-1", "up", 3, in_use=3, slots=20)
    assert other == PodLine("rota-2", "up", 6)


def test_the_whole_is_the_sum_of_the_queues() -> None:
    picture = Picture(1.0, 20, queue_lines(ROWS, [OURS, GONE], Speed()), pod_lines(ROWS, [OURS], Speed()))
    assert picture.total == QueueLine("all", 20, ready=8, scheduled=4, done=12, retried=2, dead=1)
    assert (picture.in_use, picture.slots) == (3, 20)


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
        "dead 1", "pods 2", "slots 3/20", "no database",
    ]  # fmt: skip
