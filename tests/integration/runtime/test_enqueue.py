"""The ways in: single, bulk, concurrent, in the caller's transaction, from code without a loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import asyncpg
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from pydantic import BaseModel

from rota import (
    App,
    AppClosed,
    BadInput,
    BadPayload,
    Handler,
    Inserted,
    JobState,
    RotaError,
    Settings,
    Skipped,
)
from rota.errors import RefusedData
from rota.events import JobsEnqueued
from rota.storage import pool
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, make_app, recorded, running, soon

COUNT = "SELECT count(*) FROM rota.job"


class Email(BaseModel):
    to: str


@pytest.fixture
def send(app: App) -> Handler[Email]:
    @app.job(queue=QUEUE)
    async def send(email: Email) -> str:
        return email.to

    return send


async def test_a_job_is_durable_when_enqueue_has_returned(
    app: App, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    async with app:
        job = await send.enqueue(
            Email(to="a"), priority=5, note="why", tags=["x", "y"], timeout=9, max_attempts=2
        )
        assert isinstance(job, Inserted)
        row = await connection.fetchrow("SELECT * FROM rota.job WHERE id = $1", job.id)
    assert row is not None
    assert (row["queue"], row["kind"], row["payload"], row["state"]) == (QUEUE, "send", '{"to":"a"}', "ready")
    assert (row["priority"], row["note"], row["tags"], row["timeout"], row["max_attempts"]) == (
        5,
        "why",
        ["x", "y"],
        9,
        2,
    )


async def test_what_is_refused_is_not_written(
    app: App, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    async with app:
        with pytest.raises(BadPayload):
            await send.enqueue({"to": 5})  # type: ignore[arg-type]
        with pytest.raises(RotaError):
            await send.enqueue(Email(to="a"), delay=-1)
    assert await connection.fetchval(COUNT) == 0


async def test_payloads_of_every_size_up_to_the_limit_come_through(app: App, send: Handler[Email]) -> None:
    limit = app.settings.job.max_payload
    async with running(app):
        address = "x" * (limit - len('{"to":""}'))
        assert await (await send.enqueue(Email(to=address))).result(PATIENCE) == address
        with pytest.raises(BadPayload):
            await send.enqueue(Email(to=address + "x"))


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_commits_and_rolls_back_with_the_callers_transaction(
    app: App, send: Handler[Email], connection: asyncpg.Connection, commits: bool
) -> None:
    async with running(app):
        transaction = connection.transaction()
        await transaction.start()
        one = await send.enqueue(Email(to="a"), connection=connection)
        two, _ = await app.enqueue_many(
            [send.request(Email(to="b")), send.request(Email(to="c"))], connection=connection
        )
        assert await app.jobs.read_job(one.id) is None, "nobody else sees it yet"
        if commits:
            await transaction.commit()
            assert await one.result(PATIENCE) == "a"
            assert await two.result(PATIENCE) == "b"
        else:
            await transaction.rollback()
            assert await app.jobs.read_job(one.id) is None
            assert await connection.fetchval(COUNT) == 0


async def test_the_sql_function_is_the_same_door(
    app: App, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    async with running(app):
        id = await connection.fetchval(
            "SELECT id FROM rota.enqueue('send', '{\"to\": \"sql\"}', queue => $1)", QUEUE
        )
        assert await app.result(id, timeout=PATIENCE) == "sql"


async def test_nothing_to_enqueue_is_nothing(app: App) -> None:
    async with app:
        assert await app.enqueue_many([]) == []


async def test_a_bulk_comes_back_in_order(app: App, send: Handler[Email]) -> None:
    async with running(app):
        jobs = await app.enqueue_many([send.request(Email(to=str(number))) for number in range(200)])
        assert [job.id for job in jobs] == sorted(job.id for job in jobs)
        assert await asyncio.gather(*(job.result(PATIENCE) for job in jobs)) == [
            str(number) for number in range(200)
        ]


async def test_a_bulk_of_mixed_kinds_queues_and_keys_comes_back_in_order(
    app: App, send: Handler[Email]
) -> None:
    @app.job(queue="other")
    async def other() -> None: ...

    async with app:
        first = await send.enqueue(Email(to="x"), dedupe="taken")
        jobs = await app.enqueue_many(
            [
                other.request(priority=3),
                send.request(Email(to="a"), dedupe="taken"),
                send.request(Email(to="b"), dedupe="free"),
                send.request(Email(to="c"), dedupe="free"),
                other.request(delay=60),
            ]
        )
        rows = [await job.status() for job in jobs]
    assert [job.skipped for job in jobs] == [False, True, False, True, False]
    assert jobs[1].id == first.id
    assert jobs[3].id == jobs[2].id
    assert [row.kind for row in rows] == ["other", "send", "send", "send", "other"]
    assert (rows[0].priority, rows[4].state) == (3, JobState.SCHEDULED)


@pytest.mark.parametrize("many", [3, 25_000])
async def test_a_bulk_is_let_in_whole_or_not_at_all(
    app: App, send: Handler[Email], connection: asyncpg.Connection, many: int
) -> None:
    await connection.execute("ALTER TABLE rota.job ADD CHECK (payload::text <> '\"bad\"')")
    good = send.request(Email(to="a"))
    async with app:
        with pytest.raises(RefusedData):
            await app.enqueue_many([good] * (many - 1) + [good._replace(payload='"bad"')])
        assert await connection.fetchval(COUNT) == 0
        assert len(await app.enqueue_many([good] * many)) == many
        assert await connection.fetchval(COUNT) == many


async def test_a_bulk_beyond_one_statement_keeps_its_order_and_is_told(
    app: App, told: Recorder, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    async with app:
        jobs = await app.enqueue_many([send.request(Email(to=str(number))) for number in range(20_001)])
        ids = [
            row["id"]
            for row in await connection.fetch("SELECT id FROM rota.job ORDER BY payload ->> 'to'::text")
        ]
    assert len({job.id for job in jobs}) == 20_001
    by_payload = sorted(range(20_001), key=str)
    assert [jobs[number].id for number in by_payload] == ids
    assert sum(event.jobs for event in told.all(JobsEnqueued)) == 20_001


async def test_concurrent_enqueues_share_statements(app: App, told: Recorder, send: Handler[Email]) -> None:
    async with running(app):
        jobs = await asyncio.gather(*(send.enqueue(Email(to=str(number))) for number in range(50)))
        results = await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert results == [str(number) for number in range(50)]
    statements = told.all(JobsEnqueued)
    assert sum(event.jobs for event in statements) == 50
    assert len(statements) <= 3


async def test_one_bad_enqueue_among_fifty_fails_alone(
    app: App, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    await connection.execute("ALTER TABLE rota.job ADD CHECK (payload::text <> '\"bad\"')")
    requests = [send.request(Email(to=str(number))) for number in range(50)]
    requests[20] = requests[20]._replace(payload='"bad"')
    async with app:
        answers = await asyncio.gather(*(app.enqueue(one) for one in requests), return_exceptions=True)
    assert isinstance(answers[20], RefusedData)
    assert all(isinstance(answer, Inserted) for place, answer in enumerate(answers) if place != 20)
    assert await connection.fetchval(COUNT) == 49


async def test_data_that_never_reaches_postgres_is_refused_data_too(app: App, send: Handler[Email]) -> None:
    """asyncpg refuses some arguments itself: a made-up request must not fail its neighbours."""
    good = send.request(Email(to="a"))
    bad = good._replace(payload="\ud800")
    async with app:
        answers = await asyncio.gather(
            *(app.enqueue(one) for one in (good, good, bad, good)), return_exceptions=True
        )
    assert isinstance(answers[2], RefusedData)
    assert [isinstance(answer, Inserted) for answer in answers] == [True, True, False, True]


async def test_an_enqueue_that_waits_for_a_lock_keeps_its_connection(
    app: App, send: Handler[Email], connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_KEEP", 0.02)
    waited = asyncio.Event()
    async with app:
        await send.enqueue(Email(to="a"))
        async with connection.transaction():
            await connection.execute("LOCK TABLE rota.job")
            waiting = asyncio.create_task(send.enqueue(Email(to="b")))
            asyncio.get_running_loop().call_later(0.2, waited.set)
            await soon(waited)
            await asyncio.gather(*(app.queues.list_queues() for _ in range(3)))
        async with asyncio.timeout(PATIENCE):
            assert isinstance(await waiting, Inserted)
        assert isinstance(await send.enqueue(Email(to="c")), Inserted)


async def test_a_second_job_with_the_same_key_is_skipped_until_the_first_has_ended(
    app: App, send: Handler[Email]
) -> None:
    inside, let_go = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def hold() -> None:
        inside.set()
        await let_go.wait()

    async with running(app):
        first = await hold.enqueue(dedupe="key")
        await soon(inside)
        twin = await hold.enqueue(dedupe="key")
        assert isinstance(first, Inserted)
        assert isinstance(twin, Skipped)
        assert twin.id == first.id
        elsewhere = await hold.enqueue(dedupe="key", queue="unserved")
        assert isinstance(elsewhere, Inserted), "a key is the queue's own"
        let_go.set()
        await first.result(PATIENCE)
        again = await hold.enqueue(dedupe="key")
        assert isinstance(again, Inserted)
        await again.result(PATIENCE)


async def test_a_skipped_enqueue_is_told_as_such(app: App, told: Recorder, send: Handler[Email]) -> None:
    async with app:
        await send.enqueue(Email(to="a"), dedupe="key")
        await send.enqueue(Email(to="a"), dedupe="key")
    assert told.all(JobsEnqueued) == [JobsEnqueued(1, 0), JobsEnqueued(0, 1)]


async def test_a_hundred_concurrent_twins_make_one_job(app: App, send: Handler[Email]) -> None:
    async with app:
        jobs = await asyncio.gather(*(send.enqueue(Email(to="a"), dedupe="key") for _ in range(100)))
    assert len({job.id for job in jobs}) == 1
    assert sum(not job.skipped for job in jobs) == 1


async def test_the_longest_names_and_key_fit(app: App) -> None:
    letters = "".join(chr(0x10000 + number) for number in range(512))

    @app.job(queue=letters[:128], kind=letters[-128:])
    async def handle() -> str:
        return "fits"

    async with running(app, letters[:128]):
        assert await (await handle.enqueue(dedupe=letters)).result(PATIENCE) == "fits"


async def test_a_closed_app_says_so(dsn: str) -> None:
    app = make_app(dsn)

    @app.job(queue=QUEUE)
    async def handle() -> None: ...

    for _ in range(2):
        with pytest.raises(AppClosed, match='use "async with app:"'):
            await handle.enqueue()
        with pytest.raises(AppClosed):
            await app.result(1)
        with pytest.raises(AppClosed):
            await app.migrate()
        async with app:
            await handle.enqueue()


async def test_an_open_app_may_be_opened_again_and_the_last_close_closes(
    app: App, send: Handler[Email]
) -> None:
    async with app:
        async with app:
            await send.enqueue(Email(to="a"))
        await send.enqueue(Email(to="b"))
    with pytest.raises(AppClosed):
        await send.enqueue(Email(to="c"))


async def test_closing_a_closed_app_changes_nothing(app: App, send: Handler[Email]) -> None:
    await app.close()
    async with app:
        async with app:
            pass
        await send.enqueue(Email(to="a"))


async def test_a_kind_nobody_knows_may_be_enqueued(app: App) -> None:
    async with app:
        job = await app.enqueue_raw("unheard.of", {"x": 1}, queue="far", note="by hand")
        row = await job.status()
    assert (row.kind, row.queue, row.payload, row.note) == ("unheard.of", "far", {"x": 1}, "by hand")


async def test_a_raw_enqueue_of_a_known_kind_is_checked_like_any_other(
    app: App, send: Handler[Email]
) -> None:
    async with app:
        with pytest.raises(BadPayload, match="to: Field required"):
            await app.enqueue_raw("send", {})
        job = await app.enqueue_raw("send", {"to": "a"}, priority=4)
        assert ((await job.status()).queue, (await job.status()).priority) == (QUEUE, 4)


async def test_enqueue_sync_works_from_a_thread_without_a_loop(app: App, send: Handler[Email]) -> None:
    async with running(app):
        jobs = await asyncio.gather(
            *(asyncio.to_thread(send.enqueue_sync, Email(to=str(n))) for n in range(10))
        )
        assert await asyncio.gather(*(job.result(PATIENCE) for job in jobs)) == [str(n) for n in range(10)]
        twin = await asyncio.to_thread(send.enqueue_sync, Email(to="a"), dedupe="k", delay=60)
        other = await asyncio.to_thread(send.enqueue_sync, Email(to="a"), dedupe="k")
    assert isinstance(twin, Inserted)
    assert isinstance(other, Skipped)


async def test_a_first_rush_of_enqueue_sync_opens_one_connection(
    app: App, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    await asyncio.gather(*(asyncio.to_thread(send.enqueue_sync, Email(to="a")) for _ in range(10)))
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert await connection.fetchval(others) == 1


CALLER = SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=False, trace_flags=TraceFlags(1))


async def test_a_job_carries_the_trace_of_whoever_enqueued_it(app: App, send: Handler[Email]) -> None:
    async with app:
        with use_span(NonRecordingSpan(CALLER)):
            jobs = [
                await send.enqueue(Email(to="a")),
                *(await app.enqueue_many([send.request(Email(to="b"))])),
                await asyncio.to_thread(send.enqueue_sync, Email(to="c")),
            ]
        traces = [(await job.status()).trace for job in jobs]
    assert [trace.split("-")[1] for trace in traces if trace] == [f"{0xABC:032x}"] * 3


async def test_enqueue_sync_in_a_running_loop_says_what_to_do(app: App, send: Handler[Email]) -> None:
    with pytest.raises(BadInput, match="would block the running event loop; await enqueue instead"):
        send.enqueue_sync(Email(to="a"))


async def test_enqueue_sync_reports_what_is_wrong_in_the_callers_thread(
    app: App, send: Handler[Email]
) -> None:
    with pytest.raises(BadPayload):
        await asyncio.to_thread(send.enqueue_sync, {"to": 5})  # type: ignore[arg-type]


SCRIPT = """
import sys
from rota import App
app = App(database_url=sys.argv[1])
@app.job(queue="work", kind="send")
def send(payload): ...
print(send.enqueue_sync({"to": "script"}).id)
"""


async def test_enqueue_sync_works_in_a_script_that_then_ends(
    dsn: str, app: App, send: Handler[Email]
) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT, dsn],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    async with running(app):
        ran = await asyncio.to_thread(run)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert await app.result(int(ran.stdout), timeout=PATIENCE) == "script"


async def test_an_app_touches_nothing_until_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_POD_CAPACITY", "nonsense")
    app = App(database_url="postgresql://nobody@nowhere.invalid/none")

    @app.job()
    async def handle() -> None: ...

    with pytest.raises(RotaError, match="ROTA_POD_CAPACITY"):
        await app.open()


async def test_an_app_without_a_database_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_DATABASE_URL", raising=False)
    with pytest.raises(RotaError, match="set ROTA_DATABASE_URL"):
        await App(Settings()).open()


async def test_a_follow_up_may_be_enqueued_from_inside_a_handler(dsn: str) -> None:
    app = make_app(dsn)
    told = recorded(app)
    jobs: list[Any] = []

    @app.job(queue=QUEUE)
    async def second(number: int) -> int:
        return number + 1

    @app.job(queue=QUEUE)
    async def first(number: int) -> None:
        jobs.append(await second.enqueue(number + 1))

    async with running(app):
        job = await first.enqueue(1)
        await ended(told, job)
        assert await jobs[0].result(PATIENCE) == 3
