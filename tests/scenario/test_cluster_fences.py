"""What a real process does that may no longer be a member, or must not be one beside another.

Whatever it is, what it runs is over before others are given it, and it ends with a sentence.
"""

from __future__ import annotations

from rota.chaos.history import Claimed, Ended, Gone
from tests.support.cluster_process import PATIENCE, Worker
from tests.support.cluster_scene import LONG, QUICK, TTL, Cluster
from tests.support.cutter import Cutter
from tests.support.until import until


async def test_a_second_process_of_the_same_pod_is_refused_in_one_sentence(cluster: Cluster) -> None:
    [first] = await cluster.join("twin")
    async with cluster.load():
        [second] = await cluster.start("twin")
        assert await second.exits() == 1
    assert "Another process on this machine runs as this pod" in second.said
    assert "Traceback" not in second.said
    assert (await cluster.boots())[first.pod] > 0
    history = await cluster.verdict()
    assert len([fact for fact in history.facts if isinstance(fact, Gone)]) == 1, "the first was disturbed"


async def test_a_handler_that_hogs_the_loop_for_longer_than_the_ttl_costs_its_pod_nothing(
    cluster: Cluster,
) -> None:
    await cluster.join("hog", "other")
    await cluster.leader()
    async with cluster.load():
        jobs = await cluster.enqueue("hog", 1.4 * TTL)
        await cluster.end(jobs)
    history = await cluster.verdict()
    left = [fact for fact in history.facts if isinstance(fact, Gone)]
    assert sorted(fact.draining for fact in left) == [True, True], "a pod expired"
    assert {fact.attempt for fact in history.facts if isinstance(fact, Ended)} == {1}


async def test_a_pod_that_is_cut_off_with_a_thread_that_will_not_stop_exits_before_others_have_its_job(
    cluster: Cluster,
) -> None:
    async with Cutter(cluster.dsn) as cutter:
        [victim] = await cluster.join("victim", dsn=cutter.dsn, ROTA_POD_FENCE="exit", ROTA_LEAD="false")
        jobs = await cluster.enqueue("stubborn_at_first", 1, 2)
        await cluster.run(jobs)
        await cluster.join("other")
        async with cluster.load():
            victim.harmed = True
            cutter.fall_silent()
            assert await victim.exits() != 0
            await cluster.end(jobs)
    # The judge also asks whether its threads were over before others were given their jobs.
    history = await cluster.verdict()
    ended = [fact for fact in history.facts if isinstance(fact, Ended) and fact.job in jobs]
    assert {(fact.state, fact.attempt, fact.rescues) for fact in ended} == {("done", 2, 1)}


async def test_a_pod_that_is_cut_off_stops_its_handlers_before_others_have_their_jobs_and_comes_back(
    cluster: Cluster,
) -> None:
    async with Cutter(cluster.dsn) as cutter:
        [victim] = await cluster.join("victim", dsn=cutter.dsn, ROTA_LEAD="false")
        jobs = await cluster.enqueue("gated_at_first", 1, 2)
        await cluster.run(jobs)
        await cluster.join("other")
        async with cluster.load():
            victim.replaces = (await cluster.boots())[victim.pod]
            victim.harmed = True
            cutter.fall_silent()
            await cluster.end(jobs)
            cutter.speak_again()
            await cluster.joined([victim])
        # The judge also asks whether handlers stayed within their runs, of this pod too.
        history = await cluster.verdict()
    ended = [fact for fact in history.facts if isinstance(fact, Ended) and fact.job in jobs]
    assert {(fact.state, fact.attempt, fact.rescues) for fact in ended} == {("done", 2, 1)}


async def test_a_pod_that_fenced_itself_hands_back_what_it_stopped_and_no_attempt_is_counted(
    cluster: Cluster,
) -> None:
    # Nobody leads, so that nobody removes the pod before it is back.
    cluster.settings = {**QUICK, "ROTA_LEAD": "false"}
    async with Cutter(cluster.dsn) as cutter:
        [victim] = await cluster.join("victim", dsn=cutter.dsn)
        jobs = await cluster.enqueue("gated_at_first", 1, 2)
        await cluster.run(jobs)
        victim.replaces = (await cluster.boots())[victim.pod]
        cutter.fall_silent()
        await until("it fences itself", lambda: "PodFenced" in victim.said, PATIENCE)
        cutter.speak_again()
        await cluster.joined([victim])
        await cluster.end(jobs)
        history = await cluster.verdict()
    ended = [fact for fact in history.facts if isinstance(fact, Ended)]
    assert {(fact.state, fact.claim, fact.attempt, fact.rescues) for fact in ended} == {("done", 2, 1, 0)}


async def test_a_process_that_was_stopped_for_longer_than_the_ttl_ends_if_its_fence_is_to_exit(
    cluster: Cluster,
) -> None:
    [victim] = await cluster.join("victim", ROTA_POD_FENCE="exit", ROTA_LEAD="false")
    jobs = await cluster.enqueue("gated_at_first", 1, 2)
    await cluster.run(jobs)
    await cluster.join("other")
    victim.stop()
    await cluster.end(jobs)
    victim.go_on()
    assert await victim.exits() != 0
    await cluster.verdict()


async def retire(cluster: Cluster, worker: Worker) -> None:
    """Register a later boot of its pod, as if from its machine."""
    worker.cut()
    booted = await cluster.database.fetchval(
        """
        SELECT booted
        FROM rota.pod,
        LATERAL rota.register_pod(
            id, incarnation, machine, name, queues, kinds, 0, '{}', zone, version, 0.1, 3)
        WHERE id = $1::uuid
        """,
        worker.pod,
    )
    assert booted is not None


async def test_a_process_whose_pod_was_registered_by_another_stops_and_exits_with_a_sentence(
    cluster: Cluster,
) -> None:
    cluster.settings = {**QUICK, **LONG}
    [victim] = await cluster.join("victim")
    jobs = await cluster.enqueue("gated_at_first", 1, 2)
    await cluster.run(jobs)
    async with cluster.load():
        await retire(cluster, victim)
        assert await victim.exits() == 1
        assert "A later boot of this pod has taken its place" in victim.said
        await cluster.join("other")
        await cluster.end(jobs)
    history = await cluster.verdict()
    boots = {
        fact.incarnation for fact in history.facts if isinstance(fact, Claimed) and fact.pod == victim.pod
    }
    assert len(boots) == 1, "it registered again"
