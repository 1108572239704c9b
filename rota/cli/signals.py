"""SIGTERM and SIGINT ask a program to end in good order; the second one is not asking."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ASKING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(insisted: Callable[[int], None]) -> Iterator[asyncio.Event]:
    """An event that the first signal sets; any later one calls `insisted` with its number."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked(number: int) -> None:
        if stop.is_set():
            insisted(number)
        stop.set()

    for number in ASKING:
        loop.add_signal_handler(number, asked, number)
    try:
        yield stop
    finally:
        for number in ASKING:
            loop.remove_signal_handler(number)
