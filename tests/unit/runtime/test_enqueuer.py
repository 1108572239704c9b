"""How concurrent callers share one insert, and what one of them may do to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from rota.errors import Conflict, DatabaseUnavailable, RefusedData
from rota.events import JobsEnqueued
from rota.runtime.enqueuer import MOST_AT_ONCE, Enqueuer
from rota.storage.jobs import Enqueued, Jobs
from rota.storage.pool import Kept
from rota.storage.rows import Request, Shape
from rota.testing import Recorder

SHAPE = Shape(queue="q", kind="k")
BAD = Request(SHAPE, '"bad"')


def request(number: int) -> Request:
    return Request(SHAPE, str(number))


class Statements:
    """In place of the database: each statement waits for `let_go`, and takes all but BAD.

    A job's id is its payload, so that an answer shows whose it is.
    """

    def __init__(self, *failures: Exception, held: bool = False) -> None:
        self.sent: list[list[Request]] = []
        self.let_go = asyncio.Event()
        self._failures = list(failures)
        if not held:
            self.let_go.set()

    async def __aenter__(self) -> None:
        """No connection is needed here."""

    async def __aexit__(self, *error: object) -> None: ...

    async def enqueue_jobs(self, requests: Sequence[Request], *, on: object = None) -> Enqueued:
        self.sent.append(list(requests))
        await self.let_go.wait()
        if self._failures:
            raise self._failures.pop(0)
        if BAD in requests:
            raise RefusedData("bad data")
        return [(int(one.payload), False) for one in requests]


def made(statements: Statements, told: Recorder | None = None) -> Enqueuer:
    return Enqueuer(cast("Jobs", statements), cast("Kept", statements), told or Recorder())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_caller_alone_pays_nothing_for_the_others() -> None:
    statements = Statements()
    assert await made(statements).put([request(7)]) == [(7, False)]
    assert len(statements.sent) == 1


async def test_what_comes_while_an_insert_is_away_goes_together_with_the_next() -> None:
    statements = Statements(held=True)
    enqueuer = made(statements)
    async with asyncio.TaskGroup() as callers:
        tasks = [callers.create_task(enqueuer.put([request(number)])) for number in range(50)]
        await turns()
        statements.let_go.set()
    assert [task.result() for task in tasks] == [[(number, False)] for number in range(50)]
    assert [len(sent) for sent in statements.sent] == [1, 49]


async def test_each_caller_gets_its_own_part_of_the_answer() -> None:
    statements = Statements(held=True)
    enqueuer = made(statements)
    async with asyncio.TaskGroup() as callers:
        first = callers.create_task(enqueuer.put([request(0)]))
        tasks = [
            callers.create_task(enqueuer.put([request(10 * number + place) for place in range(number)]))
            for number in range(1, 5)
        ]
        await turns()
        statements.let_go.set()
    assert first.result() == [(0, False)]
    assert [[id for id, _ in task.result()] for task in tasks] == [
        [10],
        [20, 21],
        [30, 31, 32],
        [40, 41, 42, 43],
    ]


async def test_bad_data_fails_its_own_caller_alone() -> None:
    statements = Statements(held=True)
    enqueuer = made(statements)
    callers = [asyncio.create_task(enqueuer.put([one])) for one in (request(0), request(1), BAD, request(3))]
    await turns()
    statements.let_go.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert answers[:2] == [[(0, False)], [(1, False)]]
    assert isinstance(answers[2], RefusedData)
    assert answers[3] == [(3, False)]


async def test_a_lost_database_fails_all_who_waited_and_none_for_ever() -> None:
    lost = DatabaseUnavailable("gone")
    statements = Statements(lost, lost, held=True)
    enqueuer = made(statements)
    callers = [asyncio.create_task(enqueuer.put([request(number)])) for number in range(3)]
    await turns()
    statements.let_go.set()
    assert await asyncio.gather(*callers, return_exceptions=True) == [lost] * 3
    assert await enqueuer.put([request(9)]) == [(9, False)]


async def test_no_statement_takes_more_than_its_share_of_waiting_jobs() -> None:
    statements = Statements(held=True)
    enqueuer = made(statements)
    async with asyncio.TaskGroup() as callers:
        for count in (1, MOST_AT_ONCE - 1, 1, 1, MOST_AT_ONCE):
            callers.create_task(enqueuer.put([request(0)] * count))
        await turns()
        statements.let_go.set()
    assert [len(sent) for sent in statements.sent] == [1, MOST_AT_ONCE, 1, MOST_AT_ONCE]


async def test_a_caller_that_gives_up_waiting_does_not_disturb_the_others() -> None:
    statements = Statements(held=True)
    enqueuer = made(statements)
    callers = [asyncio.create_task(enqueuer.put([request(number)])) for number in range(3)]
    await turns()
    callers[1].cancel()
    await turns()
    statements.let_go.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert answers[0] == [(0, False)]
    assert isinstance(answers[1], asyncio.CancelledError)
    assert answers[2] == [(2, False)]


async def test_the_caller_whose_insert_is_under_way_may_be_cancelled() -> None:
    statements = Statements(held=True)
    enqueuer = made(statements)
    first = asyncio.create_task(enqueuer.put([request(0)]))
    second = asyncio.create_task(enqueuer.put([request(1)]))
    await turns()
    first.cancel()
    statements.let_go.set()
    assert await second == [(1, False)]
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    delays: list[float] = []

    async def sleep(delay: float) -> None:
        delays.append(delay)

    stand_in = SimpleNamespace(sleep=sleep, get_running_loop=asyncio.get_running_loop)
    monkeypatch.setattr("rota.runtime.enqueuer.asyncio", stand_in)
    return delays


async def test_a_conflict_is_tried_again_after_growing_pauses(slept: list[float]) -> None:
    statements = Statements(Conflict("a"), Conflict("b"), Conflict("c"))
    assert await made(statements).put([request(1)]) == [(1, False)]
    assert slept == [0.1, 0.3, 1.0]


@pytest.mark.usefixtures("slept")
async def test_a_conflict_that_does_not_end_is_raised() -> None:
    with pytest.raises(Conflict, match="d"):
        await made(Statements(*map(Conflict, "abcd"))).put([request(1)])


async def test_each_statement_is_told_once_and_none_that_failed() -> None:
    told, statements = Recorder(), Statements(DatabaseUnavailable("gone"))
    enqueuer = made(statements, told)
    with pytest.raises(DatabaseUnavailable):
        await enqueuer.put([request(1)])
    assert told.events == []
    await enqueuer.put([request(1), request(2)])
    assert told.events == [JobsEnqueued(2, 0)]
