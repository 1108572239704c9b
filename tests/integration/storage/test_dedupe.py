"""At most one waiting or running job per queue and key, whoever asks first."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota.errors import Conflict
from rota.storage.rows import Request, Shape
from rota.words import JobState
from tests.integration.storage.stage import KIND, QUEUE, Stage, ending

REQUEST = Request(Shape(QUEUE, KIND), "{}", "welcome:17")
BULK = [REQUEST, Request(Shape(QUEUE, KIND), "{}")]
"""With a second job, so that the call goes by the door for many."""


async def test_the_second_is_skipped_and_names_the_first(stage: Stage) -> None:
    ((first, inserted),) = await stage.jobs.enqueue_jobs([REQUEST])
    ((second, skipped),) = await stage.jobs.enqueue_jobs([REQUEST])
    assert (inserted, skipped, second) == (False, True, first)
    assert await stage.connection.fetchval("SELECT count(*) FROM rota.job") == 1


async def test_within_one_call_the_second_is_skipped_too(stage: Stage) -> None:
    other_queue = Request(Shape("reports", KIND), "{}", "welcome:17")
    answers = await stage.jobs.enqueue_jobs([REQUEST, other_queue, REQUEST, *BULK[1:], *BULK[1:]])
    assert [skipped for _, skipped in answers] == [False, False, True, False, False]
    assert answers[2][0] == answers[0][0]
    assert len({id for id, _ in answers}) == 4


async def test_a_skipped_job_leaves_the_waiting_one_as_it_was(stage: Stage) -> None:
    first = await stage.add_one(dedupe="k", payload='{"n": 1}', priority=1)
    before = await stage.job(first)
    await stage.add_one(dedupe="k", payload='{"n": 2}', priority=9)
    assert await stage.job(first) == before


@pytest.mark.parametrize("requests", [[REQUEST], BULK], ids=["single", "bulk"])
async def test_the_later_waits_for_the_earlier_to_commit_and_is_skipped(
    stage: Stage, requests: list[Request]
) -> None:
    one, two = await stage.connect(), await stage.connect()
    transaction = one.transaction()
    await transaction.start()
    ((first, _),) = await stage.jobs.enqueue_jobs([REQUEST], on=one)
    async with stage.blocked(stage.jobs.enqueue_jobs(requests, on=two), on=two) as second:
        await transaction.commit()
    assert second.result()[0] == (first, True)


@pytest.mark.parametrize("requests", [[REQUEST], BULK], ids=["single", "bulk"])
async def test_the_later_waits_for_the_earlier_to_roll_back_and_is_inserted(
    stage: Stage, requests: list[Request]
) -> None:
    one, two = await stage.connect(), await stage.connect()
    transaction = one.transaction()
    await transaction.start()
    ((first, _),) = await stage.jobs.enqueue_jobs([REQUEST], on=one)
    async with stage.blocked(stage.jobs.enqueue_jobs(requests, on=two), on=two) as second:
        await transaction.rollback()
    (id, skipped), *_ = second.result()
    assert not skipped
    assert id != first
    assert (await stage.job(id)).dedupe == "welcome:17"
    assert await stage.jobs.read_job(first) is None


async def test_an_end_that_is_not_yet_committed_is_waited_for(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, dedupe="welcome:17")
    one, two = await stage.connect(), await stage.connect()
    finalize = stage.database.queries["finalize_jobs"]
    async with one.transaction():
        await one.execute(finalize, pod.id, pod.incarnation, [run["id"]], [run["claim"]], None, None)
        work = stage.jobs.enqueue_jobs([REQUEST], on=two)
        second = asyncio.ensure_future(work)
        await stage.until_blocked(two)
    ((id, skipped),) = await second
    assert (skipped, id != run["id"]) == (False, True)


GATE = """
    CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
    CREATE TRIGGER gate AFTER INSERT ON rota.job FOR EACH STATEMENT EXECUTE FUNCTION public.gate();
