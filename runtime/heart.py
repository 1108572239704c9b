"""A pod's steady talking: the beat, and the fence for when it is not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rota.events import Tell

from ..cluster.membership import Membership
from ..storage.rows import BeatAnswer
from .service import Service


class Heart(Service):
    """Beats, passes on what the answer says, and begins a new boot when the old one is over."""

    doing = "beating"

    def __init__(
        self,
        membership: Membership,
        *,
        every: float,
        answered: Callable[[BeatAnswer], None],
        over: Callable[[], Awaitable[None]],
        tell: Tell,
    ) -> None:
        super().__init__(tell)
        self._membership = membership
        self.every = every
        self._answered = answered
        self._over = over

    async def step(self) -> None:
        answer = await self._membership.beat()
        if answer is None:
            # Whatever this boot still runs is no longer its own: stop it, hand back what can be
            # handed back under the old name, and only then begin anew.
            await self._over()
            await self._membership.register()
            return
        self._answered(answer)
        await asyncio.sleep(self.every)


class Fence(Service):
    """Stops what runs before others may be given it."""

    doing = "watching the beat"

    def __init__(self, membership: Membership, *, stop_all: Callable[[], None], tell: Tell) -> None:
        super().__init__(tell)
        self._membership = membership
        self._stop_all = stop_all

    async def step(self) -> None:
        left = self._membership.fence_in
        if left <= 0:
            self._stop_all()
        await asyncio.sleep(max(left, 0.05))
