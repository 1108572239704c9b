"""What a pod does when the database refuses, hangs, goes away, or thinks that the pod has gone."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota import App, Context, JobFailed, JobState
from rota.events import (
    DatabaseFound,
    DatabaseLost,
    JobsEnded,
    JobsLost,
    ListenProbed,
    OutcomeRefused,
    PodRegistered,
)
from rota.runtime.janitor import Janitor
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, make_app, recorded, running, soon
from tests.support.until import until

NOWHERE = "postgresql://rota@127.0.0.1:1/nowhere"
REFUSE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.payload::text = '"bad"' AND NEW.state = 'done' THEN
            RAISE EXCEPTION 'no bad ones here' USING ERRCODE = '23514';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON rota.history FOR EACH ROW EXECUTE FUNCTION refuse();
"""
EXPIRE = "UPDATE rota.pod SET expires_at = rota.clock() - interval '1 second'"


@pytest.mark.parametrize("good", [0, 1, 30])
async def test_an_outcome_that_postgres_refuses_fails_only_its_own_job(
    app: App, told: Recorder, connection: asyncpg.Connection, good: int
) -> None:
    await connection.execute(REFUSE)
    app.queue(QUEUE, max_workers=50)
    together = asyncio.Barrier(good + 1)

    @app.job(queue=QUEUE)
    async def handle(payload: str) -> str:
        await together.wait()
        return payload

    async with running(app) as pod:
        payloads = ["fine"] * (good // 2) + ["bad"] + ["fine"] * (good - good // 2)
        jobs = await app.enqueue_many([handle.request(payload) for payload in payloads])
        answers = await asyncio.gather(*(job.result(PATIENCE) for job in jobs), return_exceptions=True)
        assert not pod.task.done()
    bad = answers.pop(good // 2)
    assert answers == ["fine"] * good
    assert isinstance(bad, JobFailed)
    assert bad.state is JobState.DEAD
    assert "no bad ones here" in str(bad.reason)
    assert [event.job for event in told.all(OutcomeRefused)] == [jobs[good // 2].id]
    assert sum(len(event.runs) for event in told.all(JobsEnded)) == good + 1


async def test_a_refused_outcome_does_not_hold_up_the_next_jobs(
    app: App, connection: asyncpg.Connection
) -> None:
    await connection.execute(REFUSE)
    app.queue(QUEUE, max_workers=1)

    @app.job(queue=QUEUE)
    async def handle(payload: str) -> str:
        return payload

    async with running(app):
        jobs = await app.enqueue_many([handle.request(payload) for payload in ("bad", "a", "bad", "b")])
        answers = await asyncio.gather(*(job.result(PATIENCE) for job in jobs), return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, str)] == ["a", "b"]


async def test_a_busy_pool_stops_neither_beats_nor_cancels(dsn: str, connection: asyncpg.Connection) -> None:
    app = make_app(dsn, database={"pool_size": 2}, ttl=0.9)
    inside, stopped = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def hold() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with running(app) as pod:
        job = await hold.enqueue(connection=connection)
        await soon(inside)
        async with app.database.connection(), app.database.connection():
            before = await connection.fetchval("SELECT expires_at FROM rota.pod")
            await until(
                "beats go on for longer than the fence waits",
                lambda: connection.fetchval(
                    "SELECT expires_at - $1 > interval '0.7 s' FROM rota.pod", before
                ),
            )
            assert pod.pod._membership.trusted
            assert not stopped.is_set(), "the fence did not fall"
            await connection.execute("SELECT rota.cancel_job($1)", job.id)
            await soon(stopped)
        with pytest.raises(JobFailed, match="cancelled"):
            await job.result(PATIENCE)


async def test_a_pod_that_hears_no_notices_polls(dsn: str) -> None:
    app = make_app(dsn, database={"direct_url": NOWHERE}, beat=60.0, ttl=600.0)
    told = recorded(app)
    runs: list[int] = []

    @app.job(queue=QUEUE)
    async def handle(ctx: Context) -> int:
        runs.append(ctx.id)
        return ctx.id

    async with running(app) as pod:
        await asyncio.wait_for(told.wait_for(DatabaseLost, lambda event: "notices" in event.doing), PATIENCE)
        now = await handle.enqueue()
        later = await handle.enqueue(delay=0.1)
        assert await now.result(PATIENCE) == now.id
        assert await later.result(PATIENCE) == later.id
        assert not pod.pod.status().listening
        assert not pod.task.done()
    assert not any(event.works for event in told.all(ListenProbed))


async def remove_pods(connection: asyncpg.Connection) -> None:
    """Expire them and rescue their jobs, before they notice; claims under way are waited for."""
    async with connection.transaction():
        await connection.execute("SELECT FROM rota.pod FOR UPDATE")
        await connection.execute(EXPIRE)
        await connection.execute("SELECT rota.sweep_pods(3)")


class Twice:
    """A kind whose first run waits for ever, and whose second returns."""

    def __init__(self, app: App) -> None:
        self.inside = asyncio.Event()
        self.runs: list[tuple[int, int, int]] = []
        self.handler = app.job(queue=QUEUE, kind="twice")(self.run)

    async def run(self, ctx: Context) -> str:
        self.runs.append((ctx.incarnation, ctx.claim, ctx.attempt))
        if len(self.runs) == 1:
            self.inside.set()
            await asyncio.Event().wait()
        return "second boot"


async def test_an_expired_pod_hands_its_jobs_back_uncounted_and_begins_a_new_boot(
    app: App, told: Recorder, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def idle(janitor: Janitor) -> None:
        await asyncio.Event().wait()

    # Its beat is to notice it, not its own janitor.
    monkeypatch.setattr(Janitor, "step", idle)
    twice = Twice(app)
    async with running(app):
        job = await twice.handler.enqueue(max_attempts=1)
        await soon(twice.inside)
        await connection.execute(EXPIRE)
        assert await job.result(PATIENCE) == "second boot"
        row = await job.status()
    first, second = told.all(PodRegistered)
    assert first.pod == second.pod
    assert first.incarnation < second.incarnation
    assert twice.runs == [(first.incarnation, 1, 1), (second.incarnation, 2, 1)]
    assert (row.attempt, row.rescues) == (1, 0)


async def test_an_expired_pod_whose_jobs_were_rescued_changes_nothing_about_them(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    twice = Twice(app)
    async with running(app):
        job = await twice.handler.enqueue()
        await soon(twice.inside)
        await remove_pods(connection)
        assert await job.result(PATIENCE) == "second boot"
        row = await job.status()
    assert [(claim, attempt) for _, claim, attempt in twice.runs] == [(1, 1), (2, 2)]
    assert (row.rescues, [error["type"] for error in row.errors]) == (1, ["PodLost"])
    assert [list(event.jobs) for event in told.all(JobsLost)] == [[job.id]]


async def test_a_pod_whose_row_is_gone_begins_a_new_boot_with_a_later_incarnation(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    """Or a statement of the old boot that lingers in the server could pass for one of the new."""

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app):
        await remove_pods(connection)
        again = await asyncio.wait_for(
            told.wait_for(PodRegistered, lambda event: event is not told.all(PodRegistered)[0]), PATIENCE
        )
        assert again.incarnation > told.all(PodRegistered)[0].incarnation
        assert await (await handle.enqueue()).result(PATIENCE) == "fine"


async def test_a_pod_whose_beats_are_not_answered_starts_nothing_and_then_stops_what_runs(
    dsn: str, connection: asyncpg.Connection
) -> None:
    """FOR SHARE holds up beats and lets claims pass: it is the pod that must not send any."""
    app = make_app(dsn, ttl=0.9)
    told = recorded(app)
    diary: list[str] = []
    inside, stopped = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE, max_attempts=1)
    async def early() -> None:
        if diary:
            return
        diary.append("early runs")
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            diary.append("early is stopped")
            stopped.set()

    @app.job(queue=QUEUE)
    async def late() -> None:
        diary.append("late runs")

    async with running(app) as pod:
        first = await early.enqueue()
        await soon(inside)
        async with connection.transaction():
            await connection.execute("SELECT FROM rota.pod FOR SHARE")
            await until("trust is over", lambda: not pod.pod._membership.trusted)
            second = await late.enqueue()
            await soon(stopped)
            released = await ended(told, first)
        await asyncio.gather(first.result(PATIENCE), second.result(PATIENCE))
        row = await first.status()
    assert released.outcome == "release"
    assert row.attempt == 1
    assert diary == ["early runs", "early is stopped", "late runs"]


async def test_a_run_whose_job_was_given_to_another_changes_nothing(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    inside, let_go = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def handle() -> str:
        inside.set()
        await let_go.wait()
        return "too late"

    async with running(app):
        job = await handle.enqueue()
        await soon(inside)
        await connection.execute("UPDATE rota.job SET claim = claim + 1, note = 'of another'")
        let_go.set()
        lost = await asyncio.wait_for(told.wait_for(JobsLost), PATIENCE)
        row = await job.status()
        await connection.execute("DELETE FROM rota.job")
    assert list(lost.jobs) == [job.id]
    assert (row.state, row.note, row.result) == (JobState.RUNNING, "of another", None)
    assert told.all(JobsEnded) == []


CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def test_connections_that_are_cut_are_made_again_and_no_job_is_lost(
    app: App, told: Recorder, connection: asyncpg.Connection
) -> None:
    runs: list[int] = []
    moments = {50: asyncio.Event(), 120: asyncio.Event(), 200: asyncio.Event()}

    @app.job(queue=QUEUE)
    async def handle(number: int) -> int:
        runs.append(number)
        if len(runs) in moments:
            moments[len(runs)].set()
        return number

    async with running(app) as pod:
        jobs = await app.enqueue_many([handle.request(number) for number in range(300)])
        for moment in moments.values():
            await soon(moment)
            await connection.execute(CUT)
        await until("all have ended", lambda: connection.fetchval("SELECT count(*) = 0 FROM rota.job"))
        assert not pod.task.done()
        states = [(await job.status()).state for job in jobs]
    assert set(states) == {JobState.DONE}
    assert set(runs) == set(range(300))
    assert len(told.all(DatabaseLost)) >= len(told.all(DatabaseFound)) > 0


async def test_a_wrong_direct_url_does_not_stop_a_pod(dsn: str) -> None:
    """LISTEN is an accelerator; nothing depends on it."""
    app = make_app(dsn, database={"direct_url": dsn.rpartition("/")[0] + "/no_such_database"})

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app) as pod:
        for _ in range(2):
            assert await (await handle.enqueue()).result(2) == "fine"
        assert not pod.task.done()


async def test_a_notice_of_nonsense_is_no_trouble(app: App, connection: asyncpg.Connection) -> None:
    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app) as pod:
        await (await handle.enqueue()).result(PATIENCE)
        for word in (
            "",
            ":",
            "due:soon",
            "ended:x",
            "cancel:x:y",
            "cancel:",
            "ready:",
            "ready:unknown",
            "hello",
        ):
            await connection.execute("SELECT pg_notify('rota.notice', $1)", word)
        assert await (await handle.enqueue(delay=0.05)).result(PATIENCE) == "fine"
        assert not pod.task.done()


async def test_a_queue_that_pods_serve_cannot_be_deleted(app: App, connection: asyncpg.Connection) -> None:
    """Or what they hold of it would be forgotten, and given to others once more."""

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app) as pod:
        await (await handle.enqueue()).result(PATIENCE)
        with pytest.raises(asyncpg.ForeignKeyViolationError, match="assignment_is_of_a_queue"):
            await connection.execute("DELETE FROM rota.queue")
        assert await (await handle.enqueue()).result(PATIENCE) == "fine"
        assert not pod.task.done()
    await connection.execute("DELETE FROM rota.queue")


async def test_a_handler_that_hogs_the_loop_delays_but_does_not_break(app: App, told: Recorder) -> None:
    def hog() -> None:
        total = 0
        for number in range(2_000_000):
            total += number

    @app.job(queue=QUEUE)
    async def handle() -> str:
        hog()
        return "hogged"

    async with running(app):
        jobs = await app.enqueue_many([handle.request() for _ in range(3)])
        for job in jobs:
            assert (await ended(told, job)).outcome == "done"
