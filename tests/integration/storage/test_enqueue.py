"""The one door: jobs come in whole, in order, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from rota.errors import BadName, RefusedData
from rota.settings import check_name
from rota.storage.rows import Request, Shape
from rota.words import JobState
from tests.integration.storage.stage import KIND, QUEUE, Stage, as_json

EVERYTHING = """
    SELECT id, skipped
    FROM rota.enqueue(
        'report', '{"pages": 3}', queue => 'reports', priority => 7, delay => '90 seconds',
        max_attempts => 2, timeout => 1.5, dedupe => 'r:1', note => 'monthly', tags => '{a,b}',
        trace => '00-11-22-01'
    )
"""


async def test_ids_come_in_the_order_of_the_payloads(stage: Stage) -> None:
    shapes = [Shape(QUEUE, kind) for kind in ("one", "two", "three")]
    requests = [Request(shapes[number % 3], as_json(number)) for number in range(1_000)]
    enqueued = await stage.jobs.enqueue_jobs(requests)
    assert not any(skipped for _, skipped in enqueued)
    rows = await stage.connection.fetch("SELECT id, kind, payload FROM rota.job ORDER BY id")
    assert [(row["id"], row["kind"], row["payload"]) for row in rows] == [
        (id, request.shape.kind, request.payload) for (id, _), request in zip(enqueued, requests, strict=True)
    ]


async def test_ids_come_in_the_order_of_the_payloads_with_dedupe_keys_too(stage: Stage) -> None:
    shape = Shape(QUEUE, KIND)
    requests = [Request(shape, as_json(number), f"key:{number % 50}") for number in range(100)]
    enqueued = await stage.jobs.enqueue_jobs(requests)
    assert [skipped for _, skipped in enqueued] == [False] * 50 + [True] * 50
    assert [id for id, _ in enqueued[50:]] == [id for id, _ in enqueued[:50]]
    assert [(await stage.job(id)).payload for id, _ in enqueued[:50]] == list(range(50))


async def test_a_job_keeps_all_that_its_shape_says(stage: Stage) -> None:
    shape = Shape("reports", "report", 7, 90.0, None, 2, 1.5, "00-11-22-01", "monthly", ("a", "b"))
    ((id, _),) = await stage.jobs.enqueue_jobs([Request(shape, '{"pages": 3}', "r:1")])
    assert_is_the_report(await stage.job(id))


async def test_the_sql_function_takes_all_that_a_job_can_have(stage: Stage) -> None:
    ((id, skipped),) = await stage.connection.fetch(EVERYTHING)
    assert skipped is False
    assert_is_the_report(await stage.job(id))


async def test_the_sql_function_skips_a_taken_key(stage: Stage) -> None:
    ((first, _),) = await stage.connection.fetch(EVERYTHING)
    ((second, skipped),) = await stage.connection.fetch(EVERYTHING)
    assert (second, skipped) == (first, True)


async def test_the_sql_function_needs_a_kind_only(stage: Stage) -> None:
    job = await stage.job(await stage.connection.fetchval("SELECT id FROM rota.enqueue('report')"))
    assert (job.queue, job.kind, job.state, job.payload) == ("default", "report", JobState.READY, {})
    assert (job.priority, job.max_attempts, job.timeout, job.dedupe) == (0, 5, None, None)
    assert (job.tags, job.note, job.trace, job.scheduled_at) == ((), None, None, job.created_at)


def assert_is_the_report(job: Any) -> None:
    assert (job.queue, job.kind, job.state) == ("reports", "report", JobState.SCHEDULED)
    assert (job.priority, job.max_attempts, job.timeout) == (7, 2, 1.5)
    assert (job.payload, job.dedupe, job.note, job.tags) == ({"pages": 3}, "r:1", "monthly", ("a", "b"))
    assert (job.trace, job.attempt, job.claim) == ("00-11-22-01", 0, 0)
    assert job.scheduled_at - job.created_at == timedelta(seconds=90)


async def test_a_job_due_now_or_earlier_is_ready_at_once(stage: Stage) -> None:
    past = await stage.job(await stage.add_one(run_at=datetime(2020, 1, 1, tzinfo=UTC)))
    assert (past.state, past.scheduled_at.year) == (JobState.READY, 2020)


async def test_a_run_at_outweighs_a_delay(stage: Stage) -> None:
    job = await stage.job(await stage.add_one(run_at=datetime(2200, 1, 1, tzinfo=UTC), delay=5.0))
    assert (job.state, job.scheduled_at) == (JobState.SCHEDULED, datetime(2200, 1, 1, tzinfo=UTC))


async def test_twenty_thousand_jobs_may_each_have_a_shape_of_their_own(stage: Stage) -> None:
    start = datetime(2200, 1, 1, tzinfo=UTC)
    requests = [
        Request(Shape(QUEUE, KIND, run_at=start + timedelta(seconds=number), note=str(number)), "{}")
        for number in range(20_000)
    ]
    enqueued = await stage.jobs.enqueue_jobs(requests)
    kept = await stage.connection.fetchrow(
        """
        SELECT count(*) AS jobs,
               bool_and(scheduled_at = $1::timestamptz + note::integer * interval '1 s') AS right
        FROM unnest($2::bigint[]) WITH ORDINALITY AS told (id, place)
        JOIN rota.job USING (id)
        WHERE note = (place - 1)::text
        """,
        start,
        [id for id, _ in enqueued],
    )
    assert tuple(kept or ()) == (20_000, True)


async def test_jobs_commit_and_roll_back_with_the_caller(stage: Stage) -> None:
    request = Request(Shape(QUEUE, KIND), "{}")
    callers = await stage.connect()
    transaction = callers.transaction()
    await transaction.start()
    ((undone, _),) = await stage.jobs.enqueue_jobs([request], on=callers)
    await transaction.rollback()
    async with callers.transaction():
        ((kept, _),) = await stage.jobs.enqueue_jobs([request], on=callers)
        assert await stage.jobs.read_job(kept) is None
    assert await stage.jobs.read_job(undone) is None
    assert (await stage.job(kept)).state is JobState.READY


async def test_no_jobs_are_no_work(stage: Stage) -> None:
    assert await stage.jobs.enqueue_jobs([]) == []


async def test_ready_jobs_tell_each_of_their_queues_once(stage: Stage) -> None:
    ear = await stage.listen()
    await stage.jobs.enqueue_jobs(
        [Request(Shape(queue, kind), "{}") for queue in ("a", "b") for kind in ("one", "two")] * 10
    )
    assert sorted(await ear.heard()) == ["ready:a", "ready:b"]


async def test_a_job_due_within_the_minute_tells_in_how_many_seconds(stage: Stage) -> None:
    await stage.clock.stop()
    ear = await stage.listen()
    await stage.add(delay=30.0)
    await stage.add(delay=3600.0)
    (heard,) = await ear.heard()
    word, _, seconds = heard.partition(":")
    assert (word, float(seconds)) == ("due", 30.0)


BAD_NAMES = ["", " padded", "padded ", "x" * 129, "line\nbreak", "tab\there", "bell\x07", "del\x7f", "c1\x85"]
GOOD_NAMES = ["x" * 128, "größe", "名前", "with space", "a:b/c.d-e_f", "quo'te\"d", "emoji 🚀", "%s {} $1"]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_name_is_refused_and_nothing_is_written(shared_stage: Stage, name: str) -> None:
    good = Request(Shape(QUEUE, KIND), "{}")
    for shape in (Shape(name, KIND), Shape(QUEUE, name)):
        with pytest.raises(RefusedData, match="name must have 1 to 128 characters, no control characters"):
            await shared_stage.jobs.enqueue_jobs([good, Request(shape, "{}")])
    await refused(shared_stage, "22023", "A queue name must", "rota.enqueue('k', queue => $1)", name)
    await refused(shared_stage, "22023", "A kind name must", "rota.enqueue($1)", name)
    with pytest.raises(BadName):
        check_name("queue", name)


async def test_a_name_may_have_any_other_characters(stage: Stage) -> None:
    for name in GOOD_NAMES:
        job = await stage.job(await stage.add_one(queue=name, kind=name))
        assert (job.queue, job.kind) == (check_name("queue", name), check_name("kind", name))


@pytest.mark.parametrize(
    ("arguments", "state", "message"),
    [
        ("priority => 32001", "22023", "a priority from -32000 to 32000"),
        ("priority => -32001", "22023", "a priority from -32000 to 32000"),
        ("priority => 70000", "22023", "a priority from -32000 to 32000"),
        ("priority => -70000", "22023", "a priority from -32000 to 32000"),
        ("max_attempts => 0", "22023", "1 to 32000 attempts"),
        ("max_attempts => -1", "22023", "1 to 32000 attempts"),
        ("max_attempts => 40000", "22023", "1 to 32000 attempts"),
        ("timeout => 0", "22023", "a timeout above 0"),
        ("timeout => -1", "22023", "a timeout above 0"),
        ("timeout => 'NaN'", "22023", "a timeout above 0"),
        ("timeout => 'infinity'", "22023", "a timeout above 0"),
        ("delay => '-1 second'", "22023", "a delay of 0 or more"),
        ("run_at => 'infinity'", "22023", "a finite time"),
        ("run_at => '-infinity'", "22023", "a finite time"),
        ("dedupe => ''", "22023", "A dedupe key must have 1 to 512 characters"),
        ("dedupe => repeat('x', 513)", "22023", "A dedupe key must have 1 to 512 characters"),
        (r"""payload => '{"a": "\u0000"}'""", "22P05", "unsupported Unicode escape sequence"),
        (r"""payload => '{"a": "\ud800"}'""", "22P02", "invalid input syntax for type json"),
        (r"""payload => '{"\udc00": 1}'""", "22P02", "invalid input syntax for type json"),
        ("""payload => '{"a": '""", "22P02", "invalid input syntax for type json"),
    ],
)
async def test_bad_options_are_refused_and_nothing_is_written(
    shared_stage: Stage, arguments: str, state: str, message: str
) -> None:
    await refused(shared_stage, state, message, f"rota.enqueue('k', {arguments})")


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("end", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
async def test_an_endless_time_is_refused_lest_it_break_those_who_reckon_with_it(
    shared_stage: Stage, end: datetime, others: int
) -> None:
    """asyncpg writes the last datetime there is as infinity, which cannot be subtracted from."""
    shape = Shape(QUEUE, KIND, run_at=end)
    with pytest.raises(RefusedData, match="finite"):
        await shared_stage.jobs.enqueue_jobs(
            [Request(shape, "{}"), *[Request(Shape(QUEUE, KIND), "{}")] * others]
        )
    assert await shared_stage.promote(10) == (0, None)


@pytest.mark.parametrize(
    "shape",
    [
        {"priority": 32_001},
        {"max_attempts": 0},
        {"timeout": 0.0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
    ],
)
async def test_one_bad_shape_refuses_the_whole_call(shared_stage: Stage, shape: dict[str, Any]) -> None:
    requests = [Request(Shape(QUEUE, KIND), "{}"), Request(Shape(QUEUE, KIND, **shape), "{}")]
    with pytest.raises(RefusedData, match="priority from -32000 to 32000"):
        await shared_stage.jobs.enqueue_jobs(requests)


@pytest.mark.parametrize("argument", ["priority", "max_attempts", "payload", "delay", "queue"])
async def test_a_null_is_refused_where_a_value_is_needed(shared_stage: Stage, argument: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as error:
        await shared_stage.connection.execute(f"SELECT * FROM rota.enqueue('k', {argument} => NULL)")
    assert str(error.value.sqlstate)[:2] in ("22", "23")


async def refused(stage: Stage, state: str, message: str, call: str, *arguments: object) -> None:
    with pytest.raises(asyncpg.PostgresError, match=message) as error:
        await stage.connection.fetch(f"SELECT * FROM {call}", *arguments)
    assert error.value.sqlstate == state
