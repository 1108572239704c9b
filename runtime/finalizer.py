"""The outcomes of runs on their way to the database: gathered, grouped, sent, split when refused.

A plain `done` travels as two numbers in arrays; every other outcome as an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from rota.errors import RefusedData
from rota.events import OutcomeRefused, Tell

from ..cluster.membership import Membership
from ..storage.jobs import Jobs
from ..storage.rows import Ending
from .context import Context
from .outcome import Verdict

_by_id = attrgetter("id")
REFUSED = "the outcome was refused by Postgres"


class Endings(NamedTuple):
    """Runs that ended, as rota.finalize_jobs takes them; `done` rises."""

    done: list[int]
    claims: list[int]
    results: list[str | None] | None
    others: list[Ending]


def grouped(runs: list[Context]) -> Endings:
    """Sort the runs by how they travel."""
    runs.sort(key=_by_id)
    done = [run for run in runs if run.verdict is None]
    others = [run.ending() for run in runs if run.verdict is not None] if len(done) < len(runs) else []
    results = [run.result for run in done] if any(run.result for run in done) else None
    return Endings([run.id for run in done], [run.claim for run in done], results, others)


async def finalize_split(
    queue: str, runs: Sequence[Context], *, jobs: Jobs, membership: Membership, tell: Tell
) -> list[int]:
    """Finalize runs of which at least one is refused for its data: halve until it stands alone.

    The refused one then fails with the reason, so that the others do not wait for it.
    """
    try:
        return await jobs.finalize_jobs(membership.pod, membership.incarnation, *grouped(list(runs)))
    except RefusedData as error:
        if len(runs) > 1:
            half = len(runs) // 2
            lost = []
            for part in (runs[:half], runs[half:]):
                lost += await finalize_split(queue, part, jobs=jobs, membership=membership, tell=tell)
            return lost
        tell(OutcomeRefused(queue, runs[0].id, str(error)))
        runs[0].verdict = Verdict("dead", error={"type": "RefusedData", "message": f"{REFUSED}: {error}"})
        return await jobs.finalize_jobs(membership.pod, membership.incarnation, *grouped(list(runs)))