"""


async def test_if_the_other_ends_between_finding_it_and_naming_it_the_job_is_inserted(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, dedupe="welcome:17")
    await stage.connection.execute(GATE)
    one, two = await stage.connect(), await stage.connect()
    finalize = stage.database.queries["finalize_jobs"]
    async with one.transaction():
        await one.execute("SELECT pg_advisory_xact_lock(1)")
        second = asyncio.ensure_future(stage.jobs.enqueue_jobs([REQUEST], on=two))
        await stage.until_blocked(two)
        await one.execute(finalize, pod.id, pod.incarnation, [run["id"]], [run["claim"]], None, None)
    ((id, skipped),) = await second
    assert (skipped, id != run["id"]) == (False, True)


async def test_an_end_that_rolls_back_keeps_the_key(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, dedupe="welcome:17")
    one, two = await stage.connect(), await stage.connect()
    finalize = stage.database.queries["finalize_jobs"]
    transaction = one.transaction()
    await transaction.start()
    await one.execute(finalize, pod.id, pod.incarnation, [run["id"]], [run["claim"]], None, None)
    async with stage.blocked(stage.jobs.enqueue_jobs([REQUEST], on=two), on=two) as second:
        await transaction.rollback()
    assert second.result() == [(run["id"], True)]


@pytest.mark.parametrize("outcome", ["done", "dead", "cancelled"])
async def test_the_statement_that_ends_a_job_frees_its_key(stage: Stage, outcome: str) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, dedupe="welcome:17")
    if outcome == "done":
        await stage.done(pod, run)
    else:
        await stage.end(pod, ending(run, outcome))
    ((id, skipped),) = await stage.jobs.enqueue_jobs([REQUEST])
    assert (skipped, id != run["id"]) == (False, True)
    assert (await stage.job(run["id"])).dedupe == "welcome:17"


async def test_cancelling_a_waiting_job_frees_its_key(stage: Stage) -> None:
    first = await stage.add_one(dedupe="welcome:17")
    await stage.jobs.cancel_job(first)
    ((_, skipped),) = await stage.jobs.enqueue_jobs([REQUEST])
    assert not skipped


@pytest.mark.parametrize(("outcome", "delay"), [("retry", 0.0), ("retry", 60.0), ("release", 0.0)])
async def test_a_job_that_goes_back_keeps_its_key(stage: Stage, outcome: str, delay: float) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, dedupe="welcome:17")
    await stage.end(pod, ending(run, outcome, delay=delay))
    assert await stage.jobs.enqueue_jobs([REQUEST]) == [(run["id"], True)]


async def test_a_rescued_job_keeps_its_key(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, dedupe="welcome:17")
    await stage.boot(pod.id)
    assert (await stage.job(run["id"])).state is JobState.READY
    assert await stage.jobs.enqueue_jobs([REQUEST]) == [(run["id"], True)]


async def test_two_bulks_with_crossed_keys_end_as_one_conflict_and_no_loss(stage: Stage) -> None:
    """Postgres ends a deadlock by refusing one; that one is told it may try again whole."""
    one, two = await stage.connect(), await stage.connect()
    shape = Shape(QUEUE, KIND)
    first = one.transaction()
    await first.start()
    await stage.jobs.enqueue_jobs([Request(shape, "{}", "a")], on=one)
    second = two.transaction()
    await second.start()
    await stage.jobs.enqueue_jobs([Request(shape, "{}", "b")], on=two)
    crossed = await asyncio.gather(
        stage.jobs.enqueue_jobs([Request(shape, "{}", "b")], on=one),
        stage.jobs.enqueue_jobs([Request(shape, "{}", "a")], on=two),
        return_exceptions=True,
    )
    conflicts = [answer for answer in crossed if isinstance(answer, Conflict)]
    assert len(conflicts) == 1
    await (second if isinstance(crossed[1], Conflict) else first).rollback()
    await (first if isinstance(crossed[1], Conflict) else second).commit()
    kept = await stage.connection.fetch("SELECT dedupe FROM rota.job ORDER BY dedupe")
    assert [row["dedupe"] for row in kept] == ["a", "b"]


async def test_many_who_ask_at_once_get_one_job(stage: Stage) -> None:
    connections = [await stage.connect() for _ in range(10)]
    answers = await asyncio.gather(
        *(stage.jobs.enqueue_jobs([REQUEST], on=connection) for connection in connections)
    )
    assert len({id for ((id, _),) in answers}) == 1
    assert sorted(skipped for ((_, skipped),) in answers) == [False] + [True] * 9


async def test_a_snapshot_that_cannot_see_the_other_is_told_to_try_again(stage: Stage) -> None:
    old = await stage.connect()
    async with old.transaction(isolation="repeatable_read"):
        await old.execute("SELECT count(*) FROM rota.job")
        await stage.jobs.enqueue_jobs([REQUEST])
        with pytest.raises(asyncpg.SerializationError):
            async with old.transaction():
                await old.execute(
                    "SELECT * FROM rota.enqueue('send', queue => 'emails', dedupe => 'welcome:17')"
                )
