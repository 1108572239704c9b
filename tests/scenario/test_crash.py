"""A worker process dies by SIGKILL at each moment of a job's life; another pod ends what it left.

The moments are reached without any hook in the product: a proxy holds the statement or its answer,
a handler waits at a door, a lock in the database stops the finalize.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.crash_scene import SLOTS, UNHARMED, Scene, costs, once_each, other_session
from tests.support.cutter import At, Cutter, claims, ends_runs
from tests.support.pod_process import pod_process
from tests.support.until import until

JOBS = 3 * SLOTS
SAME_POD = {"ROTA_POD_UID": "5f0c", "ROTA_POD_CONTAINER": "worker", "ROTA_POD_TTL": "600"}
RESCUED = {("done", 2, 1)}
"""The run that died with its pod counts as an attempt and as a rescue."""


@contextmanager
def victim(dsn: str, directory: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    with pod_process(dsn, directory, slots=SLOTS, **settings) as process:
        yield process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


async def end_elsewhere(scene: Scene, jobs: list[int], lost: list[int]) -> None:
    """Another pod ends all jobs: the lost ones once more, all others as if nothing had been."""
    async with scene.crew() as crew:
        ended = await scene.all_end(jobs)
        assert await scene.running() == []
        assert {job for job, row in ended.items() if row["rescues"]} == set(lost)
        assert costs({job: row for job, row in ended.items() if job in lost}) <= RESCUED
        assert costs({job: row for job, row in ended.items() if job not in lost}) <= UNHARMED
        await scene.fills_every_slot(crew)


async def test_a_pod_killed_between_its_claim_and_the_first_handler_loses_no_job(
    scene: Scene, cutter: Cutter, tmp_path: Path
) -> None:
    jobs = await scene.enqueue("note", JOBS)
    snare = cutter.snare(claims, At.ANSWER)
    with victim(cutter.dsn, tmp_path, ROTA_POD_LANES="1") as process:
        await snare.answered()
        kill(process)
    lost = await scene.running()
    assert lost, "the claim has not committed"
    assert scene.notebook.runs() == []
    await end_elsewhere(scene, jobs, lost)
    assert set(scene.runs_of(jobs).values()) == {1}


async def test_a_pod_killed_in_its_handlers_loses_no_job(scene: Scene, tmp_path: Path) -> None:
    jobs = await scene.enqueue("endless_at_first", SLOTS)
    waiting = await scene.enqueue("note", JOBS)
    with victim(scene.dsn, tmp_path) as process:
        await until("every handler has begun", lambda: len(scene.notebook.runs()) == SLOTS)
        kill(process)
    assert await scene.running() == jobs
    await end_elsewhere(scene, [*jobs, *waiting], jobs)
    assert set(scene.runs_of(jobs).values()) == {2}


async def test_a_pod_killed_between_its_handler_and_the_finalize_runs_that_job_again(
    scene: Scene, cutter: Cutter, tmp_path: Path
) -> None:
    jobs = await scene.enqueue("note", JOBS)
    snare = cutter.snare(ends_runs, At.REQUEST)
    with victim(cutter.dsn, tmp_path, ROTA_POD_LANES="1") as process:
        await snare.caught()
        kill(process)
    snare.drop()
    lost = await scene.running()
    assert lost
    assert {run.job for run in scene.notebook.runs()} == set(lost)
    await end_elsewhere(scene, jobs, lost)
    assert set(scene.runs_of(lost).values()) == {2}


@asynccontextmanager
async def finalize_on_a_lock(scene: Scene, directory: Path) -> AsyncIterator[tuple[int, list[int]]]:
    """A pod killed while its finalize waits for a lock in the server; the lock goes in the end.

    Gives the job of which the outcome is under way, and those that the same statement may claim.
    """
    [ending] = await scene.enqueue("gated")
    async with other_session(scene.dsn) as other:
        with victim(scene.dsn, directory, ROTA_POD_LANES="1") as process:
            await until("the handler has begun", scene.notebook.runs)
            transaction = other.transaction()
            await transaction.start()
            await other.execute("SELECT FROM rota.job FOR UPDATE")
            scene.notebook.open_door()
            await until("the finalize waits", lambda: scene.waits_on_a_lock("work_jobs"))
            waiting = await scene.enqueue("note", JOBS)
            kill(process)
        yield ending, waiting
        await transaction.rollback()


async def test_a_finalize_that_outlives_its_killed_pod_is_written_and_its_claim_is_rescued(
    scene: Scene, tmp_path: Path
) -> None:
    async with finalize_on_a_lock(scene, tmp_path) as (ending, waiting):
        assert await scene.running() == [ending]
    await scene.all_end([ending])
    lost = await scene.running()
    assert lost, "the statement has claimed nothing"
    await end_elsewhere(scene, [ending, *waiting], lost)
    assert set(scene.runs_of([ending, *waiting]).values()) == {1}


async def test_a_finalize_held_on_a_lock_for_longer_than_its_killed_pod_s_ttl_is_harmless(
    scene: Scene, tmp_path: Path
) -> None:
    async with finalize_on_a_lock(scene, tmp_path) as (ending, waiting):
        await scene.let_pods_expire()
        # The statement keeps its pod's row, and so the slots, until it ends: others need room beside them.
        await scene.database.execute("UPDATE rota.queue SET max_workers = $1", 2 * SLOTS)
        async with scene.crew():
            await scene.all_end(waiting)
            assert await scene.running() == [ending]
    await scene.database.execute("UPDATE rota.queue SET max_workers = $1", SLOTS)
    async with scene.crew() as crew:
        ended = await scene.all_end([ending, *waiting])
        assert costs(ended) == UNHARMED
        assert set(scene.runs_of(ended).values()) == {1}
        await scene.fills_every_slot(crew)


async def test_a_container_that_is_started_again_has_its_jobs_back_at_once(
    scene: Scene, tmp_path: Path
) -> None:
    """The same pod id: the new boot retires the old one, without waiting for its TTL."""
    jobs = await scene.enqueue("endless_at_first", SLOTS)
    with victim(scene.dsn, tmp_path, **SAME_POD) as first:
        await until("every handler has begun", lambda: len(scene.notebook.runs()) == SLOTS)
        kill(first)
    with victim(scene.dsn, tmp_path, **SAME_POD):
        assert costs(await scene.all_end(jobs)) == RESCUED
    assert await scene.database.fetchval("SELECT count(*) FROM rota.pod") == 1


async def die_of_it(scene: Scene, directory: Path, boots: int) -> None:
    """Boot the same pod again and again, and each time a job kills it."""
    for _ in range(boots):
        with victim(scene.dsn, directory, **SAME_POD, ROTA_POD_LANES="1") as process:
            await until("a job has killed its pod", lambda: process.poll() is not None)
            assert process.returncode == -signal.SIGKILL


async def test_a_job_that_kills_every_pod_it_runs_on_is_dead_after_three(
    scene: Scene, tmp_path: Path
) -> None:
    [poison] = await scene.enqueue("poison")
    await die_of_it(scene, tmp_path, 3)
    with victim(scene.dsn, tmp_path, **SAME_POD):
        row = (await scene.all_end([poison]))[poison]
    assert (row["state"], row["attempt"]) == ("dead", 3)
    assert "pod lost" in row["errors"]


async def test_a_job_that_kills_every_pod_it_runs_on_takes_no_neighbour_with_it(
    scene: Scene, tmp_path: Path
) -> None:
    neighbours = await scene.enqueue("endless_at_first", SLOTS - 1)
    [poison] = await scene.enqueue("poison")
    await die_of_it(scene, tmp_path, 3)
    with victim(scene.dsn, tmp_path, **SAME_POD):
        ended = await scene.all_end([*neighbours, poison])
    assert ended.pop(poison)["state"] == "dead"
    assert costs(ended) == {("done", 3, 2)}, "all died twice together, and then each had a pod to itself"


async def test_a_pod_told_to_stop_under_load_exits_with_0_and_burns_no_attempt(
    scene: Scene, tmp_path: Path
) -> None:
    [long] = await scene.enqueue("endless_at_first")
    with victim(scene.dsn, tmp_path) as leaver:
        await until("the long job has begun", scene.notebook.runs)
        with victim(scene.dsn, tmp_path) as stayer:
            both = {leaver.pid, stayer.pid}
            two_pods = "SELECT count(*) = 2 FROM rota.pod"
            await until("both are there", lambda: scene.database.fetchval(two_pods))
            jobs = await scene.enqueue("brief", 1_000)
            await until(
                "both are busy",
                lambda: {run.process for run in scene.notebook.runs() if run.job != long} == both,
            )
            leaver.terminate()
            assert leaver.wait(15) == 0
            ended = await scene.all_end([long, *jobs])
            assert await scene.database.fetchval("SELECT count(*) FROM rota.pod") == 1
    assert costs(ended) == UNHARMED
    assert scene.runs_of(jobs) == once_each(jobs)
