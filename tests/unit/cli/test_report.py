"""What a pod says of itself."""

from dataclasses import dataclass

from rota.cli.report import PodReport, QueueReport, Tally
from rota.clock import SystemClock
from rota.events import BatchesSettled, JobsEnded


@dataclass
class Ended:
    """A run, as far as a tally looks."""

    outcome: str
    id: int = 1
    kind: str = "k"
    attempt: int = 1
    claim: int = 1
    waited: float = 0.0
    ran: float = 0.0
    reason: str | None = None


REPORT = PodReport(
    id="0001",
    name="rota-1",
    pid=4711,
    queues={"emails": QueueReport(20, 3, {"done": 7, "retry": 2}), "images": QueueReport(8, 1, {"done": 5})},
)


def test_a_report_survives_its_line() -> None:
    assert PodReport.from_line(REPORT.line()) == REPORT


def test_a_report_is_one_line() -> None:
    assert "\n" not in REPORT.line()


def test_a_pod_is_the_sum_of_its_queues() -> None:
    assert (REPORT.slots, REPORT.in_use, REPORT.ended("done"), REPORT.ended("retry", "dead")) == (
        28,
        4,
        12,
        2,
    )


def test_a_tally_counts_runs_by_queue_and_outcome() -> None:
    tally = Tally(SystemClock())
    tally.tell(JobsEnded("emails", [Ended("done"), Ended("done"), Ended("retry")]))
    tally.tell(JobsEnded("emails", [Ended("done")]))
    tally.tell(JobsEnded("images", [Ended("dead")]))
    tally.tell(BatchesSettled(1))
    assert tally.ended == {"emails": {"done": 3, "retry": 1}, "images": {"dead": 1}}
