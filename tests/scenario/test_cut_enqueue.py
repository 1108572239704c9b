"""An enqueue whose answer never comes: the caller is told that the outcome is unknown, and may ask again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rota import App, Inserted, Request, Skipped
from rota.errors import DatabaseUnavailable
from tests.support.crash_app import QUEUE, add_handlers
from tests.support.crash_scene import SLOTS, UNHARMED, Scene, costs, once_each, other_session
from tests.support.cutter import At, Cutter, named, text
from tests.support.pods import make_app
from tests.support.until import until

BULK = 10_001
"""One more than fits into one statement, so that it takes a transaction."""

enqueues = named("enqueue_job", "enqueue_jobs")


@pytest.fixture
async def app(cutter: Cutter, scene: Scene) -> AsyncIterator[App]:
    """A producer behind the proxy."""
    app = make_app(cutter.dsn, QUEUE, database={"command_timeout": 1.0})
    add_handlers(app, scene.notebook, slots=SLOTS)
    async with app:
        yield app


async def waiting(scene: Scene) -> list[int]:
    return [row["id"] for row in await scene.database.fetch("SELECT id FROM rota.job ORDER BY id")]


async def end_all(scene: Scene, jobs: list[int]) -> None:
    """What was enqueued is real: it runs, each once."""
    scene.notebook.open_door()
    async with scene.crew():
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
    assert await waiting(scene) == []


def request(app: App, key: str | None = None) -> Request:
    note = app.handlers["note"]
    return note.request() if key is None else note.request(dedupe=key)


async def test_an_enqueue_whose_answer_is_lost_is_there_and_its_retry_is_skipped(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    snare = cutter.snare(enqueues, At.ANSWER)
    asked = asyncio.create_task(app.enqueue(request(app, "once")))
    await snare.answered()
    snare.cut()
    with pytest.raises(DatabaseUnavailable):
        await asked
    [job] = await waiting(scene)
    assert await app.enqueue(request(app, "once")) == Skipped(app, job)
    await end_all(scene, [job])


async def test_an_enqueue_the_server_never_got_is_not_there_and_its_retry_is_inserted(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    snare = cutter.snare(enqueues, At.REQUEST)
    asked = asyncio.create_task(app.enqueue(request(app, "once")))
    await snare.caught()
    snare.drop()
    with pytest.raises(DatabaseUnavailable):
        await asked
    assert await waiting(scene) == []
    job = await app.enqueue(request(app, "once"))
    assert isinstance(job, Inserted)
    await end_all(scene, [job.id])


async def test_an_enqueue_that_arrives_after_its_retry_makes_no_second_job(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    snare = cutter.snare(enqueues, At.REQUEST)
    asked = asyncio.create_task(app.enqueue(request(app, "once")))
    await snare.caught()
    snare.cut()
    with pytest.raises(DatabaseUnavailable):
        await asked
    job = await app.enqueue(request(app, "once"))
    assert isinstance(job, Inserted)
    snare.deliver()
    await snare.answered()
    assert await waiting(scene) == [job.id]
    await end_all(scene, [job.id])


async def test_an_enqueue_held_on_a_lock_until_after_its_retry_makes_one_job(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    snare = cutter.snare(enqueues, At.ANSWER)
    async with other_session(scene.dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("LOCK TABLE rota.job IN SHARE MODE")
        asked = asyncio.create_task(app.enqueue(request(app, "once")))
        await until("the enqueue waits", lambda: scene.waits_on_a_lock("enqueue_job"))
        snare.cut()
        with pytest.raises(DatabaseUnavailable):
            await asked
        retried = asyncio.create_task(app.enqueue(request(app, "once")))

        async def both_wait() -> bool:
            return await scene.waits_on_a_lock("enqueue_job") == 2

        await until("its retry waits beside it", both_wait)
        await transaction.rollback()
        await snare.answered()
        job = await retried
    assert await waiting(scene) == [job.id]
    await end_all(scene, [job.id])


async def test_callers_that_shared_an_insert_are_all_told_that_its_outcome_is_unknown(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    first = cutter.snare(enqueues, At.REQUEST)
    asked = [asyncio.create_task(app.enqueue(request(app, f"key {number}"))) for number in range(20)]
    await first.caught()
    shared = cutter.snare(enqueues, At.ANSWER)
    first.let_go()
    await shared.answered()
    shared.cut()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[0], Inserted)
    assert {type(answer) for answer in answers[1:]} == {DatabaseUnavailable}
    jobs = await waiting(scene)
    again = await asyncio.gather(*(app.enqueue(request(app, f"key {number}")) for number in range(20)))
    assert [job.id for job in again] == jobs
    assert {type(job) for job in again} == {Skipped}
    await end_all(scene, jobs)


@pytest.mark.parametrize(
    ("at", "inserted"), [(At.ANSWER, BULK), (At.REQUEST, 0)], ids=["after the commit", "before the server"]
)
async def test_a_bulk_whose_commit_is_cut_off_is_there_whole_or_not_at_all(
    scene: Scene, cutter: Cutter, app: App, at: At, inserted: int
) -> None:
    snare = cutter.snare(text("COMMIT"), at)
    asked = asyncio.create_task(app.enqueue_many([request(app)] * BULK))
    await (snare.answered() if at is At.ANSWER else snare.caught())
    snare.drop()
    with pytest.raises(DatabaseUnavailable):
        await asked
    assert len(await waiting(scene)) == inserted
    assert isinstance(await app.enqueue(request(app)), Inserted)


async def test_an_enqueue_on_a_half_open_connection_is_given_up_in_time(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    snare = cutter.snare(enqueues, At.ANSWER)
    with pytest.raises(DatabaseUnavailable):
        await app.enqueue(request(app, "once"))
    await snare.answered()
    [job] = await waiting(scene)
    assert await app.enqueue(request(app, "once")) == Skipped(app, job)


@pytest.mark.parametrize("noticed", [False, True])
async def test_connections_that_died_while_idle_cost_at_most_one_enqueue_its_answer(
    scene: Scene, cutter: Cutter, app: App, noticed: bool
) -> None:
    before = await app.enqueue(request(app, "before"))
    async with other_session(cutter.dsn) as canary:
        cutter.cut_all()
        if noticed:
            await until("this process has noticed", canary.is_closed)

    async def enqueued() -> bool:
        try:
            await app.enqueue(request(app, "after"))
        except DatabaseUnavailable:
            return False
        return True

    await until("an enqueue succeeds", enqueued)
    jobs = await waiting(scene)
    assert len(jobs) == 2
    assert before.id in jobs


async def test_an_enqueue_in_the_caller_s_own_transaction_is_there_exactly_if_that_committed(
    scene: Scene, cutter: Cutter, app: App
) -> None:
    async with other_session(cutter.dsn) as caller:
        transaction = caller.transaction()
        await transaction.start()
        await app.enqueue(request(app, "once"), connection=caller)
        snare = cutter.snare(text("COMMIT"), At.ANSWER)
        committing = asyncio.create_task(transaction.commit())
        await snare.answered()
        snare.cut()
        with pytest.raises(Exception, match="closed"):
            await committing
    [job] = await waiting(scene)
    await end_all(scene, [job])
