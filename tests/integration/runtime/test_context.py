"""What a handler sees of its run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from rota import App, Context, Job, JobFailed
from tests.support.pods import PATIENCE, QUEUE, make_app, running, soon
from tests.support.until import until

FIELDS = """
    id queue kind attempt max_attempts claim priority worker pod incarnation
    note tags dedupe timeout remaining cancelled app waited trace
"""


async def progress_of(job: Job) -> Any:
    return (await job.status()).progress


async def seen_by_handler(app: App, **options: Any) -> dict[str, Any]:
    """Every field of the context, as one run has it."""
    seen: dict[str, Any] = {}

    @app.job(queue=QUEUE)
    async def look(ctx: Context) -> None:
        for name in FIELDS.split():
            seen[name] = getattr(ctx, name)
        seen["repr"] = repr(ctx)

    async with running(app) as pod:
        job = await look.enqueue(**options)
        await job.result(PATIENCE)
        seen["job"], seen["status"], seen["row"] = job, pod.pod.status(), await job.status()
    return seen


async def test_a_context_says_all_about_its_run(app: App) -> None:
    seen = await seen_by_handler(
        app, note="why", tags=["a", "b"], dedupe="key", timeout=60, priority=3, max_attempts=2
    )
    assert seen["id"] == seen["job"].id
    assert (seen["queue"], seen["kind"]) == (QUEUE, "look")
    assert (seen["attempt"], seen["max_attempts"], seen["claim"], seen["priority"]) == (1, 2, 1, 3)
    assert (seen["note"], seen["tags"], seen["dedupe"]) == ("why", ("a", "b"), "key")
    assert seen["timeout"] == 60
    assert 60 - PATIENCE < seen["remaining"] <= 60
    assert seen["worker"] == f"{QUEUE}-1-{seen['status'].name}"
    assert (seen["pod"], seen["incarnation"]) == (seen["row"].pod, 1)
    assert seen["app"] is app
    assert seen["cancelled"] is False
    assert seen["waited"] >= 0
    assert seen["repr"] == f"<Context look job={seen['id']} attempt=1 claim=1>"


async def test_a_context_of_a_plain_job_has_nothing_more_to_say(app: App) -> None:
    seen = await seen_by_handler(app)
    assert [seen[name] for name in ("note", "tags", "dedupe", "timeout", "remaining", "trace")] == [
        None, (), None, None, None, None,
    ]  # fmt: skip


async def test_a_worker_is_named_after_queue_slot_and_pod_and_slots_are_used_again(dsn: str) -> None:
    app = make_app(dsn, prefix="shop", version="1.2", id="7")
    app.queue(QUEUE, max_workers=3)
    names: list[str] = []
    three, let_go = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def look(ctx: Context) -> None:
        names.append(ctx.worker)
        if len(names) == 3:
            three.set()
        await let_go.wait()

    async with running(app):
        jobs = await app.enqueue_many([look.request() for _ in range(9)])
        await soon(three)
        let_go.set()
        await asyncio.gather(*(job.result(PATIENCE) for job in jobs))
    expected = {f"{QUEUE}-{slot}-shop-worker-1.2-7" for slot in (1, 2, 3)}
    assert set(names[:3]) == expected
    assert set(names) == expected


async def test_a_handlers_log_names_its_job(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(queue=QUEUE)
    async def speak(ctx: Context) -> None:
        ctx.log.warning("heard of %s", "it")

    with caplog.at_level(logging.WARNING):
        async with running(app):
            job = await speak.enqueue()
            await job.result(PATIENCE)
    [record] = [record for record in caplog.records if record.getMessage() == "heard of it"]
    assert str(job.id) in str(vars(record))


async def test_progress_is_visible_while_it_runs_and_the_last_word_is_kept(app: App) -> None:
    inside, let_go = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def work(ctx: Context) -> None:
        ctx.progress(0.1)
        ctx.progress(0.5, "half way", rows=10)
        inside.set()
        await let_go.wait()

    async with running(app):
        job = await work.enqueue()
        await soon(inside)
        await until("progress is written", lambda: progress_of(job))
        row = await job.status()
        assert row.progress == {"done": 0.5, "note": "half way", "rows": 10}
        let_go.set()
        await job.result(PATIENCE)
        assert (await job.status()).progress == row.progress


@pytest.mark.parametrize("done", [-0.1, 1.1, float("nan"), float("inf")])
async def test_progress_goes_from_nothing_to_all(app: App, done: float) -> None:
    @app.job(queue=QUEUE, max_attempts=1)
    async def work(ctx: Context) -> None:
        ctx.progress(done)

    async with running(app):
        with pytest.raises(JobFailed, match=r"progress is .*; it must be between 0 and 1"):
            await (await work.enqueue()).result(PATIENCE)


@pytest.mark.parametrize(
    "more", [{"x": object()}, {"x": "\ud800"}, {"x": "a\x00b"}, {"x": 2**70}, {"x": "x" * 100_000}]
)
async def test_odd_progress_harms_at_most_its_own_job(app: App, more: dict[str, Any]) -> None:
    inside, let_go = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE, max_attempts=1)
    async def odd(ctx: Context) -> None:
        try:
            ctx.progress(0.5, **more)
        finally:
            inside.set()
        await let_go.wait()

    @app.job(queue=QUEUE)
    async def fine(ctx: Context) -> str:
        ctx.progress(1)
        return "fine"

    async with running(app) as pod:
        job = await odd.enqueue()
        await soon(inside)
        await pod.pod._progress.flush()
        assert await (await fine.enqueue()).result(PATIENCE) == "fine"
        assert not pod.task.done()
        let_go.set()
        await asyncio.gather(job.result(PATIENCE), return_exceptions=True)


async def test_a_lost_run_tells_no_progress(app: App, connection: asyncpg.Connection) -> None:
    inside, let_go = asyncio.Event(), asyncio.Event()

    @app.job(queue=QUEUE)
    async def work(ctx: Context) -> None:
        inside.set()
        await let_go.wait()
        ctx.progress(0.9)

    async with running(app) as pod:
        job = await work.enqueue()
        await soon(inside)
        await connection.execute("UPDATE rota.job SET claim = claim + 1")
        let_go.set()
        await asyncio.sleep(0)
        await pod.pod._progress.flush()
        assert (await job.status()).progress is None
        await connection.execute("DELETE FROM rota.job")
