"""The beat and the fence: when a pod speaks, and what it stops when nobody answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from rota.cluster.membership import Membership
from rota.cluster.slots import Heeded, Slots
from rota.errors import DatabaseUnavailable, PodRetired
from rota.events import DatabaseFound, DatabaseLost, PodExits, PodFenced, PodRegistered
from rota.runtime.heart import EXIT_CODE, Fence, Heart
from rota.settings import PodSettings
from rota.storage.pods import Pods
from rota.storage.rows import BeatAnswer, Boot, Report
from rota.testing import ManualClock, Recorder
from rota.words import Incarnation, PodId
from tests.support.timeless import timeless

TTL, EVERY = 10.0, 2.0
TERMS = PodSettings(ttl=TTL, beat=EVERY, uid=str(uuid.uuid4()))


class Beat(NamedTuple):
    """One beat as the database saw it."""

    at: float
    incarnation: int
    report: Report


class Database:
    """In place of the pods' table: answers beats, after `delay`, with the targets it is given."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.delay = 0.0
        self.targets = {"q": 5}
        self.expired = False
        self.failure: Exception | None = None
        self.standing = 0
        self.beats: list[Beat] = []

    @property
    def times(self) -> list[float]:
        return [beat.at for beat in self.beats]

    async def read_incarnation(self, pod: PodId) -> Incarnation:
        return Incarnation(self.standing)

    async def register_pod(self, pod: PodId, **given: Any) -> Boot:
        self.standing += 1
        self.expired = False
        return Boot(Incarnation(self.standing), None, self.standing)

    async def leave_pod(self, pod: PodId, incarnation: Incarnation) -> bool:
        self.expired = True
        return True

    async def beat(self, pod: PodId, incarnation: Incarnation, report: Report) -> BeatAnswer | None:
        self.beats.append(Beat(self._clock.monotonic(), incarnation, report))
        number, targets = len(self.beats), dict(self.targets)
        await asyncio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure
        if self.expired:
            return None
        return BeatAnswer(draining=False, answer=number, timeline=1, targets=targets, lease_in=1.0)


