"""Middleware around every run, and hooks after every transition that is in the database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import App, Change, Context, Dead, Fixed, JobFailed, JobState, Release
from rota.events import HookFailed, JobsLost, PodLeft
from rota.runtime import pod as pod_module
from rota.runtime.hooks import Hook
from rota.testing import Recorder
from tests.support.pods import PATIENCE, QUEUE, ended, running, soon


class Watcher:
    """A hook that keeps what it is called with, and what the database says at that moment."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.changes: list[Change] = []
        self.rows: list[JobState] = []
        self._seen = asyncio.Condition()

    async def __call__(self, change: Change) -> None:
        self.rows.append((await self._app.read_job(change.job)).state)
        async with self._seen:
            self.changes.append(change)
            self._seen.notify_all()

    async def see(self, count: int) -> list[tuple[JobState, JobState]]:
        async with asyncio.timeout(PATIENCE), self._seen:
            await self._seen.wait_for(lambda: len(self.changes) >= count)
        return [(change.before, change.after) for change in self.changes]


async def test_middleware_is_around_every_run_outermost_first(app: App) -> None:
    diary: list[str] = []

    @app.use
    async def outer(ctx: Context, payload: Any, call: Any) -> Any:
        diary.append(f"outer {ctx.kind} {payload}")
        return f"outer {await call(ctx, payload)}"

    @app.use
    async def inner(ctx: Context, payload: Any, call: Any) -> Any:
        diary.append("inner")
        return await call(ctx, payload)

    @app.job(queue=QUEUE)
    async def asyncly(number: int) -> int:
        return number

    @app.job(queue=QUEUE)
    def on_a_thread(number: int) -> int:
        return number

    async with running(app):
        assert await (await asyncly.enqueue(1)).result(PATIENCE) == "outer 1"
        assert await (await on_a_thread.enqueue(2)).result(PATIENCE) == "outer 2"
    assert diary == ["outer asyncly 1", "inner", "outer on_a_thread 2", "inner"]


async def test_middleware_may_end_a_run_by_itself(app: App, told: Recorder) -> None:
    ran: list[int] = []

    @app.use
    async def guard(ctx: Context, payload: Any, call: Any) -> Any:
        match payload:
            case 1:
                return "short-circuited"
            case 2:
                raise Dead("refused by the guard")
            case 3:
                return Release(600)
            case 4:
                raise ValueError("the guard failed")
        return await call(ctx, payload)

    @app.job(queue=QUEUE, max_attempts=1)
    async def handle(number: int) -> None:
        ran.append(number)

    async with running(app):
        assert await (await handle.enqueue(1)).result(PATIENCE) == "short-circuited"
        for number, reason in ((2, "refused by the guard"), (4, "the guard failed")):
            with pytest.raises(JobFailed, match=reason):
                await (await handle.enqueue(number)).result(PATIENCE)
        released = await handle.enqueue(3)
        assert (await ended(told, released)).outcome == "release"
        await (await handle.enqueue(5)).result(PATIENCE)
    assert ran == [5]


async def test_a_hook_is_called_after_each_transition_is_in_the_database(app: App) -> None:
    watcher = Watcher(app)
    app.on_change(watcher)

    @app.job(queue=QUEUE)
    async def handle() -> None: ...

    async with running(app):
        job = await handle.enqueue()
        await watcher.see(2)
    first, second = watcher.changes
    assert (first.before, first.after) == (JobState.READY, JobState.RUNNING)
    assert (second.before, second.after) == (JobState.RUNNING, JobState.DONE)
    assert {
        (change.job, change.queue, change.kind, change.attempt, change.claim) for change in watcher.changes
    } == {(job.id, QUEUE, "handle", 1, 1)}
    assert watcher.rows[-1] is JobState.DONE
    assert second.reason is None


@pytest.mark.parametrize(
    ("outcome", "after"),
    [
        (Dead("x"), JobState.DEAD),
        (ValueError("x"), JobState.SCHEDULED),
        (Release(), JobState.READY),
        (Release(600), JobState.SCHEDULED),
    ],
    ids=["dead", "retry", "release", "release later"],
)
async def test_a_hook_hears_what_became_of_the_job(app: App, outcome: Exception, after: JobState) -> None:
    watcher = Watcher(app)
    app.on_change(watcher)
    ran: list[int] = []

    @app.job(queue=QUEUE, retry=Fixed(600))
    async def handle() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise outcome

    async with running(app):
        await handle.enqueue()
        assert (await watcher.see(2))[1] == (JobState.RUNNING, after)
    assert watcher.changes[1].reason == (None if isinstance(outcome, Release) else "x")


