"""Jobs in Postgres: let in, claimed, finalized, read. The hot calls are arrays in, rows out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson
from pydantic_core import from_json

from rota.words import BatchNo, Incarnation, JobState, PodId

from .pool import Connection, Database, Record, check_connection
from .rows import Ending, Hint, JobCount, JobRow, Request, Shape, Tenure

Enqueued = list[tuple[int, bool]]
"""For each request its job's id, or that of the job which holds its key, and whether it was skipped."""


class Jobs:
    """The jobs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enqueue_jobs(self, requests: Sequence[Request], *, on: Connection | None = None) -> Enqueued:
        """Let jobs in, all or none; with `on`, in the transaction of that connection."""
        if on is not None:
            check_connection(on)
        if not requests:
            return []
        if len(requests) == 1:
            return [await self._enqueue_job(requests[0], on)]
        places: dict[Shape, int] = {}
        shape_of = [places.setdefault(request.shape, len(places) + 1) for request in requests]
        keyed = any(request.dedupe is not None for request in requests)
        row = await self._database.fetchrow(
            "enqueue_jobs",
            *_columns(list(places)),
            shape_of,
            [request.payload for request in requests],
            [request.dedupe for request in requests] if keyed else None,
            on=on,
        )
        assert row is not None
        ids, skipped = row
        return list(zip(ids, skipped or [False] * len(ids), strict=True))

    async def _enqueue_job(self, request: Request, on: Connection | None) -> tuple[int, bool]:
        shape = request.shape
        arguments = (
            shape.kind,
            request.payload,
            shape.queue,
            shape.priority,
            shape.delay,
            shape.run_at,
            shape.max_attempts,
            shape.timeout,
            shape.note,
            shape.tags or None,
            shape.trace,
        )
        if request.dedupe is None:
            return await self._database.fetchval("insert_job", *arguments, on=on), False
        row = await self._database.fetchrow("enqueue_job", *arguments, request.dedupe, on=on)
        assert row is not None
        return row["id"], row["skipped"]

    async def work_jobs(
        self,
        pod: PodId,
        incarnation: Incarnation,
        batch: BatchNo,
        queue: str,
        most: int,
        kinds: Sequence[str],
        hints: Sequence[Hint],
        done: Sequence[int],
        claims: Sequence[int],
        results: Sequence[str | None] | None,
        others: Sequence[Ending],
        *,
        on: Connection | None = None,
    ) -> list[Record]:
        """Finalize and claim in one round trip; `done` must rise.

        Rows are (id, claim, attempt, max_attempts, priority, waited, kind, payload, extra);
        one without a kind names a run that was not ours to finalize.
        """
        return await self._database.fetch(
            "work_jobs",
            pod,
            incarnation,
            batch,
            queue,
            most,
            kinds,
            [hint.rank for hint in hints],
            [hint.id for hint in hints],
            done,
            claims,
            results,
            _others(others),
            on=on,
        )

    async def finalize_jobs(
        self,
        pod: PodId,
        incarnation: Incarnation,
        done: Sequence[int],
        claims: Sequence[int],
        results: Sequence[str | None] | None,
        others: Sequence[Ending],
    ) -> list[int]:
        """Finalize without a claim; the ids of runs that were not ours to finalize."""
        lost: list[int] = await self._database.fetchval(
            "finalize_jobs", pod, incarnation, done, claims, results, _others(others)
        )
        return lost

    async def claim_alone(
        self, pod: PodId, incarnation: Incarnation, batch: BatchNo, queue: str, job: int
    ) -> list[Record]:
        """Claim one job that is on its last chance, for a pod that runs nothing else."""
        return await self._database.fetch("claim_alone", pod, incarnation, batch, queue, job)

    async def settle_batches(
        self, pod: PodId, incarnation: Incarnation, next_batch: BatchNo, known: Sequence[int]
    ) -> int:
        """Give up all claims below `next_batch` but the known ones; how many jobs were released."""
        released: int = await self._database.fetchval("settle_batches", pod, incarnation, next_batch, known)
        return released

    async def promote_jobs(self, tenure: Tenure, most: int) -> tuple[int, float | None] | None:
        """Make due jobs ready: how many, and the seconds until the next is due; None: the lease is lost."""
        row = await self._database.fetchrow("promote_jobs", *tenure, most)
        return None if row is None else (row["moved"], row["next_in"])

    async def write_progress(
        self, pod: PodId, incarnation: Incarnation, told: Sequence[tuple[int, int, str]]
    ) -> None:
        """Progress of runs, as (job, claim, JSON)."""
        jobs, claims, progress = zip(*told, strict=True)
        await self._database.execute("write_progress", pod, incarnation, jobs, claims, progress)

    async def cancel_job(self, job: int, reason: str | None = None) -> str:
        """`cancelled`, `requested` (it runs), `ended` or `missing`."""
        outcome: str = await self._database.fetchval("cancel_job", job, reason)
        return outcome

    async def retry_job(self, job: int) -> tuple[str, int | None]:
        """`ready`, `running`, `missing`, or `skipped` and the job that holds its key."""
        row = await self._database.fetchrow("retry_job", job)
        assert row is not None
        return row["outcome"], row["other"]

    async def await_job(self, job: int) -> None:
        """Ask that this job's end be told."""
        await self._database.execute("await_job", job)

    async def read_job(self, job: int) -> JobRow | None:
        """One job, wherever it is."""
        row = await self._database.fetchrow("read_job", job)
        return _job(row) if row else None

    async def list_jobs(
        self,
        *,
        states: Sequence[JobState] | None = None,
        queue: str | None = None,
        kind: str | None = None,
        tag: str | None = None,
        before: int | None = None,
        most: int = 50,
    ) -> list[JobRow]:
        """Jobs, newest first."""
        names = [state.value for state in states] if states else None
        return [
            _job(row)
            for row in await self._database.fetch("list_jobs", names, queue, kind, tag, before, most)
        ]

    async def list_orphan_kinds(self) -> list[tuple[str, str]]:
        """Kinds of ready jobs that no live pod can run, as (queue, kind)."""
        return [(row["queue"], row["kind"]) for row in await self._database.fetch("list_orphan_kinds")]

    async def count_jobs(self) -> list[JobCount]:
        """What waits and runs, by queue, kind and state."""
        return [
            JobCount(row["queue"], row["kind"], JobState(row["state"]), row["jobs"], row["oldest"])
            for row in await self._database.fetch("count_jobs")
        ]


