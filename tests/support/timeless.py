"""Tests of what takes time, that take none: when nothing is left to do, the clock moves on by itself."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from rota.testing import ManualClock

P = ParamSpec("P")


class TimelessLoop(asyncio.SelectorEventLoop):
    """A loop on a ManualClock; where another would sleep, it moves the clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(_Impatient(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic()


class _Impatient(selectors.SelectSelector):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing will ever happen any more"
        self._clock.advance(max(0.0, timeout))
        return super().select(0)


def timeless(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a loop that follows its fixture `clock`."""

    @wraps(test)
    def run(*arguments: P.args, **fixtures: P.kwargs) -> None:
        clock = fixtures["clock"]
        assert isinstance(clock, ManualClock)
        with asyncio.Runner(loop_factory=lambda: TimelessLoop(clock)) as runner:
            runner.run(test(*arguments, **fixtures))

    return run
