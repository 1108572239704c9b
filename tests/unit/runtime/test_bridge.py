"""Coroutines for callers without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from rota import BadInput
from rota.runtime.bridge import Bridge


@pytest.fixture
def diary() -> list[str]:
    return []


@pytest.fixture
def bridge(diary: list[str]) -> Iterator[Bridge]:
    async def last() -> None:
        diary.append(f"last work on {threading.current_thread().name}")

    bridge = Bridge(last)
    yield bridge
    bridge.close()


async def where() -> str:
    return threading.current_thread().name


async def fails() -> None:
    raise LookupError("in the bridge")


def test_a_coroutine_runs_on_the_bridges_own_thread(bridge: Bridge) -> None:
    assert bridge.call(where) == "rota-bridge"


def test_what_it_raises_is_raised_here(bridge: Bridge) -> None:
    with pytest.raises(LookupError, match="in the bridge"):
        bridge.call(fails)
    assert bridge.call(where) == "rota-bridge"


async def test_in_a_running_loop_it_refuses_and_makes_no_coroutine(bridge: Bridge) -> None:
    with pytest.raises(BadInput, match="await enqueue instead"):
        bridge.call(where)


def test_callers_of_many_threads_share_one_loop(bridge: Bridge) -> None:
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    loops: list[int] = []
    threads = [threading.Thread(target=lambda: loops.append(bridge.call(loop))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loops) == 20
    assert len(set(loops)) == 1


def test_closing_does_the_last_work_and_ends_the_thread(bridge: Bridge, diary: list[str]) -> None:
    bridge.call(where)
    thread = bridge._thread
    assert thread is not None
    bridge.close()
    assert diary == ["last work on rota-bridge"]
    assert not thread.is_alive()


def test_closing_what_never_started_does_nothing(bridge: Bridge, diary: list[str]) -> None:
    bridge.close()
    assert diary == []


def test_a_closed_bridge_starts_again(bridge: Bridge) -> None:
    bridge.call(where)
    bridge.close()
    assert bridge.call(where) == "rota-bridge"
