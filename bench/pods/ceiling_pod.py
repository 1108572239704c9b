"""The ceiling: Rota's own tables and its one merged statement, and no framework around them.

One asyncio task per job, its payload decoded; as many lanes as Rota has, and as many slots.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from operator import itemgetter
from uuid import uuid4

import asyncpg
import orjson
import uvloop

from bench.pods.control import options, speak_up
from bench.pods.gate import Gate
from bench.pods.pod import serve_pod
from bench.pods.producer import serve_producer
from bench.pods.tally import Tally

NO_RANK = -40_000
FOREVER = 86_400.0
_BY_ID = itemgetter(0)
SQL: dict[str, str] = options()["sql"]
"""Rota's named queries; told by the harness, because importing Rota would be a framework."""


class CeilingPod:
    """Lanes that finalize the last batch and claim the next in one round trip."""

    def __init__(self, dsn: str, tally: Tally, gate: Gate, *, slots: int, lanes: int, kind: str) -> None:
        self._dsn = dsn
        self._tally = tally
        self._gate = gate
        self._most = slots // lanes
        self._lanes = lanes
        self._kind = kind
        self._run = self._stamp if kind == "stamp" else self._noop
        self._pod = uuid4()
        self._batches = count(1)
        self._hint = (NO_RANK, 0)
        self._wakes = [asyncio.Event() for _ in range(lanes)]

    async def open(self) -> None:
        self._ear = await asyncpg.connect(self._dsn)
        await self._ear.add_listener("rota.notice", self._wake)
        self._incarnation = await self._ear.fetchval(
            SQL["register_pod"], self._pod, 0, "", "ceiling", ["bench"], [self._kind],
            self._most * self._lanes, "{}", "", "", FOREVER, 3,
        )  # fmt: skip
        self._connections = [await asyncpg.connect(self._dsn) for _ in range(self._lanes)]

    async def go(self) -> None:
        self._working = [
            asyncio.create_task(self._lane(connection, wake))
            for connection, wake in zip(self._connections, self._wakes, strict=True)
        ]
        for lane in self._working:
            lane.add_done_callback(speak_up)

    async def stop(self) -> None:
        for lane in self._working:
            lane.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        for connection in (*self._connections, self._ear):
            connection.terminate()

    async def _lane(self, connection: asyncpg.Connection, wake: asyncio.Event) -> None:
        statement = await connection.prepare(SQL["work_jobs"])
        ids: list[int] = []
        claims: list[int] = []
        while True:
            wake.clear()
            await self._gate.passed()
            rank, first = self._hint
            rows = await statement.fetch(
                self._pod, self._incarnation, next(self._batches), "bench", self._most,
                [self._kind], [rank], [first], ids, claims, None, None,
            )  # fmt: skip
            if ids:
                self._tally.add(len(ids))
            if not rows:
                ids, claims = [], []
                self._hint = (NO_RANK, 0)
                await wake.wait()
                continue
            for task in [asyncio.create_task(self._run(row["payload"])) for row in rows]:
                await task
            rows.sort(key=_BY_ID)
            ids = [row["id"] for row in rows]
            claims = [row["claim"] for row in rows]
            self._hint = max(self._hint, (-rows[-1]["priority"], ids[-1] + 1))

    async def _noop(self, payload: str) -> None:
        orjson.loads(payload)

    async def _stamp(self, payload: str) -> None:
        self._tally.start(orjson.loads(payload)["n"])

    def _wake(self, *_: object) -> None:
        for wake in self._wakes:
            wake.set()


class CeilingProducer:
    """Rota's one door for jobs, called as it is."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self._dsn)
        self._enqueue = await self._connection.prepare(SQL["enqueue_jobs"])

    def payload(self, number: int) -> dict[str, int]:
        return {"n": number}

    async def enqueue(self, payload: dict[str, int]) -> None:
        await self._insert("noop", [payload])

    async def enqueue_many(self, payloads: list[dict[str, int]]) -> None:
        await self._insert("noop", payloads)

    async def commit(self, number: int) -> int:
        transaction = self._connection.transaction()
        await transaction.start()
        await self._insert("stamp", [{"n": number}])
        await transaction.commit()
        return time.monotonic_ns()

    async def stop(self) -> None:
        await self._connection.close()

    async def _insert(self, kind: str, payloads: list[dict[str, int]]) -> None:
        await self._enqueue.fetchrow(
            ["bench"], [kind], [0], [0.0], [None], [5], [None], [None], [None], [None],
            [1] * len(payloads), [orjson.dumps(payload).decode() for payload in payloads], None,
        )  # fmt: skip


async def main() -> None:
    told = options()
    if told["role"] == "producer":
        await serve_producer(CeilingProducer(told["dsn"]))
        return
    tally = Tally(told["tally"], told["slot"], told["rss_every"])
    chosen = {name: told[name] for name in ("slots", "lanes", "kind")}
    gate = Gate()
    await serve_pod(CeilingPod(told["dsn"], tally, gate, **chosen), tally, gate)


if __name__ == "__main__":
    uvloop.run(main())
