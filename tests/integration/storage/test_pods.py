"""Pods register, beat, drain and leave; a later boot retires the earlier."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from rota.errors import PodRetired
from rota.storage.rows import QueueTerms, Report
from rota.words import Incarnation, JobState, PodId
from tests.integration.storage.stage import KIND, QUEUE, Pod, Stage, ending


async def test_a_registered_pod_is_listed_as_it_registered(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(queues=["a", "b"], kinds=["x"], ttl=10.0)
    await stage.clock.advance(4.0)
    (row,) = await stage.pods.list_pods()
    assert (row.id, row.incarnation, row.name, row.state) == (pod.id, 1, "a pod", "up")
    assert (row.queues, row.kinds, row.capacity, row.running) == (("a", "b"), ("x",), 100, 0)
    assert (row.age, row.expires_in) == (4.0, 6.0)


async def test_a_later_boot_has_a_higher_incarnation_and_rescues_at_once(stage: Stage) -> None:
    old = await stage.boot()
    run = await stage.run_one(old)
    await stage.settle(old, 7, known=[1])
    new = await stage.boot(old.id)
    assert (old.incarnation, new.incarnation) == (1, 2)
    job = await stage.job(run["id"])
    assert (job.state, job.attempt, job.rescues, job.pod) == (JobState.READY, 1, 1, None)
    assert len(await stage.claim(new, batch=1)) == 1, "the new boot counts its batches from the beginning"


async def test_a_later_boot_leaves_the_jobs_of_other_pods_alone(stage: Stage) -> None:
    other, old = await stage.boot(), await stage.boot()
    theirs = await stage.run_one(other)
    await stage.boot(old.id)
    assert await stage.running() == [theirs["id"]]


async def test_a_pod_that_comes_back_after_its_row_has_gone_is_not_its_earlier_self(stage: Stage) -> None:
    """A statement of the first boot that lingers somewhere must not be taken for the second's."""
    old = await stage.boot()
    await stage.pods.leave_pod(old.id, old.incarnation)
    new = await stage.boot(old.id)
    assert new.incarnation > old.incarnation
    await stage.add()
    assert await stage.claim(old) == []
    with pytest.raises(PodRetired):
        await stage.beat(old)


async def test_two_first_boots_at_once_have_different_incarnations(stage: Stage) -> None:
    id, one = uuid4(), await stage.connect()
    async with one.transaction():
        first = await stage.boot_on(one, id)
        booting = asyncio.ensure_future(stage.boot(id))
        await stage.until_in_the_way(one)
    assert (await booting).incarnation > first


async def test_of_two_first_boots_on_two_machines_the_second_waits_for_the_end_of_the_first(
    stage: Stage,
) -> None:
    await stage.boot()
    id, one = PodId(uuid4()), await stage.connect()
    async with one.transaction():
        first = await stage.boot_on(one, id)
        asking = asyncio.ensure_future(stage.register(id, machine="there"))
        await stage.until_in_the_way(one)
    assert (await asking).incarnation is None
    assert await stage.pods.read_incarnation(id) == first
    again = await stage.register(id, replaces=first, machine="there")
    assert again.incarnation is None
    assert again.wait_in == pytest.approx(10.0, abs=5.0)


async def test_a_boot_on_another_machine_waits_for_the_end_of_the_earlier(stage: Stage) -> None:
    await stage.clock.stop()
    old = await stage.boot(ttl=10.0)
    run = await stage.run_one(old)
    await stage.clock.advance(4.0)
    early = await stage.register(old.id, replaces=old.incarnation, machine="there")
    assert (early.incarnation, early.wait_in, early.found) == (None, 6.0, old.incarnation)
    assert await stage.running() == [run["id"]]
    await stage.clock.advance(6.0)
    late = await stage.register(old.id, replaces=old.incarnation, machine="there")
    assert late.incarnation is not None
    assert late.incarnation > old.incarnation
    assert await stage.running() == []


