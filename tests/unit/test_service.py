"""What every loop has in common: it outlives a lost database, no bug, and no cancellation."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from rota.errors import Conflict, DatabaseRefused, DatabaseUnavailable, RefusedData
from rota.events import DatabaseFound, DatabaseLost
from rota.service import Patience, Service
from rota.testing import Recorder

LOST = DatabaseUnavailable("nobody answers")


class Scripted(Service):
    """Does one thing per step; at the end of its script it waits for ever."""

    doing = "reading its lines"

    def __init__(self, *script: Exception | None, tell: Recorder) -> None:
        super().__init__(tell)
        self._script = list(script)
        self.through = asyncio.Event()

    async def step(self) -> None:
        if not self._script:
            self.through.set()
            await asyncio.Event().wait()
        line = self._script.pop(0)
        if line is not None:
            raise line


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept, without sleeping."""
    delays: list[float] = []

    async def sleep(delay: float) -> None:
        delays.append(delay)
        await asyncio.sleep(0)

    monkeypatch.setattr("rota.service.asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("rota.service.random", SimpleNamespace(uniform=lambda least, most: 1.0))
    return delays


async def played(*script: Exception | None) -> Recorder:
    """What a service told over its whole script."""
    told = Recorder()
    service = Scripted(*script, tell=told)
    task = asyncio.create_task(service.run())
    reached = asyncio.create_task(service.through.wait())
    async with asyncio.timeout(10):
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
    for one in (task, reached):
        one.cancel()
    await asyncio.gather(task, reached, return_exceptions=True)
    if not task.cancelled():
        await task
    return told


@pytest.mark.usefixtures("slept")
async def test_a_lost_database_is_told_once_and_once_when_it_is_back() -> None:
    told = await played(None, LOST, LOST, LOST, None, None)
    assert [type(event) for event in told.events] == [DatabaseLost, DatabaseFound]
    assert told.all(DatabaseLost)[0].doing == "reading its lines"
    assert told.all(DatabaseLost)[0].reason == "nobody answers"


@pytest.mark.usefixtures("slept")
async def test_a_database_lost_again_is_told_again() -> None:
    told = await played(LOST, None, LOST, None)
    assert [type(event) for event in told.events] == [DatabaseLost, DatabaseFound] * 2


async def test_waiting_grows_to_a_bound_and_starts_afresh(slept: list[float]) -> None:
    await played(*[LOST] * 8, None, LOST, None)
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.1]


async def test_the_first_loss_says_when_it_is_tried_again(slept: list[float]) -> None:
    told = await played(LOST, LOST, None)
    assert told.all(DatabaseLost)[0].again_in == slept[0]


@pytest.mark.usefixtures("slept")
async def test_a_conflict_is_tried_again_and_is_no_loss() -> None:
    told = await played(Conflict("deadlock"), Conflict("deadlock"), None)
    assert told.events == []


@pytest.mark.usefixtures("slept")
async def test_a_loss_after_a_conflict_is_still_told() -> None:
    told = await played(Conflict("deadlock"), LOST, None)
    assert [type(event) for event in told.events] == [DatabaseLost, DatabaseFound]


@pytest.mark.parametrize(
    "bug", [ValueError("a bug"), KeyError("x"), RefusedData("no"), DatabaseRefused("wrong password")]
)
async def test_a_loop_does_not_outlive_a_bug(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        await played(None, bug)


async def test_waiting_is_spread_so_that_pods_do_not_return_together() -> None:
    told = Recorder()
    waits = [Patience("x", told) for _ in range(100)]
    for patience in waits:
        task = asyncio.create_task(patience.wait(LOST))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    delays = {event.again_in for event in told.all(DatabaseLost)}
    assert len(delays) > 50
    assert all(0.075 <= delay <= 0.125 for delay in delays)


@pytest.mark.parametrize("script", [[], [None, None], [LOST, LOST]])
async def test_a_service_ends_when_cancelled_while_working_or_waiting(script: list[Exception | None]) -> None:
    task = asyncio.create_task(Scripted(*script, tell=Recorder()).run())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
