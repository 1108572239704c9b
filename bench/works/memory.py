"""Memory: what a pod process holds after many jobs, and whether it grows over many more."""

from __future__ import annotations

from bench.harness import Bench
from bench.words import MEBIBYTES, PGQUEUER, ROTA


async def measure(bench: Bench) -> None:
    """Fresh pods each time: after 100,000 jobs for both, over a million for Rota."""
    for _ in range(bench.runs):
        for contender in bench.named(ROTA, PGQUEUER):
            database = await bench.database(contender)
            drained = await bench.drain(contender, database, jobs=bench.sizes.long)
            bench.record(bench.works.memory, contender, _mebibytes(drained.rss[-1]), MEBIBYTES)
        await _flat(bench)


async def _flat(bench: Bench) -> None:
    """One pod, read at a tenth of the way and at its end."""
    for contender in bench.named(ROTA):
        database = await bench.database(contender)
        jobs = bench.sizes.flat
        drained = await bench.drain(contender, database, jobs=jobs, rss_every=jobs // 10)
        early, late = drained.rss[0], drained.rss[-1]
        bench.record(bench.works.flat_base, contender, _mebibytes(early), MEBIBYTES)
        bench.record(bench.works.flat, contender, _mebibytes(late), MEBIBYTES)


def _mebibytes(note: tuple[int, int]) -> float:
    return note[1] / 2**20
