"""A claim takes the right jobs, in the right order, and only for a pod that may have them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rota.storage.rows import NO_HINT, Hint
from rota.words import Incarnation, JobState
from tests.integration.storage.stage import KIND, QUEUE, Pod, Stage, as_json, ending, ids


async def test_the_highest_priority_goes_first_and_then_the_oldest(stage: Stage) -> None:
    jobs = {priority: await stage.add(3, priority=priority) for priority in (0, 5, -5, 5, 32_000, -32_000, 0)}
    everything = sorted(
        ((-job.priority, job.id) for job in await stage.jobs.list_jobs(most=100)),
    )
    assert len(everything) == 21
    assert set(jobs) == {0, 5, -5, 32_000, -32_000}
    pod = await stage.boot()
    claimed = [row["id"] for _ in range(21) for row in await stage.claim(pod, 1)]
    assert claimed == [id for _, id in everything]


async def test_a_batch_is_the_head_of_that_order(stage: Stage) -> None:
    low, high = await stage.add(10, priority=0), await stage.add(3, priority=1)
    pod = await stage.boot()
    assert sorted(ids(await stage.claim(pod, 5))) == sorted(high + low[:2])
    assert sorted(ids(await stage.claim(pod, 5))) == low[2:7]


async def test_several_kinds_are_claimed_in_one_order(stage: Stage) -> None:
    expected = []
    for number in range(60):
        kind, priority = ("a", "b", "c")[number % 3], number * 7 % 4
        expected.append((-priority, await stage.add_one(kind=kind, priority=priority)))
    pod = await stage.boot()
    claimed = []
    while rows := await stage.claim(pod, 7, kinds=["a", "b", "c"]):
        claimed.append(sorted((-row["priority"], row["id"]) for row in rows))
    assert [place for batch in claimed for place in batch] == sorted(expected)
    assert [len(batch) for batch in claimed] == [7] * 8 + [4]


async def test_only_kinds_that_were_asked_for_are_claimed(stage: Stage) -> None:
    await stage.add(5, kind="foreign", priority=9)
    mine = await stage.add(5, kind="mine")
    pod = await stage.boot()
    assert sorted(ids(await stage.claim(pod, kinds=["mine", "unheard"]))) == mine
    assert await stage.claim(pod, kinds=["mine", "unheard"]) == []
    assert await stage.claim(pod, kinds=[]) == []


async def test_only_the_queue_that_was_asked_for_is_claimed(stage: Stage) -> None:
    await stage.add(queue="reports")
    pod = await stage.boot()
    assert await stage.claim(pod) == []


@pytest.mark.parametrize("kinds", [["a"], ["a", "b"], ["a", "b", "c"]])
@pytest.mark.parametrize("most", [0, 1, 9, 10, 11])
async def test_no_claim_takes_more_than_it_asked_for(stage: Stage, kinds: list[str], most: int) -> None:
    for kind in kinds:
        await stage.add(10, kind=kind)
    pod = await stage.boot()
    assert len(await stage.claim(pod, most, kinds=kinds)) == min(most, 10 * len(kinds))


async def test_a_scheduled_job_is_not_claimed(stage: Stage) -> None:
    await stage.add(delay=60.0)
    assert await stage.claim(await stage.boot()) == []


async def test_each_claim_raises_the_claim_number_and_the_attempt(stage: Stage) -> None:
    pod = await stage.boot()
    job = await stage.add_one(max_attempts=9)
    seen = []
    for outcome in ("retry", "release", "retry", "retry"):
        (run,) = await stage.claim(pod)
        seen.append((run["claim"], run["attempt"]))
        await stage.end(pod, ending(run, outcome))
    assert seen == [(1, 1), (2, 2), (3, 2), (4, 3)]
    assert [later[0] - earlier[0] for earlier, later in pairwise(seen)] == [1, 1, 1]
    assert (await stage.job(job)).claim == 4


async def test_a_claimed_job_says_who_runs_it_and_what(stage: Stage) -> None:
    pod = await stage.boot()
    job = await stage.add_one(payload='{"to": "a@b.c"}', priority=3, max_attempts=2)
    (run,) = await stage.claim(pod, batch=7)
    assert (run["id"], run["kind"], run["priority"], run["max_attempts"]) == (job, KIND, 3, 2)
    assert (run["payload"], run["extra"]) == ('{"to": "a@b.c"}', None)
    (row,) = await stage.connection.fetch(
        "SELECT state, pod, incarnation, batch, claimed_at FROM rota.job WHERE id = $1", job
    )
    assert tuple(row)[:4] == ("running", pod.id, pod.incarnation, 7)
    assert row["claimed_at"] is not None


@pytest.mark.parametrize(
    ("shape", "extra"),
    [
        ({"timeout": 1.5}, {"timeout": 1.5}),
        ({"trace": "00-1"}, {"trace": "00-1"}),
        ({"note": "n"}, {"note": "n"}),
        ({"dedupe": "k"}, {"dedupe": "k"}),
        ({"tags": ("a", "b")}, {"tags": ["a", "b"]}),
    ],
)
async def test_what_few_jobs_have_comes_along_in_extra(
    stage: Stage, shape: dict[str, object], extra: dict[str, object]
) -> None:
    pod = await stage.boot()
    run = await stage.run_one(pod, **shape)
    nothing = dict.fromkeys(("timeout", "trace", "note", "dedupe", "tags"))
    told = await stage.connection.fetchval(
        "SELECT $1::jsonb = $2::jsonb", run["extra"], as_json(nothing | extra)
    )
    assert told, run["extra"]


async def test_waited_counts_from_when_the_job_was_due(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=100.0)
    await stage.add(delay=10.0)
    await stage.clock.advance(13.0)
    await stage.promote(10)
    (run,) = await stage.claim(pod)
    assert run["waited"] == pytest.approx(3.0)


async def test_a_paused_queue_gives_nothing_and_an_unknown_one_all(stage: Stage) -> None:
    pod = await stage.boot()
    await stage.add(2)
    await stage.queues.declare_queues({QUEUE: (10, None)})
    await stage.connection.execute("UPDATE rota.queue SET paused = true")
    assert await stage.claim(pod) == []
    await stage.connection.execute("UPDATE rota.queue SET paused = false")
    assert len(await stage.claim(pod, 1)) == 1
    await stage.connection.execute("DELETE FROM rota.queue")
    assert len(await stage.claim(pod, 1)) == 1


async def test_a_cooling_queue_gives_nothing_until_it_has_cooled(stage: Stage) -> None:
    await stage.clock.stop()
    pod = await stage.boot(ttl=1_000.0)
    await stage.add()
    await stage.queues.declare_queues({QUEUE: (10, None)})
    await stage.connection.execute("UPDATE rota.queue SET cool_until = rota.clock() + interval '60 s'")
    await stage.clock.advance(59.9)
    assert await stage.claim(pod) == []
    await stage.clock.advance(0.1)
    assert len(await stage.claim(pod)) == 1


async def test_an_unknown_pod_takes_nothing(stage: Stage) -> None:
    await stage.add()
    pod = await stage.boot()
    assert await stage.claim(Pod(pod.id, Incarnation(pod.incarnation + 1))) == []
    await stage.pods.leave_pod(pod.id, pod.incarnation)
    assert await stage.claim(pod) == []


async def test_a_retired_incarnation_takes_nothing(stage: Stage) -> None:
    await stage.add()
    old = await stage.boot()
    new = await stage.boot(old.id)
    assert await stage.claim(old) == []
    assert len(await stage.claim(new)) == 1


async def test_a_draining_pod_takes_nothing(stage: Stage) -> None:
    await stage.add()
    pod = await stage.boot()
    assert await stage.pods.drain_pod(pod.id, pod.incarnation)
    assert await stage.claim(pod) == []


async def test_an_expired_pod_takes_nothing(stage: Stage) -> None:
    await stage.clock.stop()
    await stage.add()
    pod = await stage.boot(ttl=10.0)
    await stage.clock.advance(10.0)
    assert await stage.claim(pod) == []


async def test_a_batch_that_was_given_up_takes_nothing(stage: Stage) -> None:
    await stage.add(2)
    pod = await stage.boot()
    await stage.settle(pod, 5)
    assert await stage.claim(pod, 1, batch=4) == []
    assert len(await stage.claim(pod, 1, batch=5)) == 1


@pytest.mark.parametrize("kinds", [[KIND], [KIND, "other"]])
async def test_a_hint_never_hides_a_higher_priority(stage: Stage, kinds: list[str]) -> None:
    pod = await stage.boot()
    below, beyond = await stage.add(2, priority=0), await stage.add(2, priority=0)
    higher = await stage.add(2, priority=1)
    hints = [Hint(0, beyond[0]), *[NO_HINT] * (len(kinds) - 1)]
    assert sorted(ids(await stage.claim(pod, 3, kinds=kinds, hints=hints))) == sorted([*higher, beyond[0]])
    assert ids(await stage.claim(pod, 9, kinds=kinds, hints=hints)) == [beyond[1]]
    assert await stage.claim(pod, 9, kinds=kinds, hints=hints) == []
    assert sorted(ids(await stage.claim(pod, 9, kinds=kinds))) == below


async def test_a_hint_passes_over_what_stands_before_it_and_lower_priorities_follow(stage: Stage) -> None:
    pod = await stage.boot()
    passed, found = await stage.add_one(priority=5), await stage.add_one(priority=5)
    lower = await stage.add_one(priority=-5)
    claimed = await stage.claim(pod, 9, hints=[Hint(-5, found)])
    assert sorted(ids(claimed)) == sorted([found, lower])
    assert (await stage.job(passed)).state is JobState.READY