class Scene:
    """A pod's heart, and what the other side of the pod is told."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.database = Database(clock)
        self.told = Recorder()
        self.slots = Slots(["q"], capacity=100)
        self.membership = Membership(
            cast("Pods", self.database),
            TERMS,
            self.slots,
            queues=["q"],
            kinds=["k"],
            max_rescues=3,
            clock=clock,
            tell=self.told,
        )
        self.answers: list[tuple[BeatAnswer, Heeded]] = []
        self.handlers_end = asyncio.Event()
        self.handlers_end.set()
        self.heart = Heart(
            self.membership,
            every=EVERY,
            answered=lambda answer, heeded: self.answers.append((answer, heeded)),
            over=self._over,
            tell=self.told,
        )

    async def _over(self) -> None:
        await self.handlers_end.wait()

    @asynccontextmanager
    async def beating(self, seconds: float = 0.0) -> AsyncIterator[None]:
        """A registered pod whose heart beats; when the block is over, for so many seconds more."""
        await self.membership.register()
        task = asyncio.create_task(self.heart.run())
        try:
            await turns()
            yield
            await asyncio.sleep(seconds)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def scene(clock: ManualClock) -> Scene:
    return Scene(clock)


@timeless
async def test_a_heart_beats_at_once_and_then_steadily(clock: ManualClock, scene: Scene) -> None:
    async with scene.beating(seconds=9.0):
        pass
    assert scene.database.times == [pytest.approx(100.0 + EVERY * turn) for turn in range(5)]


@timeless
async def test_a_nudge_is_a_beat_now(clock: ManualClock, scene: Scene) -> None:
    async with scene.beating():
        await asyncio.sleep(0.5)
        scene.heart.nudge()
        await asyncio.sleep(1.9)
    assert scene.database.times == [100.0, pytest.approx(100.5, abs=0.01)]


@timeless
async def test_nudges_that_come_together_are_one_beat(clock: ManualClock, scene: Scene) -> None:
    async with scene.beating():
        await asyncio.sleep(0.5)
        for _ in range(10):
            scene.heart.nudge()
        await asyncio.sleep(0.001)
        scene.heart.nudge()
        await asyncio.sleep(1.0)
    assert len(scene.database.beats) == 2


@timeless
async def test_nudges_while_a_beat_is_away_are_one_more_beat(clock: ManualClock, scene: Scene) -> None:
    """What they are about may have happened after that beat was written."""
    scene.database.delay = 0.2
    async with scene.beating():
        for _ in range(10):
            scene.heart.nudge()
        await asyncio.sleep(1.0)
    assert scene.database.times == [100.0, pytest.approx(100.2, abs=0.01)]


@timeless
async def test_what_an_answer_says_is_passed_on(clock: ManualClock, scene: Scene) -> None:
    async with scene.beating():
        pass
    ((answer, heeded),) = scene.answers
    assert answer.targets == {"q": 5}
    assert heeded == Heeded(raised=("q",))
    assert scene.slots.target("q") == 5


@timeless
async def test_a_lowered_target_is_acknowledged_by_a_second_beat_at_once(
    clock: ManualClock, scene: Scene
) -> None:
    async with scene.beating():
        assert scene.slots.take("q", 0, 4) == 4
        scene.slots.give("q", 4, 4, flew=True)
        scene.database.targets = {"q": 1}
        scene.heart.nudge()
        await asyncio.sleep(1.0)
    first, second, third = scene.database.beats
    assert (list(first.report.acts), list(first.report.uses)) == ([], [])
    assert (list(second.report.acts), list(second.report.uses)) == ([5], [4])
    assert third.at == second.at
    assert third.report.heard == 2, "it had the answer that lowered the target"
    assert (list(third.report.acts), list(third.report.uses)) == ([1], [4])


@timeless
async def test_an_expired_boot_ends_its_handlers_before_a_new_one_begins(
    clock: ManualClock, scene: Scene
) -> None:
    scene.handlers_end.clear()
    async with scene.beating():
        scene.database.expired = True
        scene.heart.nudge()
        await asyncio.sleep(60.0)
        assert scene.membership.fenced
        assert len(scene.database.beats) == 2, "a boot that is over beats no more"
        assert len(scene.told.all(PodRegistered)) == 1
        scene.handlers_end.set()
        await turns()
    assert [beat.incarnation for beat in scene.database.beats] == [1, 1, 2]
    assert [event.incarnation for event in scene.told.all(PodRegistered)] == [1, 2]


@timeless
async def test_a_fenced_boot_never_beats_again(clock: ManualClock, scene: Scene) -> None:
    scene.handlers_end.clear()
    async with scene.beating():
        scene.membership.fence()
        for _ in range(5):
            scene.heart.nudge()
            await asyncio.sleep(1.0)
        assert len(scene.database.beats) == 1
        scene.handlers_end.set()
        await turns()
    assert [beat.incarnation for beat in scene.database.beats] == [1, 2]


@timeless
async def test_a_beat_that_is_answered_after_the_fence_fell_is_not_heeded(
    clock: ManualClock, scene: Scene
) -> None:
    scene.handlers_end.clear()
    scene.database.delay = 8.0
    async with scene.beating():
        await asyncio.sleep(7.0)
        scene.membership.fence()
        await asyncio.sleep(5.0)
        assert scene.answers == []
        assert scene.slots.target("q") == 0


@timeless
async def test_a_pod_that_left_takes_its_missing_row_for_no_expiry(clock: ManualClock, scene: Scene) -> None:
    async with scene.beating(seconds=60.0):
        assert await scene.membership.leave()
        scene.heart.nudge()
    assert scene.told.all(PodFenced) == []
    assert len(scene.told.all(PodRegistered)) == 1


@timeless
async def test_a_beat_that_fails_is_tried_again_long_before_the_fence(
    clock: ManualClock, scene: Scene
) -> None:
    async with scene.beating():
        scene.database.failure = DatabaseUnavailable("nobody answers")
        scene.heart.nudge()
        await asyncio.sleep(7.0)
        assert len(scene.database.beats) >= 6
        scene.database.failure = None
        await asyncio.sleep(2 * EVERY)
    assert len(scene.told.all(DatabaseLost)) == len(scene.told.all(DatabaseFound)) == 1


@timeless
async def test_a_retired_boot_ends(clock: ManualClock, scene: Scene) -> None:
    await scene.membership.register()
    scene.database.failure = PodRetired("a later boot")
    with pytest.raises(PodRetired):
        await scene.heart.run()


class Guarded:
    """A fence over a pod whose beats are answered only when the test says so."""

    def __init__(self, scene: Scene, *, exits: bool) -> None:
        self.scene = scene
        self.running = 3
        self.turns = True
        self.stopped: list[float] = []
        self.ended: list[tuple[float, int]] = []
        self.said = Recorder()
        self.fence = Fence(
            scene.membership,
            ttl=TTL,
            exits=exits,
            stop_all=self._stop_all,
            running=lambda: self.running,
            tell=scene.told,
            last_words=self.said,
            end=lambda code: self.ended.append((scene.clock.monotonic(), code)),
        )

    @asynccontextmanager
    async def watching(self, seconds: float = 0.0) -> AsyncIterator[None]:
        await self.scene.membership.register()
        await self.beat()
        task = asyncio.create_task(self.fence.run())
        try:
            yield
            await asyncio.sleep(seconds)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def beat(self) -> None:
        assert await self.scene.membership.beat() is not None
        self.fence.beaten()

    def _stop_all(self, taken_in: Callable[[], None]) -> None:
        self.stopped.append(self.scene.clock.monotonic())
        if self.turns:
            taken_in()


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """In place of the interpreter's own timer: when it would end the process; None: disarmed."""
    armed: list[float | None] = []
    monkeypatch.setattr(
        "rota.runtime.heart.faulthandler",
        SimpleNamespace(
            dump_traceback_later=lambda seconds, exit: armed.append(seconds),
            cancel_dump_traceback_later=lambda: armed.append(None),
            dump_traceback=lambda: None,
        ),
    )
    return armed