async def test_a_boot_that_names_another_than_the_one_that_stands_begins_nothing(stage: Stage) -> None:
    old = await stage.boot()
    other = await stage.register(old.id, replaces=old.incarnation + 1)
    assert (other.incarnation, other.wait_in, other.found) == (None, None, old.incarnation)
    assert await stage.beat(old) is not None


async def test_a_beat_renews_the_pod(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=10.0)
    await stage.clock.advance(9.0)
    assert await stage.beat(pod) is not None
    await stage.clock.advance(9.0)
    assert (await stage.pods.list_pods())[0].expires_in == 1.0


async def test_a_beat_tells_what_is_new(stage: Stage) -> None:
    pod = await stage.boot(queues=["a", "b", "c"], kinds=["x", "y"])
    await stage.queues.declare_queues({"a": (3, {"kind": "fixed"}), "d": (9, None)})
    run, other = await stage.run_one(pod, queue="a", kind="x"), await stage.run_one(pod, queue="a", kind="x")
    await stage.connection.execute("UPDATE rota.queue SET paused = true")
    await stage.jobs.cancel_job(run["id"])
    await stage.add(queue="b", kind="y")
    await stage.add(queue="c", kind="unknown here")
    await stage.add(queue="d", kind="x")
    answer = await stage.beat(pod)
    assert answer is not None
    assert (answer.draining, answer.cancels, answer.ready) == (False, (run["id"],), ("b",))
    assert answer.terms == {"a": QueueTerms(3, True, {"kind": "fixed"})}
    assert other["id"] not in answer.cancels


async def test_a_beat_tells_the_terms_of_queues_only_when_they_changed(stage: Stage) -> None:
    await stage.queues.declare_queues({QUEUE: (3, None)})
    pod = await stage.boot()
    first = await stage.beat(pod)
    assert first is not None
    assert first.terms == {QUEUE: QueueTerms(3, False, None)}
    second = await stage.beat(pod, Report(digest=first.digest))
    assert second is not None
    assert second.terms is None
    await stage.queues.change_queue(QUEUE, retry={"kind": "fixed"})
    third = await stage.beat(pod, Report(digest=second.digest))
    assert third is not None
    assert third.terms == {QUEUE: QueueTerms(3, False, {"kind": "fixed"})}


async def test_a_beat_says_when_the_pod_is_draining(stage: Stage) -> None:
    pod = await stage.boot()
    assert await stage.pods.drain_pod(pod.id, pod.incarnation)
    answer = await stage.beat(pod)
    assert answer is not None
    assert answer.draining


async def test_a_beat_does_not_hear_of_other_pods_cancels(stage: Stage) -> None:
    pod, other = await stage.boot(), await stage.boot()
    run = await stage.run_one(other)
    await stage.jobs.cancel_job(run["id"])
    answer = await stage.beat(pod)
    assert answer is not None
    assert answer.cancels == ()


async def test_the_beat_of_an_expired_pod_is_not_answered_and_renews_nothing(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=10.0)
    await stage.clock.advance(10.0)
    assert await stage.beat(pod) is None
    assert (await stage.pods.list_pods())[0].expires_in == 0.0
    await stage.pods.sweep_pods(3)
    assert await stage.beat(pod) is None


async def test_a_retired_boot_is_told_so_and_renews_nothing(stage: Stage) -> None:
    await stage.clock.stop()
    old = await stage.boot(ttl=10.0)
    await stage.boot(old.id, ttl=10.0)
    await stage.clock.advance(4.0)
    with pytest.raises(PodRetired):
        await stage.beat(old)
    assert (await stage.pods.list_pods())[0].expires_in == 6.0
    assert not await stage.pods.drain_pod(old.id, old.incarnation)
    assert not await stage.pods.leave_pod(old.id, old.incarnation)


