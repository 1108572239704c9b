"""The only file that asks a pod's own clock.

Only the database tells the time of day. A pod's clock is monotonic and is used for
one thing: to stop trusting what it was told.
"""

from __future__ import annotations

import sys
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only ever grow."""

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clock, counting through suspends where the platform can."""

    if sys.platform == "linux":

        def monotonic(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)

    else:

        def monotonic(self) -> float:
            return time.monotonic()
