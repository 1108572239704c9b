"""What Rota gives to those who test code that uses it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from rota import App, BadInput, Context, Dead, Fixed, Release, RotaError, Settings
from rota.errors import HandlerMissing
from rota.events import DatabaseFound, Event, JobsEnqueued, PodLeft
from rota.runtime.outcome import Verdict
from rota.testing import ManualClock, Recorder, run_inline


class Email(BaseModel):
    to: str


@pytest.fixture
def app() -> App:
    return App(Settings())


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(5.0)
    assert clock.monotonic() == clock.monotonic() == 5.0
    clock.advance(2.5)
    assert clock.monotonic() == 7.5


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
def test_a_manual_clock_only_ever_grows(seconds: float) -> None:
    with pytest.raises(BadInput, match="only ever grows"):
        ManualClock().advance(seconds)


async def test_a_recorder_keeps_events_in_order_and_by_type() -> None:
    told = Recorder()
    events: list[Event] = [JobsEnqueued(1, 0), DatabaseFound("x"), JobsEnqueued(2, 0)]
    for event in events:
        told(event)
    assert told.events == events
    assert told.all(JobsEnqueued) == [JobsEnqueued(1, 0), JobsEnqueued(2, 0)]
    assert told.all(PodLeft) == []


async def test_a_recorder_gives_what_was_told_before_somebody_waited() -> None:
    told = Recorder()
    told(JobsEnqueued(1, 0))
    told(JobsEnqueued(2, 0))
    assert await told.wait_for(JobsEnqueued) == JobsEnqueued(1, 0)
    assert await told.wait_for(JobsEnqueued, lambda event: event.jobs == 2) == JobsEnqueued(2, 0)


async def test_a_recorder_waits_for_what_is_still_to_come() -> None:
    told = Recorder()
    waiting = [
        asyncio.create_task(told.wait_for(JobsEnqueued, lambda event: event.jobs == 2)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    told(DatabaseFound("x"))
    told(JobsEnqueued(1, 0))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    told(JobsEnqueued(2, 0))
    assert await asyncio.gather(*waiting) == [JobsEnqueued(2, 0)] * 2


async def test_a_recorder_may_be_told_from_any_thread() -> None:
    told = Recorder()
    waiting = asyncio.create_task(told.wait_for(JobsEnqueued))
    await asyncio.sleep(0)
    threading.Thread(target=told, args=[JobsEnqueued(1, 0)]).start()
    assert await asyncio.wait_for(waiting, 10) == JobsEnqueued(1, 0)


async def test_who_gives_up_waiting_is_forgotten() -> None:
    told = Recorder()
    waiting = asyncio.create_task(told.wait_for(JobsEnqueued))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert told._waiting == []
    told(JobsEnqueued(1, 0))


async def test_what_is_waited_for_may_depend_on_what_was_told() -> None:
    told = Recorder()
    waiting = asyncio.create_task(told.wait_for(JobsEnqueued, lambda event: len(told.all(JobsEnqueued)) == 2))
    await asyncio.sleep(0)
    told(JobsEnqueued(1, 0))
    told(JobsEnqueued(2, 0))
    assert await asyncio.wait_for(waiting, 10) == JobsEnqueued(2, 0)


def test_a_recorder_hears_what_an_app_tells(app: App) -> None:
    told = Recorder().listen_to(app)
    app.telemetry.tell(JobsEnqueued(1, 0))
    assert told.events == [JobsEnqueued(1, 0)]


async def test_inline_a_handler_gets_its_payload_and_gives_its_result(app: App) -> None:
    @app.job()
    async def send(ctx: Context, email: Email) -> dict[str, Any]:
        return {"to": email.to, "attempt": ctx.attempt}

    assert await run_inline(app, send.request(Email(to="a"))) == {"to": "a", "attempt": 1}
    assert await run_inline(app, send.request(Email(to="a")), attempt=3) == {"to": "a", "attempt": 3}


async def test_inline_a_result_is_what_json_makes_of_it(app: App) -> None:
    @app.job()
    async def give() -> Any:
        return (1, Email(to="a"))

    assert await run_inline(app, give.request()) == [1, {"to": "a"}]


async def test_inline_a_plain_function_runs_on_a_thread(app: App) -> None:
    @app.job()
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await run_inline(app, where.request()) is False


async def test_inline_the_context_says_what_the_request_said(app: App) -> None:
    seen: list[Any] = []

    @app.job(queue="mails", timeout=9)
    async def look(ctx: Context) -> None:
        ctx.progress(0.5)
        ctx.log.info("heard")
        seen.extend(
            [ctx.queue, ctx.kind, ctx.note, ctx.tags, ctx.dedupe, ctx.priority, ctx.max_attempts, ctx.timeout]
        )
        seen.extend([ctx.app is app, ctx.cancelled, ctx.worker, ctx.incarnation])

    await run_inline(app, look.request(note="why", tags=["a"], dedupe="k", priority=3, max_attempts=2))
    assert seen == ["mails", "look", "why", ("a",), "k", 3, 2, 9, True, False, "mails-1-inline", 1]


async def test_inline_middleware_is_around_the_run(app: App) -> None:
    @app.use
    async def twice(ctx: Context, payload: Any, call: Any) -> Any:
        return 2 * await call(ctx, payload)

    @app.job()
    async def same(number: int) -> int:
        return number

    assert await run_inline(app, same.request(4)) == 8


@pytest.mark.parametrize(
    ("outcome", "word", "delay"),
    [(Release(5), "release", 5), (Dead("no"), "dead", 0), (ValueError("x"), "retry", None)],
)
async def test_inline_anything_but_a_plain_return_is_a_verdict(
    app: App, outcome: Exception, word: str, delay: float | None
) -> None:
    @app.job(retry=Fixed(100))
    async def ends() -> None:
        raise outcome

    verdict = await run_inline(app, ends.request())
    assert isinstance(verdict, Verdict)
    assert verdict.outcome == word
    assert verdict.delay == delay if delay is not None else 75 <= verdict.delay <= 125


async def test_inline_the_last_attempt_is_the_last(app: App) -> None:
    @app.job(max_attempts=2)
    async def fails() -> None:
        raise ValueError("x")

    assert (await run_inline(app, fails.request())).outcome == "retry"
    assert (await run_inline(app, fails.request(), attempt=2)).outcome == "dead"


async def test_inline_a_timeout_stops_the_handler(app: App) -> None:
    @app.job(timeout=0.01, max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    verdict = await run_inline(app, slow.request())
    assert (verdict.outcome, verdict.reason) == ("dead", "stopped after 0.01 s")


async def test_inline_a_payload_that_does_not_fit_is_dead(app: App) -> None:
    @app.job()
    async def send(email: Email) -> None: ...

    verdict = await run_inline(app, send.request(Email(to="a"))._replace(payload="{}"))
    assert verdict.outcome == "dead"
    assert "to: Field required" in str(verdict.reason)


async def test_inline_a_kind_without_a_handler_is_an_error(app: App) -> None:
    @app.job()
    async def send() -> None: ...

    with pytest.raises(HandlerMissing, match='no handler of kind "send"') as missing:
        await run_inline(App(Settings()), send.request())
    assert isinstance(missing.value, RotaError)


async def test_inline_a_cancelled_caller_is_cancelled_with_the_handler(app: App) -> None:
    inside, stopped = asyncio.Event(), asyncio.Event()

    @app.job()
    async def hold() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(run_inline(app, hold.request()))
    await asyncio.wait_for(inside.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
