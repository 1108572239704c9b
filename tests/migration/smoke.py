"""A job's life in a few statements, to see that a migrated schema works wherever it was put."""

from __future__ import annotations

from uuid import uuid4

from rota.storage.jobs import Jobs
from rota.storage.pods import Pods
from rota.storage.pool import Database
from rota.storage.queues import Queues
from rota.storage.rows import NO_HINT, Ending, Request, Shape
from rota.words import BatchNo, JobState, PodId

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
    await _until_due(jobs, enqueued[-1][0])
    assert len(await jobs.list_jobs(queue=QUEUE, states=[JobState.READY])) == 7

    pod = PodId(uuid4())
    boot = await pods.register_pod(
        pod, name="s", queues=[QUEUE], kinds=[KIND], capacity=9, zone="", version="", ttl=60.0, max_rescues=3
    )
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

    answer = await pods.beat(pod, boot, 0.0)
    assert answer is not None
    assert answer.ready == (QUEUE,)
    assert await jobs.settle_batches(pod, boot, BatchNo(1), [1]) == 0
    assert await pods.expire_pods(3) == ([pod], 1)
    assert await jobs.retry_job(runs[2]["id"]) == ("ready", None)
    waiting = await jobs.list_jobs(queue=QUEUE, states=[JobState.READY])
    assert [await jobs.cancel_job(job.id) for job in waiting] == ["cancelled"] * 5
    assert await jobs.count_jobs() == []
    assert await pods.list_pods() == []


async def _until_due(jobs: Jobs, job: int) -> None:
    """The database's clock passes by itself; each look is a round trip."""
    while (row := await jobs.read_job(job)) is not None and row.state is JobState.SCHEDULED:
        await jobs.ready_due_jobs(10)