def _columns(shapes: list[Shape]) -> list[list[object]]:
    return [
        [shape.queue for shape in shapes],
        [shape.kind for shape in shapes],
        [shape.priority for shape in shapes],
        [shape.delay for shape in shapes],
        [shape.run_at for shape in shapes],
        [shape.max_attempts for shape in shapes],
        [shape.timeout for shape in shapes],
        [shape.trace for shape in shapes],
        [shape.note for shape in shapes],
        [orjson.dumps(shape.tags).decode() if shape.tags else None for shape in shapes],
    ]


def _others(others: Sequence[Ending]) -> str | None:
    if not others:
        return None
    return orjson.dumps(
        [
            {
                "id": ending.id,
                "claim": ending.claim,
                "outcome": ending.outcome,
                "delay": ending.delay,
                "error": ending.error,
                "result": orjson.Fragment(ending.result) if ending.result is not None else None,
            }
            for ending in others
        ]
    ).decode()


def _job(row: Record) -> JobRow:
    pod: UUID | None = row["pod"]
    return JobRow(
        id=row["id"],
        queue=row["queue"],
        kind=row["kind"],
        state=JobState(row["state"]),
        payload=_loaded(row["payload"]),
        priority=row["priority"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        claim=row["claim"],
        rescues=row["rescues"],
        cancelling=row["cancelling"],
        created_at=row["created_at"],
        scheduled_at=row["scheduled_at"],
        claimed_at=row["claimed_at"],
        ended_at=row["ended_at"],
        pod=UUID(bytes=pod.bytes) if pod else None,
        timeout=row["timeout"],
        dedupe=row["dedupe"],
        trace=row["trace"],
        note=row["note"],
        tags=tuple(row["tags"] or ()),
        progress=_loaded(row["progress"]),
        errors=tuple(_loaded(row["errors"]) or ()),
        result=_loaded(row["result"]),
    )


def _loaded(text: str | None) -> Any:
    return None if text is None else from_json(text)
