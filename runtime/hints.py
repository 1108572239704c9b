"""Where the next claim may start to look.

While an old snapshot is open somewhere, the entries of jobs long claimed stay at the head of
the claim index, and each claim walks them again. After a claim that came back full, the next
may start behind it. Only a hint: it lives for a second, never hides a higher priority, and
a claim that comes back short under a hint is asked again without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.clock import Clock

from ..storage.rows import NO_HINT, Hint

_LIFE = 1.0


class Hints:
    """One hint per kind."""

    def __init__(self, kinds: Sequence[str], clock: Clock) -> None:
        self._kinds = kinds
        self._clock = clock
        self._none = [NO_HINT] * len(kinds)
        self._hints = dict.fromkeys(kinds, NO_HINT)
        self._born = 0.0
        self._used = False

    def current(self) -> list[Hint]:
        """The hints for the claim about to be sent."""
        if self._used and self._clock.monotonic() - self._born > _LIFE:
            self.forget()
        return list(self._hints.values()) if self._used else self._none

    def learn(self, rows: Sequence[Any], most: int) -> bool:
        """Take in the answer to a claim; whether there may be more ready jobs."""
        if len(rows) < most:
            was_used = self._used
            self.forget()
            return was_used
        if not self._used:
            self._used = True
            self._born = self._clock.monotonic()
        reached: dict[str, tuple[int, int]] = {}
        for row in rows:
            place, kind = (-row[4], row[0] + 1), row[6]
            if kind not in reached or place > reached[kind]:
                reached[kind] = place
        for kind, place in reached.items():
            if place > self._hints[kind]:
                self._hints[kind] = Hint(*place)
        return True

    def forget(self) -> None:
        """Look from the beginning."""
        if self._used:
            self._used = False
            self._hints = dict.fromkeys(self._kinds, NO_HINT)
