"""No hot statement reads a big table from end to end, whatever the planner was last told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from tests.integration.storage.plans import FILL, Plan, Watched, play
from tests.support.postgres import Databases
from tests.support.tools import require

ENOUGH_TO_CACHE = 8
"""Runs after which Postgres has settled on a plan that it will not make anew by itself."""
MOST_ROWS = 10_000
"""More than any statement has to look at, with what rolled back plays left; far less than is there."""

INDEXES = {
    "claim one kind": {"job_claim", "job_id_is_unique"},
    "claim several kinds": {"job_claim", "job_id_is_unique"},
    "claim with a hint": {"job_claim", "job_id_is_unique"},
    "claim what is not there": {"job_claim", "job_id_is_unique"},
    "write progress": {"job_id_is_unique"},
    "finalize done": {"job_id_is_unique"},
    "finalize others": {"job_id_is_unique"},
    "finalize what was lost": {"job_id_is_unique", "ended_job_id_is_unique"},
    "promote": {"job_due", "job_id_is_unique"},
    "first beat": {"job_running", "job_claim"},
    "beat": {"job_running", "job_claim"},
    "settle": {"job_running"},
    "expire and rescue": {"job_running", "job_id_is_unique"},
    "leave": {"job_running"},
    "dedupe": {"job_dedupe"},
    "await": {"job_id_is_unique"},
    "read": {"job_id_is_unique", "ended_job_id_is_unique"},
    "read what ended": {"job_id_is_unique", "ended_job_id_is_unique"},
    "retry": {"job_id_is_unique", "ended_job_id_is_unique"},
    "cancel": {"job_id_is_unique"},
    "cancel what ended": {"job_id_is_unique", "ended_job_id_is_unique"},
}
STATISTICS = ["fresh", "stale", "stale, and plans made long ago"]

Plans = dict[str, list[Plan]]


@pytest.fixture(scope="module")
def plans(databases: Databases, template: str) -> Iterator[dict[str, Plans]]:
    """The plans of every step, with fresh and with stale statistics."""
    with databases.fresh(template=template) as dsn, ThreadPoolExecutor(1) as apart:
        yield apart.submit(asyncio.run, _gather(dsn)).result()


async def _gather(dsn: str) -> dict[str, Plans]:
    plain = await asyncpg.connect(dsn)
    extensions = "SELECT count(*) FROM pg_roles WHERE rolname = current_user AND rolsuper"
    require(await plain.fetchval(extensions) == 1, "this Postgres does not let us load auto_explain")
    sessions = {name: await asyncpg.connect(dsn) for name in STATISTICS}
    watched = {name: Watched(session) for name, session in sessions.items()}
    for watch in watched.values():
        await watch.open()
    long_ago = watched["stale, and plans made long ago"]
    await plain.execute("VACUUM (ANALYZE)")
    for _ in range(ENOUGH_TO_CACHE):
        await play(long_ago, most=2)
    await plain.execute(FILL)
    gathered = {name: await play(watched[name]) for name in STATISTICS[1:]}
    await plain.execute("VACUUM (ANALYZE)")
    for _ in range(ENOUGH_TO_CACHE):
        gathered["fresh"] = await play(watched["fresh"])
    for session in (plain, *sessions.values()):
        await session.close()
    return gathered


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("step", INDEXES)
def test_a_hot_statement_uses_its_index_and_reads_little(
    plans: dict[str, Plans], statistics: str, step: str
) -> None:
    found = plans[statistics][step]
    assert found, "no plan was seen"
    for plan in found:
        assert plan.sequential == [], plan.statement
        assert plan.most_rows <= MOST_ROWS, plan
    assert set().union(*(plan.indexes for plan in found)) >= INDEXES[step]


@pytest.mark.parametrize("statistics", STATISTICS)
def test_jobs_of_a_foreign_kind_at_the_head_are_not_read(plans: dict[str, Plans], statistics: str) -> None:
    """They stand before ours by priority and age, and fill more pages than all claims may touch."""
    for step in ("claim one kind", "claim several kinds", "claim what is not there"):
        blocks = sum(plan.blocks for plan in plans[statistics][step])
        assert blocks < 4_000, step


def test_every_step_that_was_played_is_checked(plans: dict[str, Plans]) -> None:
    assert set(plans["fresh"]) == {*INDEXES, "register", "lead", "plan", "claim for a lost pod"}
