"""What every loop of a pod has in common: it runs until cancelled, outlives a lost database,
and does not outlive a bug."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

from rota.errors import Conflict, DatabaseUnavailable
from rota.events import DatabaseFound, DatabaseLost, Tell

_FIRST, _LONGEST = 0.1, 5.0


class Service(ABC):
    """A loop. `step` does one round and says, by returning, that it may go on."""

    doing: str

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._patience = Patience(self.doing, tell)

    async def run(self) -> None:
        """Step until cancelled; wait longer and longer while the database is away."""
        while True:
            try:
                await self.step()
            except (DatabaseUnavailable, Conflict) as error:
                await self._patience.wait(error)
            else:
                self._patience.over()

    @abstractmethod
    async def step(self) -> None: ...


class Patience:
    """Capped exponential waiting with jitter, told once when it begins and once when it ends."""

    def __init__(self, doing: str, tell: Tell, *, longest: float = _LONGEST) -> None:
        self._doing = doing
        self._tell = tell
        self._longest = longest
        self._delay = 0.0
        self._lost = False

    async def wait(self, error: Exception) -> None:
        self._delay = min(max(self._delay * 2, _FIRST), self._longest)
        delay = self._delay * random.uniform(0.75, 1.25)
        if not self._lost and isinstance(error, DatabaseUnavailable):
            self._lost = True
            self._tell(DatabaseLost(self._doing, str(error), delay))
        await asyncio.sleep(delay)

    def over(self) -> None:
        self._delay = 0.0
        if self._lost:
            self._lost = False
            self._tell(DatabaseFound(self._doing))
