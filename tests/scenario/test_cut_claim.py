"""A claim whose answer never comes: the connection is cut before, in and after the server's work."""

from __future__ import annotations

from contextlib import AsyncExitStack

from rota.events import BatchesSettled
from tests.support.crash_scene import SLOTS, UNHARMED, Scene, costs, once_each, other_session
from tests.support.cutter import At, Cutter, claims, named
from tests.support.until import until

JOBS = 3 * SLOTS


async def test_a_committed_claim_whose_answer_is_lost_is_given_back_and_costs_no_attempt(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("note", JOBS)
    snare = cutter.snare(claims, At.ANSWER)
    async with scene.crew(cutter.dsn, lanes=1) as crew:
        await snare.answered()
        taken = await scene.running()
        assert taken, "the claim has not committed"
        snare.cut()
        ended = await scene.all_end(jobs)
        assert costs(ended) == UNHARMED
        assert {job for job, row in ended.items() if row["claim"] > 1} == set(taken)
        assert scene.runs_of(jobs) == once_each(jobs)
        assert crew.told.all(BatchesSettled)[0].released == len(taken)
        await scene.fills_every_slot(crew)


async def test_a_claim_the_server_never_got_leaks_no_slot(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("note", JOBS)
    snare = cutter.snare(claims, At.REQUEST)
    async with scene.crew(cutter.dsn) as crew:
        await snare.caught()
        snare.drop()
        ended = await scene.all_end(jobs)
        assert costs(ended) == UNHARMED
        assert {row["claim"] for row in ended.values()} == {1}
        await scene.fills_every_slot(crew)


async def test_the_slots_of_an_unanswered_claim_stay_in_use_until_it_is_settled(
    scene: Scene, cutter: Cutter
) -> None:
    await scene.enqueue("gated", JOBS)
    claim = cutter.snare(claims, At.ANSWER)
    settling = cutter.snare(named("settle_batches"), At.REQUEST)
    async with scene.crew(cutter.dsn) as crew:
        await claim.answered()
        claim.cut()
        await settling.caught()
        await until("the other lane fills the rest", lambda: len(scene.notebook.runs()) == SLOTS // 2)
        assert crew.in_use == SLOTS
        assert len(await scene.running()) == SLOTS
        settling.let_go()
        await until("the slots are filled again", lambda: len(scene.notebook.runs()) == SLOTS)
        assert len(await scene.running()) == SLOTS
        scene.notebook.open_door()


async def test_a_claim_that_arrives_after_it_was_settled_takes_nothing(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    snare = cutter.snare(claims, At.REQUEST)
    async with scene.crew(cutter.dsn) as crew:
        await snare.caught()
        snare.cut()
        await crew.tells(BatchesSettled)
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        before = await scene.running()
        snare.deliver()
        await snare.answered()
        assert await scene.running() == before
        scene.notebook.open_door()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_a_claim_whose_answer_is_only_slow_is_not_given_up_with_a_lost_one(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    lost, slow = cutter.snare(claims, At.ANSWER), cutter.snare(claims, At.ANSWER)
    async with scene.crew(cutter.dsn) as crew:
        await lost.answered()
        await slow.answered()
        lost.cut()
        assert (await crew.tells(BatchesSettled)).released == SLOTS // 2
        slow.let_go()
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        scene.notebook.open_door()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_a_claim_of_an_earlier_boot_takes_nothing_from_a_later_one(
    scene: Scene, cutter: Cutter
) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    snare = cutter.snare(claims, At.REQUEST)
    async with scene.crew(cutter.dsn) as crew:
        await snare.caught()
        snare.cut()
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        async with scene.database.transaction():
            await scene.database.execute("UPDATE rota.pod SET expires_at = clock_timestamp()")
            await scene.database.execute("SELECT rota.sweep_pods(3)")
        await until("every slot is filled again", lambda: len(scene.notebook.runs()) == 2 * SLOTS)
        before = await scene.running()
        snare.deliver()
        await snare.answered()
        assert await scene.running() == before
        scene.notebook.open_door()
        assert {row["state"] for row in (await scene.all_end(jobs)).values()} == {"done"}
        await scene.fills_every_slot(crew)


HOLD_CLAIMS = """
CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN new; END $$;
CREATE TRIGGER gate BEFORE UPDATE ON rota.job
FOR EACH ROW WHEN (new.state = 'running') EXECUTE FUNCTION wait_at_the_gate();
"""
"""Stops a claim when it has passed every check and is about to take its first job."""


async def test_a_claim_that_still_executes_is_not_settled_before_it_ends(
    scene: Scene, cutter: Cutter
) -> None:
    await scene.database.execute(HOLD_CLAIMS)
    jobs = await scene.enqueue("note", JOBS)
    zombie = cutter.snare(claims, At.ANSWER)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(other_session(scene.dsn))
        await other.execute("SELECT pg_advisory_lock(1)")
        crew = await stack.enter_async_context(scene.crew(cutter.dsn, lanes=1))
        await zombie.caught()
        await until("the claim waits", lambda: scene.waits_on_a_lock("work_jobs"))
        zombie.cut()
        await until("the settling waits for it", lambda: scene.waits_on_a_lock("settle_batches"))
        assert crew.in_use == SLOTS
        await other.execute("SELECT pg_advisory_unlock(1)")
        await zombie.answered()
        settled = await crew.tells(BatchesSettled)
        assert settled.released == SLOTS, "what the claim took was not given back at once"
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_a_claim_that_waits_for_its_pod_s_row_takes_nothing_for_good(
    scene: Scene, cutter: Cutter
) -> None:
    async with scene.crew(cutter.dsn) as crew, other_session(scene.dsn) as other:
        zombie = cutter.snare(claims, At.ANSWER)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM rota.pod FOR UPDATE")
        jobs = await scene.enqueue("note", JOBS)
        await zombie.caught()
        await until("the claim waits", lambda: scene.waits_on_a_lock("work_jobs"))
        zombie.cut()
        await until("the settling waits too", lambda: scene.waits_on_a_lock("settle_batches"))
        await transaction.rollback()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_the_answer_to_a_settling_may_be_lost_too(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("note", JOBS)
    claim = cutter.snare(claims, At.ANSWER)
    settling = cutter.snare(named("settle_batches"), At.ANSWER)
    async with scene.crew(cutter.dsn) as crew:
        await claim.answered()
        claim.cut()
        await settling.answered()
        settling.cut()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_a_settling_that_arrives_late_releases_nothing_that_runs(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("gated", JOBS)
    claim = cutter.snare(claims, At.ANSWER)
    settling = cutter.snare(named("settle_batches"), At.REQUEST)
    async with scene.crew(cutter.dsn) as crew:
        await claim.answered()
        claim.cut()
        await settling.caught()
        settling.cut()
        await crew.tells(BatchesSettled)
        await until("every slot is filled", lambda: len(scene.notebook.runs()) == SLOTS)
        before = await scene.running()
        settling.deliver()
        await settling.answered()
        assert await scene.running() == before
        scene.notebook.open_door()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_a_claim_on_a_half_open_connection_is_given_up_in_time(scene: Scene, cutter: Cutter) -> None:
    jobs = await scene.enqueue("note", JOBS)
    snare = cutter.snare(claims, At.ANSWER)
    async with scene.crew(cutter.dsn, database={"command_timeout": 1.0}) as crew:
        await snare.answered()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        assert scene.runs_of(jobs) == once_each(jobs)
        await scene.fills_every_slot(crew)


async def test_a_statement_that_an_operator_cancels_costs_nothing(scene: Scene, cutter: Cutter) -> None:
    async with scene.crew() as crew, other_session(scene.dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("LOCK TABLE rota.queue IN ACCESS EXCLUSIVE MODE")
        jobs = await scene.enqueue("note", JOBS)
        await until("a claim waits", lambda: scene.waits_on_a_lock("work_jobs"))
        await scene.database.execute(
            """
            SELECT pg_cancel_backend(pid)
            FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'rota.work_jobs'
            """
        )
        await transaction.rollback()
        assert costs(await scene.all_end(jobs)) == UNHARMED
        await scene.fills_every_slot(crew)
