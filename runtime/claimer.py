"""Keeps the slots of one queue filled.

A slot is in use from before its claim is sent until the outcome is acknowledged and the
handler has really ended; a claim whose answer never came keeps its slots until settled.
At most `lanes` round trips are under way at once. Each writes the outcomes that have
gathered and claims into the slots that are free, in one statement; while it is away more
outcomes gather, so batches grow with load and a single job is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from rota.errors import BadOption, Conflict, DatabaseUnavailable, RefusedData
from rota.events import JobOverdue, JobsClaimed, JobsEnded, JobsLost, RetryRefused, Tell
from rota.service import Patience
from rota.words import BatchNo

from ..cluster.membership import Membership
from ..storage.jobs import Jobs
from ..storage.pool import Kept
from ..storage.rows import QueueTerms
from .backoff import Retry, policy_from_json
from .context import Context
from .finalizer import finalize_split, grouped
from .handlers import Handler
from .hints import Hints
from .outcome import RELEASED
from .shared import Shared
from .worker import STOPPED_BY_CANCEL, Worker, stop

MOST_PER_CLAIM = 1_000
_OVERDUE_AFTER = 5.0


class Claimer:
    """One queue of one pod."""

    def __init__(
        self, queue: str, handlers: Mapping[str, Handler[Any]], worker: Worker, shared: Shared
    ) -> None:
        self.queue = queue
        self.app = shared.app
        self.membership: Membership = shared.membership
        self._shared = shared
        self._slots = shared.slots
        self._jobs: Jobs = shared.jobs
        self._tell: Tell = shared.tell
        self._retry: Retry | None = None
        self._kinds = sorted(handlers)
        self._runners = {
            kind: worker.runner(handlers[kind], lambda: self._retry, self._finished) for kind in self._kinds
        }
        self._hints = Hints(self._kinds, shared.clock)
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        # By identity: a job may be claimed here again while the outcome of its earlier run is unknown.
        self._runs: set[Context] = set()
        self._endings: list[Context] = []
        self._flying: dict[BatchNo, list[Context]] = {}
        self._aloft = 0
        self._free_slots: list[int] = []
        self._slots_made = 0
        self._news = 0
        self._hungry = False
        self._due = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def target(self) -> int:
        """Slots this pod should have, as last told."""
        return self._slots.target(self.queue)

    @property
    def in_use(self) -> int:
        """Slots in use: runs that are not yet acknowledged, and what claims under way may take."""
        return self._slots.used(self.queue)

    @property
    def claiming(self) -> bool:
        """Whether the answer of a claim is awaited."""
        return bool(self._flying)

    @property
    def running(self) -> int:
        """Handlers that have not ended."""
        return len(self._runs) - len(self._endings)

    @property
    def unended(self) -> int:
        """The same, and true at every moment for whichever thread asks."""
        return sum(run._task is not None for run in tuple(self._runs))

    def batches(self) -> Iterator[BatchNo]:
        """Every batch of which this pod still knows a job, or awaits the answer."""
        yield from self._flying
        for run in self._runs:
            yield BatchNo(run.batch)
        for runs in self._flying.values():
            for run in runs:
                yield BatchNo(run.batch)

    def wake(self) -> None:
        """There may be ready jobs."""
        self._news += 1
        self._hungry = True
        self._due.set()

    def heed(self, terms: QueueTerms) -> None:
        """Take up what the queue's row says."""
        try:
            self._retry = policy_from_json(terms.retry)
        except BadOption as error:
            self._tell(RetryRefused(self.queue, str(error)))

    def cancel(self, job: int) -> None:
        """Stop a job that runs here."""
        for run in self._runs:
            if run.id == job:
                stop(run, STOPPED_BY_CANCEL)

    def stop_all(self, why: str) -> int:
        """Ask every run to end; how many were asked."""
        runs = [run for run in self._runs if run._task is not None]
        for run in runs:
            stop(run, why)
        return len(runs)

    async def idle(self) -> None:
        """Return once nothing runs here and every outcome is acknowledged."""
        await self._quiet.wait()

    async def run(self) -> None:
        """Keep the slots filled until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(self._shared.lanes):
                lanes.create_task(self._lane())

    async def _lane(self) -> None:
        kept = Kept(self._shared.database)
        try:
            await self._ply(kept)
        finally:
            await kept.give_back()

    async def _ply(self, kept: Kept) -> None:
        """Go back and forth between slots and database while there is something to carry."""
        patience = Patience(f"working {self.queue}", self._tell)
        while True:
            if not self._endings and not (self._hungry and self._claimable() > 0):
                self._due.clear()
                await self._due.wait()
                continue
            try:
                await self._round_trip(kept)
            except (DatabaseUnavailable, Conflict) as error:
                await patience.wait(error)
            else:
                patience.over()

    async def _round_trip(self, kept: Kept) -> None:
        """Write the outcomes that have gathered and claim into what is free."""
        cap = self._share()
        runs, self._endings = self._endings[:cap], self._endings[cap:]
        self._runs.difference_update(runs)
        most = self._slots.take(self.queue, len(runs), cap if self._welcome() else 0)
        batch = self._shared.next_batch()
        taken = max(len(runs), most)
        self._aloft += 1
        self._quiet.clear()
        self._flying[batch] = runs
        news = self._news
        try:
            rows, refused = await self._send(kept, batch, runs, most)
        except DatabaseUnavailable:
            self._put_back(batch, runs)
            self._slots.keep(self.queue, len(runs))
            self._give_up(taken, most > 0)
            raise
        except BaseException:
            self._put_back(batch, runs)
            self._land(taken, len(runs), most > 0)
            raise
        del self._flying[batch]
        self._acknowledge(runs, rows)
        if most:
            self._hungry = self._hints.learn(rows, most) or news != self._news or refused
            if rows:
                self._start(batch, rows)
        self._land(taken, len(rows), most > 0)

    async def claim_alone(self, job: int) -> None:
        """Claim one job for a pod that runs nothing else; the caller keeps it so until this is idle."""
        if not (self._welcome() and self._slots.take_alone(self.queue)):
            return
        batch = self._shared.next_batch()
        self._aloft += 1
        self._quiet.clear()
        self._flying[batch] = []
        membership = self.membership
        try:
            rows = await self._jobs.claim_alone(
                membership.pod, membership.incarnation, batch, self.queue, job
            )
        except DatabaseUnavailable:
            del self._flying[batch]
            self._give_up(1, True)
            raise
        except BaseException:
            del self._flying[batch]
            self._land(1, 0, True)
            raise
        del self._flying[batch]
        if rows:
            self._start(batch, rows)
        self._land(1, len(rows), True)

    def _share(self) -> int:
        """How much one round trip takes, so that the lanes have about the same; all of it when shrinking."""
        return max(1, min(max(self.target, len(self._runs)) // self._shared.lanes, MOST_PER_CLAIM))

    async def _send(
        self, kept: Kept, batch: BatchNo, runs: list[Context], most: int
    ) -> tuple[list[Any], bool]:
        """The answer, and whether it is only that of a finalize: refused data takes the claim along."""
        membership = self.membership
        try:
            if not most:
                lost = await self._jobs.finalize_jobs(membership.pod, membership.incarnation, *grouped(runs))
            else:
                async with kept as connection:
                    rows = await self._jobs.work_jobs(
                        membership.pod,
                        membership.incarnation,
                        batch,
                        self.queue,
                        most,
                        self._kinds,
                        self._hints.current(),
                        *grouped(runs),
                        on=connection,
                    )
                    return rows, False
        except RefusedData:
            lost = await finalize_split(
                self.queue, runs, jobs=self._jobs, membership=membership, tell=self._tell
            )
        return [(job,) + (None,) * 8 for job in lost], True

    def _welcome(self) -> bool:
        """Whether jobs may start here; those of a claim that is answered too late are handed back."""
        return not self._shared.draining and self.membership.trusted

    def _claimable(self) -> int:
        """How many jobs a claim sent now may ask for."""
        return self._slots.may_take(self.queue) if self._welcome() else 0

    def _put_back(self, batch: BatchNo, runs: list[Context]) -> None:
        del self._flying[batch]
        for run in runs:
            run.sent_before = True
            self._runs.add(run)
        self._endings[:0] = runs
        self._due.set()

    def _give_up(self, taken: int, claimed: bool) -> None:
        def settled() -> None:
            self._land(taken, 0, claimed)
            self.wake()

        self._shared.settler.give_up(settled)

    def _land(self, taken: int, kept: int, claimed: bool) -> None:
        """A round trip is over: of the slots it took so many stay in use."""
        self._aloft -= 1
        if self._slots.give(self.queue, taken, kept, flew=claimed):
            self._shared.nudge()
        if not self._aloft and not self._runs:
            self._quiet.set()

    def _acknowledge(self, runs: list[Context], rows: list[Any]) -> None:
        lost = {row[0] for row in _pop_lost(rows)} if rows and rows[0][6] is None else None
        for run in runs:
            self._free_slots.append(run.slot)
        if lost:
            # An outcome sent twice finds its job ended by the first time: that is a success.
            missing = [run.id for run in runs if run.id in lost and not run.sent_before]
            if missing:
                self._tell(JobsLost(self.queue, missing))
                runs = [run for run in runs if run.id not in missing]
        if runs:
            self._tell(JobsEnded(self.queue, runs))
            self._shared.ended(self.queue, runs)

    def _start(self, batch: BatchNo, rows: list[Any]) -> None:
        started = self.now()
        welcome = self._welcome()
        create_task = self._loop.create_task
        for id, claim, attempt, max_attempts, priority, waited, kind, payload, extra in rows:
            if self._free_slots:
                slot = self._free_slots.pop()
            else:
                slot = self._slots_made = self._slots_made + 1
            run = Context(
                self, batch, slot, started, id, claim, attempt, max_attempts, priority, waited, kind, extra
            )
            self._runs.add(run)
            if not welcome:
                run.verdict = RELEASED
                self._finished(run)
                continue
            # Held by the run and ended by `_finished`, whatever happens: a TaskGroup would add
            # nothing but a set of the same tasks.
            run._task = create_task(self._runners[kind](run, payload))
        self._tell(JobsClaimed(self.queue, len(rows)))
        self._shared.started(self.queue, rows)

    def _finished(self, run: Context) -> None:
        self._endings.append(run)
        self._due.set()

    def tell_progress(self, run: Context, progress: str) -> None:
        """May be called from a handler's thread."""
        self._loop.call_soon_threadsafe(self._shared.progress.put, run, progress)

    def watch_overdue(self, run: Context) -> None:
        """Tell it if a run that was asked to stop goes on."""

        def look() -> None:
            if run._task is not None:
                self._tell(JobOverdue(self.queue, run.kind, run.id, str(run._stop)))

        self._loop.call_later(_OVERDUE_AFTER, look)


def _pop_lost(rows: list[Any]) -> list[Any]:
    """Take the rows that name lost runs off the head of an answer."""
    count = next((place for place, row in enumerate(rows) if row[6] is not None), len(rows))
    lost, rows[:] = rows[:count], rows[count:]
    return lost