async def test_hooks_are_called_in_order_and_each_with_every_change(app: App) -> None:
    one, other = Watcher(app), Watcher(app)
    app.on_change(one)
    app.on_change(other)

    @app.job(queue=QUEUE, retry=Fixed(0), max_attempts=2)
    async def handle() -> None:
        raise ValueError

    async with running(app):
        await handle.enqueue()
        assert await one.see(4) == await other.see(4)
    assert [change.after for change in one.changes if change.before is JobState.RUNNING][-1] is JobState.DEAD


async def raises(change: Change) -> None:
    raise ValueError("a bad hook")


async def cancels_itself(change: Change) -> None:
    raise asyncio.CancelledError


def not_async(change: Change) -> None:
    return None


@pytest.mark.parametrize("hook", [raises, cancels_itself, not_async], ids=lambda hook: hook.__name__)
async def test_a_bad_hook_is_told_and_harms_neither_jobs_nor_other_hooks(
    app: App, told: Recorder, hook: Hook
) -> None:
    app.on_change(hook)
    watcher = Watcher(app)
    app.on_change(watcher)

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app) as pod:
        assert await (await handle.enqueue()).result(PATIENCE) == "fine"
        await watcher.see(2)
        assert await (await handle.enqueue()).result(PATIENCE) == "fine"
        await watcher.see(4)
        assert not pod.task.done()
    failures = told.all(HookFailed)
    assert len(failures) == 4
    assert hook.__name__ in failures[0].hook


async def test_a_slow_hook_holds_up_no_job(app: App) -> None:
    called, let_go = asyncio.Event(), asyncio.Event()

    @app.on_change
    async def slow(change: Change) -> None:
        called.set()
        await let_go.wait()

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app):
        for _ in range(3):
            assert await (await handle.enqueue()).result(PATIENCE) == "fine"
        await soon(called)
        let_go.set()


async def test_a_hook_that_hangs_does_not_keep_the_pod_from_leaving(
    app: App, told: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_module, "_LAST_WAIT", 0.3)

    @app.on_change
    async def hangs(change: Change) -> None:
        await asyncio.Event().wait()

    @app.job(queue=QUEUE)
    async def handle() -> str:
        return "fine"

    async with running(app):
        await (await handle.enqueue()).result(PATIENCE)
    assert told.all(PodLeft) == [PodLeft(clean=True, released=0)]


async def test_hooks_have_heard_everything_when_the_pod_has_left(app: App) -> None:
    heard: list[JobState] = []

    @app.on_change
    async def hook(change: Change) -> None:
        await asyncio.sleep(0)
        heard.append(change.after)

    @app.job(queue=QUEUE)
    async def handle() -> None: ...

    async with running(app):
        jobs = await app.enqueue_many([handle.request() for _ in range(50)])
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    assert heard.count(JobState.DONE) == 50
    assert heard.count(JobState.RUNNING) == 50


async def test_a_hook_does_not_hear_of_a_run_that_was_lost(app: App, told: Recorder) -> None:
    """Its outcome is not in the database."""
    inside, let_go = asyncio.Event(), asyncio.Event()
    heard: list[JobState] = []

    @app.on_change
    async def hook(change: Change) -> None:
        heard.append(change.after)

    @app.job(queue=QUEUE)
    async def handle() -> None:
        inside.set()
        await let_go.wait()

    async with running(app):
        job = await handle.enqueue()
        await soon(inside)
        async with app.database.connection() as connection:
            await connection.execute("UPDATE rota.job SET claim = claim + 7")
        let_go.set()
        lost = await asyncio.wait_for(told.wait_for(JobsLost), PATIENCE)
        assert list(lost.jobs) == [job.id]
        async with app.database.connection() as connection:
            await connection.execute("DELETE FROM rota.job")
    assert heard == [JobState.RUNNING]
