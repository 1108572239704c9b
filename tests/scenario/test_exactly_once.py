"""Two worker processes on one queue: each job runs exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.crash_scene import UNHARMED, Scene, costs
from tests.support.pod_process import pod_process
from tests.support.until import until

JOBS = 20_000
SLOTS = 256


async def test_of_20_000_jobs_that_two_processes_claim_each_runs_exactly_once(
    scene: Scene, tmp_path: Path
) -> None:
    with (
        pod_process(scene.dsn, tmp_path, slots=SLOTS) as first,
        pod_process(scene.dsn, tmp_path, slots=SLOTS) as second,
    ):
        await until(
            "both are there",
            lambda: scene.database.fetchval("SELECT count(*) = 2 FROM rota.pod WHERE state = 'up'"),
        )
        async with scene.database.transaction():
            jobs = await scene.enqueue("note", JOBS)
        ended = await scene.all_end(jobs, patience=60)
        for process in (first, second):
            process.terminate()
            assert process.wait(15) == 0
    runs = scene.notebook.runs()
    assert Counter(run.job for run in runs) == Counter(jobs)
    assert {run.process for run in runs} == {first.pid, second.pid}, "one of them had nothing to do"
    assert costs(ended) == UNHARMED
    assert {row["claim"] for row in ended.values()} == {1}
    assert await scene.database.fetchval("SELECT count(*) FROM rota.history") == JOBS
