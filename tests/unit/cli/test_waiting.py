"""Why a job is not running yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from rota.cli.waiting import no_taker, say_time, why_waiting
from rota.storage.rows import AssignmentRow, JobRow, PodRow, QueueRow
from rota.words import JobState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = JobRow(
    id=7,
    queue="emails",
    kind="send",
    state=JobState.READY,
    payload={},
    priority=0,
    attempt=0,
    max_attempts=5,
    claim=0,
    rescues=0,
    cancelling=False,
    created_at=NOON,
    scheduled_at=NOON,
    claimed_at=None,
    ended_at=None,
    pod=None,
    timeout=None,
    dedupe=None,
    trace=None,
    note=None,
    tags=(),
    progress=None,
    errors=(),
    result=None,
)
QUEUE = QueueRow("emails", max_workers=10, paused=False, cooling=False, retry=None)
POD = PodRow(
    id=UUID(int=1),
    incarnation=1,
    name="rota-1",
    state="up",
    zone="",
    version="",
    capacity=256,
    queues=("emails",),
    kinds=("send",),
    running=0,
    age=1.0,
    expires_in=9.0,
)

OTHER = replace(POD, id=UUID(int=2), name="rota-2", kinds=("other",))
SLOTS = AssignmentRow("emails", POD.id, POD.name, "up", target=4, held=4, acting=4, running=3)
OTHERS = replace(SLOTS, pod=OTHER.id, name=OTHER.name, target=6, held=6, acting=6, running=6)


def test_a_scheduled_job_waits_for_its_time() -> None:
    job = replace(JOB, state=JobState.SCHEDULED)
    assert why_waiting(job, [QUEUE], [POD], []) == f"scheduled until {say_time(NOON)}"


def test_a_failed_job_says_which_attempt_it_waits_after() -> None:
    job = replace(JOB, state=JobState.SCHEDULED, attempt=2)
    assert why_waiting(job, [], [], []) == f"scheduled until {say_time(NOON)} after attempt 2 of 5 failed"


@pytest.mark.parametrize(
    ("queue", "pod", "said"),
    [
        (QUEUE, POD, "behind what is before it in its queue"),
        (replace(QUEUE, paused=True), POD, "and its queue is paused"),
        (replace(QUEUE, max_workers=0), POD, "and its queue has max_workers 0"),
        (replace(QUEUE, cooling=True), POD, "and its queue cools down after a throttle"),
        (QUEUE, replace(POD, state="draining"), "but no pod is up"),
        (QUEUE, replace(POD, expires_in=-1.0), "but no pod is up"),
        (QUEUE, replace(POD, queues=("other",)), 'but no pod that is up serves queue "emails"'),
        (QUEUE, replace(POD, kinds=("other",)), 'but no pod that serves queue "emails" runs kind "send"'),
    ],
)
def test_a_ready_job_says_what_is_in_its_way(queue: QueueRow, pod: PodRow, said: str) -> None:
    assert why_waiting(JOB, [queue], [pod], [SLOTS]) == f"ready since {say_time(NOON)}, {said}"


@pytest.mark.parametrize(
    ("mine", "others", "said"),
    [
        (SLOTS, OTHERS, "behind what is before it in its queue"),
        (
            replace(SLOTS, running=4),
            OTHERS,
            "and all 10 slots of its queue are in use: rota-2 runs 6, rota-1 runs 4",
        ),
        (
            replace(SLOTS, running=4),
            replace(OTHERS, running=5),
            "and the slots of pods that run its kind are in use: rota-1 runs 4",
        ),
        (
            replace(SLOTS, target=0, held=0, running=0),
            replace(OTHERS, target=4, held=6),
            "and slots of its queue are being handed over: rota-2 gives back 2",
        ),
        (
            replace(SLOTS, target=0, held=0, running=0),
            OTHERS,
            "but its queue has no slots on a pod that runs its kind: rota-2 has 6",
        ),
        (
            replace(SLOTS, target=0, held=0, running=0),
            replace(OTHERS, target=0, held=0, running=0),
            "but its queue has no slots on a pod that runs its kind",
        ),
    ],
)
def test_a_ready_job_says_who_has_the_slots(mine: AssignmentRow, others: AssignmentRow, said: str) -> None:
    elsewhere = replace(OTHERS, queue="reports", running=99)
    told = why_waiting(JOB, [QUEUE], [POD, OTHER], [mine, others, elsewhere])
    assert told == f"ready since {say_time(NOON)}, {said}"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.DONE, JobState.DEAD, JobState.CANCELLED])
def test_a_job_that_runs_or_has_ended_waits_for_nothing(state: JobState) -> None:
    assert why_waiting(replace(JOB, state=state), [QUEUE], [], []) is None


def test_one_pod_that_serves_the_queue_and_runs_the_kind_is_enough() -> None:
    stranger = replace(POD, kinds=("other",), queues=("other",))
    assert no_taker("emails", "send", [stranger, POD]) is None


def test_serving_the_queue_and_running_the_kind_must_be_one_pods() -> None:
    pods = [replace(POD, kinds=("other",)), replace(POD, queues=("other",))]
    assert no_taker("emails", "send", pods) is not None