async def test_a_beat_that_waited_past_the_expiry_does_not_renew(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=10.0)
    holder, beater = await stage.connect(), await stage.connect()
    async with stage.lock_pod(pod, by=holder):
        beat = asyncio.ensure_future(stage.beat(pod, on=beater))
        await stage.until_blocked(beater)
        await stage.clock.advance(10.0)
    assert await beat is None


async def test_a_pod_leaves_only_when_nothing_runs_on_it(stage: Stage) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod)
    assert not await stage.pods.leave_pod(pod.id, pod.incarnation)
    assert len(await stage.pods.list_pods()) == 1
    await stage.done(pod, run)
    assert await stage.pods.leave_pod(pod.id, pod.incarnation)
    assert await stage.pods.list_pods() == []
    assert not await stage.pods.leave_pod(pod.id, pod.incarnation)


async def test_a_pod_that_leaves_waits_for_its_open_claim_and_stays(stage: Stage) -> None:
    await stage.add()
    pod, claimer = await stage.boot(), await stage.connect()
    async with claimer.transaction():
        assert len(await stage.claim(pod, on=claimer)) == 1
        leaver = await stage.connect()
        leave = asyncio.ensure_future(
            stage.database.fetchval("leave_pod", pod.id, pod.incarnation, on=leaver)
        )
        await stage.until_blocked(leaver)
    assert await leave is False


async def test_a_claim_that_waits_for_a_pod_to_leave_takes_nothing(stage: Stage) -> None:
    job = await stage.add_one()
    pod, leaver, claimer = await stage.boot(), await stage.connect(), await stage.connect()
    async with leaver.transaction():
        assert await stage.database.fetchval("leave_pod", pod.id, pod.incarnation, on=leaver)
        claim = asyncio.ensure_future(stage.claim(pod, on=claimer))
        await stage.until_blocked(claimer)
    assert await claim == []
    assert (await stage.job(job)).state is JobState.READY


async def test_what_an_operator_set_outlives_what_code_declares(stage: Stage) -> None:
    assert await stage.queues.declare_queues({QUEUE: (3, None)}) == 1
    await stage.connection.execute("UPDATE rota.queue SET max_workers = 40")
    assert await stage.queues.declare_queues({QUEUE: (3, {"kind": "fixed"}), "reports": (5, None)}) == 1
    queues = {queue.name: (queue.max_workers, queue.retry) for queue in await stage.queues.list_queues()}
    assert queues == {QUEUE: (40, None), "reports": (5, None)}


@pytest.mark.parametrize("name", ["", " x", "x" * 129, "a\nb"])
async def test_a_queue_is_declared_under_a_plain_name_only(stage: Stage, name: str) -> None:
    with pytest.raises(Exception, match="queue_name_is_plain"):
        await stage.queues.declare_queues({name: (1, None)})


async def test_counts_are_by_queue_kind_and_state(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=100.0)
    await stage.add(3)
    await stage.clock.advance(5.0)
    await stage.add(2, delay=60.0)
    (run,) = await stage.claim(pod, 1)
    await stage.add(queue="reports", kind="x")
    counts = [(c.queue, c.kind, c.state.value, c.jobs, c.oldest) for c in await stage.jobs.count_jobs()]
    assert counts == [
        (QUEUE, KIND, "ready", 2, 5.0),
        (QUEUE, KIND, "running", 1, 5.0),
        (QUEUE, KIND, "scheduled", 2, -60.0),
        ("reports", "x", "ready", 1, 0.0),
    ]
    await stage.end(pod, ending(run, "dead"))
    assert sum(count.jobs for count in await stage.jobs.count_jobs()) == 5


async def test_a_boot_that_nobody_registered_neither_drains_nor_beats(stage: Stage) -> None:
    pod = await stage.boot()
    other = Incarnation(pod.incarnation + 1)
    assert not await stage.pods.drain_pod(pod.id, other)
    assert await stage.beat(Pod(pod.id, other)) is None
    assert (await stage.pods.list_pods())[0].state == "up"
