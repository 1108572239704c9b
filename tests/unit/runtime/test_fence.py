"""The fence ends a process that cannot stop its handlers in time, and gives a stopped one its chance."""

from __future__ import annotations

import asyncio
import faulthandler
from typing import Any, cast

import pytest

from rota.cluster.membership import DEADLINE, FENCE, Membership
from rota.runtime.heart import Fence

TTL = 1.0


class Silent:
    """A membership that was last answered so long ago."""

    def __init__(self, since_heard: float) -> None:
        self.fence_in = FENCE * TTL - since_heard
        self.deadline_in = DEADLINE * TTL - since_heard
        self.fenced = False

    def fence(self) -> None:
        self.fenced = True


class Ended(Exception):
    """In place of the end of this process."""


def make_fence(since_heard: float, *, exits: bool, turns: bool = False, running: int = 1) -> Fence:
    def end(code: int) -> None:
        raise Ended(code)

    return Fence(
        cast("Membership", Silent(since_heard)),
        ttl=TTL,
        exits=exits,
        stop_all=lambda taken_in: taken_in() if turns else None,
        running=lambda: running,
        tell=lambda event: None,
        last_words=lambda event: None,
        end=end,
    )


async def test_a_loop_that_never_turns_ends_with_the_process() -> None:
    fence = make_fence(5.0, exits=False)
    with pytest.raises(Ended):
        async with asyncio.timeout(10):
            await fence.run()


async def test_a_process_found_beyond_its_deadline_lets_its_loop_turn_first() -> None:
    fence = make_fence(5.0, exits=False)
    await fence.step()
    fence._taken_in()
    await asyncio.sleep((DEADLINE - FENCE) * TTL)
    await fence.step()


async def test_a_process_found_beyond_its_deadline_ends_at_once_if_it_is_to_exit() -> None:
    with pytest.raises(Ended):
        await make_fence(5.0, exits=True).step()


async def test_handlers_that_go_on_end_with_the_process_only_if_it_is_to_exit() -> None:
    with pytest.raises(Ended):
        await make_fence(5.0, exits=True, turns=True).step()
    await make_fence(5.0, exits=False, turns=True).step()
    await make_fence(5.0, exits=True, turns=True, running=0).step()


async def test_the_timer_behind_the_interpreter_counts_from_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    armed: list[Any] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda after, exit: armed.append((after, exit)))
    make_fence(0.15, exits=True).beaten()
    assert armed == [(pytest.approx(DEADLINE * TTL - 0.15), True)]
    make_fence(0.15, exits=False).beaten()
    assert len(armed) == 1
