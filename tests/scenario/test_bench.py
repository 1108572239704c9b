"""The bench still works on this code: it runs once, as small as it goes. No figure is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from math import isfinite
from pathlib import Path

from bench.sizes import QUICK
from bench.words import CEILING, CPU_PER_JOB, PICKUP_P50, PICKUP_P95, ROTA, WAL_PER_JOB, Works, beside
from bench.works import WORKS
from tests.support.tools import REPOSITORY

PATIENCE = 110.0
WORKS_OF = Works(QUICK)
SIZED = [getattr(WORKS_OF, name) for name, kind in vars(Works).items() if isinstance(kind, property)]
WORDS = [word for word in WORKS if word != "cluster"]
"""The cluster's figures need a minute even at their smallest: `make bench ONLY=cluster ARGS=--quick`."""
CROWDED = [WORKS_OF.backlog, WORKS_OF.future, WORKS_OF.ended, WORKS_OF.foreign]
EVERY_WORK = {*SIZED, *map(beside, CROWDED), CPU_PER_JOB, PICKUP_P50, PICKUP_P95, WAL_PER_JOB}


def test_everything_that_the_bench_measures_can_still_be_measured(postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "quick.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--contenders",
        f"{ROTA},{CEILING}",
        "--only",
        ",".join(WORDS),
    ]
    ran = subprocess.run(
        [*command, "--dsn", postgres, "--out", str(file)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr

    measured = {
        (entry["work"], entry["contender"]): entry["value"]
        for entry in json.loads(file.read_text())
        if "work" in entry
    }
    assert {work for work, contender in measured if contender == ROTA} == EVERY_WORK
    assert {word(work) for work in EVERY_WORK} == set(WORDS)
    assert {word(work) for work, contender in measured if contender == CEILING} == {
        "drain", "pickup", "python", "wal",
    }  # fmt: skip
    assert all(isfinite(value) for value in measured.values())
    # On a busy machine a handler may begin before its producer has heard of the commit.
    assert {work for (work, _), value in measured.items() if value <= 0} <= {PICKUP_P50, PICKUP_P95}


def word(work: str) -> str:
    """The word of --only that a work goes by."""
    return work.partition(":")[0]