either = pytest.mark.parametrize("exits", [False, True])
Timer = list[float | None]


@either
@timeless
async def test_a_pod_whose_beats_are_answered_is_left_alone(
    clock: ManualClock, scene: Scene, timer: Timer, exits: bool
) -> None:
    guarded = Guarded(scene, exits=exits)
    async with guarded.watching():
        for _ in range(30):
            await asyncio.sleep(6.5)
            await guarded.beat()
    assert (guarded.stopped, guarded.ended) == ([], [])


@either
@timeless
async def test_handlers_are_cancelled_at_seven_tenths_of_the_ttl_and_once(
    clock: ManualClock, scene: Scene, timer: Timer, exits: bool
) -> None:
    guarded = Guarded(scene, exits=exits)
    async with guarded.watching(seconds=8.5):
        pass
    assert guarded.stopped == [pytest.approx(107.0, abs=0.001)]
    assert [event.silent for event in scene.told.all(PodFenced)] == [pytest.approx(7.0, abs=0.001)]
    assert scene.membership.fenced
    assert guarded.ended == []


@either
@timeless
async def test_a_loop_that_does_not_turn_ends_with_the_process_at_nine_tenths(
    clock: ManualClock, scene: Scene, timer: Timer, exits: bool
) -> None:
    guarded = Guarded(scene, exits=exits)
    guarded.turns = False
    async with guarded.watching(seconds=9.1):
        pass
    at, code = guarded.ended[0]
    assert at == pytest.approx(109.0, abs=0.25)
    assert code == EXIT_CODE
    assert "did not turn" in guarded.said.all(PodExits)[0].reason


@timeless
async def test_handlers_that_do_not_end_end_with_the_process_where_that_is_wished(
    clock: ManualClock, scene: Scene, timer: Timer
) -> None:
    guarded = Guarded(scene, exits=True)
    async with guarded.watching(seconds=9.1):
        pass
    at, code = guarded.ended[0]
    assert 108.7 <= at <= 109.0, "and not after it"
    assert code == EXIT_CODE
    assert "did not end" in guarded.said.all(PodExits)[0].reason


@timeless
async def test_handlers_that_do_not_end_are_waited_for_where_that_is_wished(
    clock: ManualClock, scene: Scene, timer: Timer
) -> None:
    guarded = Guarded(scene, exits=False)
    async with guarded.watching(seconds=600.0):
        pass
    assert guarded.ended == []
    assert timer == [], "no timer was ever set"


@either
@timeless
async def test_a_pod_whose_handlers_ended_lives_on(
    clock: ManualClock, scene: Scene, timer: Timer, exits: bool
) -> None:
    """Else every outage of the database would be a restart of the whole fleet."""
    guarded = Guarded(scene, exits=exits)
    async with guarded.watching():
        await asyncio.sleep(8.0)
        guarded.running = 0
        await asyncio.sleep(600.0)
    assert guarded.ended == []
    assert not exits or timer[-1] is None


@timeless
async def test_each_beat_sets_the_timer_that_needs_no_turn_counted_from_its_question(
    clock: ManualClock, scene: Scene, timer: Timer
) -> None:
    guarded = Guarded(scene, exits=True)
    async with guarded.watching():
        await asyncio.sleep(1.0)
        scene.database.delay = 2.0
        await guarded.beat()
        assert timer == [pytest.approx(9.0), pytest.approx(7.0)]
        guarded.fence.disarm()
    assert timer[-1] is None


@timeless
async def test_the_fence_falls_for_a_later_boot_too(clock: ManualClock, scene: Scene, timer: Timer) -> None:
    guarded = Guarded(scene, exits=False)
    async with guarded.watching():
        await asyncio.sleep(8.0)
        await scene.membership.register()
        await guarded.beat()
        await asyncio.sleep(8.0)
    assert guarded.stopped == [pytest.approx(107.0, abs=0.1), pytest.approx(115.0, abs=0.1)]


@timeless
async def test_a_process_that_was_stopped_gets_its_loop_a_turn_unless_it_is_to_exit(
    clock: ManualClock, scene: Scene, timer: Timer
) -> None:
    guarded = Guarded(scene, exits=False)
    guarded.turns = False
    async with guarded.watching():
        clock.advance(60.0)
        await asyncio.sleep(1.9)
        assert guarded.ended == []
        await asyncio.sleep(0.3)
        assert guarded.ended
