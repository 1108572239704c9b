"""A job's life in a few statements, to see that a migrated schema works wherever it was put."""

from __future__ import annotations

from uuid import uuid4

from rota.storage.assignments import Assignments
from rota.storage.jobs import Jobs
from rota.storage.leases import Leases
from rota.storage.pods import Pods
from rota.storage.pool import Database
from rota.storage.queues import Queues
from rota.storage.rows import NO_HINT, Ending, Report, Request, Shape, Tenure
from rota.words import BatchNo, Incarnation, JobState, PodId

QUEUE = "smoke"
KIND = "puff"


async def smoke(database: Database) -> None:
    """Enqueue, claim, finalize, retry, cancel, expire; leaves no pod and no waiting job behind."""
    jobs, pods, queues = Jobs(database), Pods(database), Queues(database)
    await queues.declare_queues({QUEUE: (10, None)})
    enqueued = await jobs.enqueue_jobs(
        [Request(Shape(QUEUE, KIND, priority=n, tags=("t",)), "{}") for n in range(5)]
        + [Request(Shape(QUEUE, KIND), "{}", "key")] * 2
        + [Request(Shape(QUEUE, KIND, delay=0.0005), "{}")]
    )
    assert [skipped for _, skipped in enqueued] == [False] * 6 + [True, False]
    pod = PodId(uuid4())
    leases = Leases(database)
    tenure = (await leases.take_lease(pod, 60.0)).tenure
    assert tenure is not None
    await _until_due(jobs, tenure, enqueued[-1][0])
    assert len(await jobs.list_jobs(queue=QUEUE, states=[JobState.READY])) == 7

    boot = await _boot(pods, pod, Incarnation(0), ttl=60.0)
    planned = await Assignments(database).plan_queue(tenure, QUEUE, {pod: 9}, cause="c", sentence="s")
    assert planned is not None
    assert (planned.changed, planned.granted) == ((pod,), 9)
    runs = await jobs.work_jobs(pod, boot, BatchNo(1), QUEUE, 9, [KIND], [NO_HINT], [], [], None, [])
    assert len(runs) == 7
    runs.sort(key=lambda run: int(run["id"]))
    await jobs.write_progress(pod, boot, [(runs[0]["id"], runs[0]["claim"], '{"at": 1}')])
    await jobs.await_job(runs[0]["id"])
    others = [
        Ending(run["id"], run["claim"], outcome, error={"type": "E", "message": "m"})
        for run, outcome in zip(runs[2:], ("dead", "retry", "release", "throttle"), strict=False)
    ]
    lost = await jobs.finalize_jobs(
        pod, boot, [run["id"] for run in runs[:2]], [run["claim"] for run in runs[:2]], ["1", None], others
    )
    assert lost == []
    first = await jobs.read_job(runs[0]["id"])
    assert first is not None
    assert (first.state, first.result, first.progress) == (JobState.DONE, 1, {"at": 1})

    answer = await pods.beat(pod, boot, Report())
    assert answer is not None
    assert (answer.ready, answer.targets) == ((QUEUE,), {QUEUE: 9})
    assert await jobs.settle_batches(pod, boot, BatchNo(1), [1]) == 0
    assert not await pods.leave_pod(pod, boot)
    await _boot(pods, pod, boot, ttl=0.0)
    assert await pods.expire_pods(tenure, 3) == ([pod], 0)
    assert await leases.resign_lease(tenure)
    assert await jobs.retry_job(runs[2]["id"]) == ("ready", None)
    waiting = await jobs.list_jobs(queue=QUEUE, states=[JobState.READY])
    assert [await jobs.cancel_job(job.id) for job in waiting] == ["cancelled"] * 5
    assert await jobs.count_jobs() == []
    assert await pods.list_pods() == []


async def _boot(pods: Pods, pod: PodId, replaces: Incarnation, ttl: float) -> Incarnation:
    """A boot, which takes the jobs of the one before it back."""
    boot = await pods.register_pod(
        pod, replaces=replaces, machine="m", name="s", queues=[QUEUE], kinds=[KIND], capacity=9,
        capacities={}, zone="", version="", ttl=ttl, max_rescues=3,
    )  # fmt: skip
    assert boot.incarnation is not None
    return boot.incarnation


async def _until_due(jobs: Jobs, tenure: Tenure, job: int) -> None:
    """The database's clock passes by itself; each look is a round trip."""
    while (row := await jobs.read_job(job)) is not None and row.state is JobState.SCHEDULED:
        await jobs.promote_jobs(tenure, 10)
