"""Handlers that are asked to stop: by their timeout, by a cancel, and those that do not listen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import App, Context, Fixed, JobFailed, JobState, Release
from rota.events import JobOverdue, JobsClaimed, ListenProbed
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, make_app, recorded, running, soon
from tests.support.until import until

NOWHERE = "postgresql://rota@127.0.0.1:1/nowhere"
LONG = 600.0


@pytest.fixture
def overdue_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.runtime.claimer._OVERDUE_AFTER", 0.05)


class Held:
    """A handler that waits for ever, and says how it was stopped."""

    def __init__(self, app: App, **options: Any) -> None:
        self.inside, self.stopped = asyncio.Event(), asyncio.Event()
        self.handler = app.job(queue=QUEUE, kind="held", **options)(self.wait)

    async def wait(self, ctx: Context) -> None:
        self.inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled
            self.stopped.set()
            raise


async def test_a_timeout_stops_the_handler_and_counts_as_a_failure(app: App) -> None:
    held = Held(app, timeout=0.02, max_attempts=2, retry=Fixed(0))
    async with running(app):
        job = await held.handler.enqueue()
        with pytest.raises(JobFailed, match=r"stopped after 0.02 s"):
            await job.result(PATIENCE)
        row = await job.status()
    assert held.stopped.is_set()
    assert (row.state, row.attempt) == (JobState.DEAD, 2)
    assert [error["type"] for error in row.errors] == ["TimedOut", "TimedOut"]


async def test_a_jobs_own_timeout_goes_before_its_kinds(app: App) -> None:
    held = Held(app, timeout=LONG, max_attempts=1)
    async with running(app):
        job = await held.handler.enqueue(timeout=0.02)
        with pytest.raises(JobFailed, match=r"stopped after 0.02 s"):
            await job.result(PATIENCE)


async def test_the_settings_timeout_holds_where_neither_job_nor_kind_has_one(dsn: str) -> None:
    app = make_app(dsn)
    job_settings = app.settings.job
    app.settings = app.settings.model_copy(update={"job": type(job_settings)(timeout=0.02)})
    held = Held(app, max_attempts=1)
    async with running(app):
        job = await held.handler.enqueue()
        with pytest.raises(JobFailed, match=r"stopped after 0.02 s"):
            await job.result(0.5)


async def test_a_handler_that_ends_in_time_is_not_disturbed_by_its_timeout(app: App) -> None:
    @app.job(queue=QUEUE, timeout=LONG)
    async def quick(ctx: Context) -> float | None:
        return ctx.remaining

    async with running(app):
        remaining = await (await quick.enqueue()).result(PATIENCE)
    assert LONG - PATIENCE < remaining <= LONG


async def test_what_a_handler_makes_of_its_timeout_is_its_own_affair(app: App) -> None:
    @app.job(queue=QUEUE, timeout=0.02, max_attempts=1)
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "tidied up"
        return "never"

    async with running(app):
        assert await (await tidy.enqueue()).result(PATIENCE) == "tidied up"


async def test_a_timeout_of_the_handlers_own_is_a_plain_failure(app: App) -> None:
    @app.job(queue=QUEUE, timeout=LONG, max_attempts=1)
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    async with running(app):
        job = await impatient.enqueue()
        with pytest.raises(JobFailed):
            await job.result(PATIENCE)
        assert (await job.status()).errors[0]["type"] == "TimeoutError"


@pytest.mark.usefixtures("overdue_at_once")
async def test_a_handler_that_swallows_cancellation_keeps_its_slot_until_it_ends(
    app: App, told: Recorder
) -> None:
    app.queue(QUEUE, max_workers=1)
    go_on, others = asyncio.Event(), []

    @app.job(queue=QUEUE, timeout=0.02)
    async def stubborn() -> str:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "in its own time"

    @app.job(queue=QUEUE)
    async def other() -> None:
        others.append(1)

    async with running(app) as pod:
        job = await stubborn.enqueue()
        waiting = await other.enqueue()
        overdue = await asyncio.wait_for(told.wait_for(JobOverdue), PATIENCE)
        assert (overdue.job, overdue.kind, overdue.why) == (job.id, "stubborn", "timeout")
        assert (await job.status()).state is JobState.RUNNING
        assert pod.use().in_use == 1
        assert others == []
        go_on.set()
        assert await job.result(PATIENCE) == "in its own time"
        await waiting.result(PATIENCE)


@pytest.mark.usefixtures("overdue_at_once")
async def test_a_handler_that_stops_when_asked_is_not_overdue(app: App, told: Recorder) -> None:
    held = Held(app, timeout=0.02, max_attempts=1)
    async with running(app):
        job = await held.handler.enqueue()
        with pytest.raises(JobFailed):
            await job.result(PATIENCE)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, later.set)
        await soon(later)
    assert told.all(JobOverdue) == []


async def test_a_waiting_job_is_cancelled_at_once(app: App) -> None:
    @app.job(queue="unserved")
    async def never() -> None: ...

    async with app:
        job = await never.enqueue(dedupe="key")
        assert await job.cancel("changed my mind") == "cancelled"
        with pytest.raises(JobFailed, match="ended cancelled: changed my mind"):
            await job.result(PATIENCE)
        again = await never.enqueue(dedupe="key")
        assert not again.skipped, "a cancelled job holds no key"
        assert await job.cancel() == "ended"


async def test_a_scheduled_job_is_cancelled_at_once(app: App) -> None:
    @app.job(queue=QUEUE)
    async def never() -> None: ...

    async with running(app):
        job = await never.enqueue(delay=LONG)
        assert await job.cancel() == "cancelled"
        assert (await job.status()).state is JobState.CANCELLED


async def test_a_running_job_is_stopped_by_a_notice(dsn: str) -> None:
    app = make_app(dsn, beat=60.0, ttl=600.0)
    told = recorded(app)
    held = Held(app)
    async with running(app):
        await asyncio.wait_for(told.wait_for(ListenProbed, lambda event: event.works), PATIENCE)
        job = await held.handler.enqueue()
        await soon(held.inside)
        assert await job.cancel("no longer wanted") == "requested"
        await soon(held.stopped)
        with pytest.raises(JobFailed, match="ended cancelled"):
            await job.result(PATIENCE)


async def test_a_running_job_is_stopped_by_the_beat_where_no_notice_arrives(dsn: str) -> None:
    app = make_app(dsn, database={"direct_url": NOWHERE})
    held = Held(app)
    async with running(app):
        job = await held.handler.enqueue()
        await soon(held.inside)
        assert await job.cancel() == "requested"
        await soon(held.stopped)
        with pytest.raises(JobFailed, match="ended cancelled"):
            await job.result(PATIENCE)


async def test_the_reason_of_a_cancel_is_kept_for_a_running_job_too(app: App) -> None:
    held = Held(app)
    async with running(app):
        job = await held.handler.enqueue()
        await soon(held.inside)
        await job.cancel("no longer wanted")
        with pytest.raises(JobFailed, match=r"ended cancelled: .*no longer wanted"):
            await job.result(PATIENCE)


async def test_a_cancel_after_the_handler_returned_does_not_rewrite_history(app: App, told: Recorder) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def finish() -> str:
        inside.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "done all the same"

    async with running(app):
        job = await finish.enqueue()
        await soon(inside)
        assert await job.cancel() == "requested"
        go_on.set()
        assert await job.result(PATIENCE) == "done all the same"
        assert await job.cancel() == "ended"
        row = await job.status()
    assert (row.state, row.errors) == (JobState.DONE, ())


@pytest.mark.parametrize(
    "error", [ValueError("x"), Release(), Release(LONG)], ids=["fails", "released", "later"]
)
async def test_a_job_whose_cancel_was_asked_for_never_goes_back_to_waiting(
    app: App, error: Exception
) -> None:
    inside = asyncio.Event()

    @app.job(queue=QUEUE, retry=Fixed(0))
    async def insistent() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise error from None

    async with running(app):
        job = await insistent.enqueue()
        await soon(inside)
        await job.cancel()
        with pytest.raises(JobFailed, match="ended cancelled"):
            await job.result(PATIENCE)
        row = await job.status()
    assert (row.state, row.claim) == (JobState.CANCELLED, 1)


async def test_a_job_stopped_before_its_first_line_still_ends(app: App, told: Recorder) -> None:
    """A task that is cancelled before its first step never enters its coroutine."""
    ran: list[int] = []

    @app.job(queue=QUEUE)
    async def handle(ctx: Context) -> None:
        ran.append(ctx.id)

    async with running(app) as pod:

        def stop_at_once(event: Any) -> bool:
            if isinstance(event, JobsClaimed) and not stopped:
                stopped.append(event)
                pod.pod.stop_all()
            return bool(stopped)

        stopped: list[JobsClaimed] = []
        waiting = asyncio.create_task(told.wait_for(JobsClaimed, stop_at_once))
        await asyncio.sleep(0)
        job = await handle.enqueue()
        await asyncio.wait_for(waiting, PATIENCE)
        await job.result(1)
        await until("its slot is free", lambda: pod.use().in_use == 0)
    assert ran == [job.id]


async def test_a_cancelled_jobs_slot_is_free_again(app: App) -> None:
    app.queue(QUEUE, max_workers=1)
    held = Held(app)

    @app.job(queue=QUEUE)
    async def other() -> str:
        return "my turn"

    async with running(app):
        job = await held.handler.enqueue()
        await soon(held.inside)
        waiting = await other.enqueue()
        await job.cancel()
        assert await waiting.result(PATIENCE) == "my turn"


async def test_cancelling_one_job_leaves_its_neighbours_alone(app: App, told: Recorder) -> None:
    inside: dict[int, asyncio.Event] = {}
    go_on, both = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def hold(ctx: Context) -> str:
        inside[ctx.id] = asyncio.Event()
        if len(inside) == 2:
            both.set()
        await go_on.wait()
        return "undisturbed"

    async with running(app):
        one, other = await app.enqueue_many([hold.request(), hold.request()])
        await soon(both)
        await one.cancel()
        assert (await ended(told, one)).outcome == "cancelled"
        go_on.set()
        assert await other.result(PATIENCE) == "undisturbed"
