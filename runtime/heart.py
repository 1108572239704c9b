"""A pod's steady talking: the beat, and the fence for when it is not answered.

Both run on the control thread, so that a handler which hogs the loop can stop neither.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
from collections.abc import Awaitable, Callable

from rota.events import PodExits, Tell
from rota.service import Patience, Service

from ..cluster.membership import DEADLINE, FENCE, Membership
from ..cluster.slots import Heeded
from ..storage.rows import BeatAnswer

_TOGETHER = 0.003
"""Seconds within which several reasons to beat now make one beat."""

EXIT_CODE = 70


class Heart(Service):
    """Beats, passes on what the answer says, and begins a new boot when the old one is over."""

    doing = "beating"

    def __init__(
        self,
        membership: Membership,
        *,
        every: float,
        answered: Callable[[BeatAnswer, Heeded], None],
        over: Callable[[], Awaitable[None]],
        tell: Tell,
    ) -> None:
        super().__init__(tell)
        self._patience = Patience(self.doing, tell, longest=every / 2)
        self._membership = membership
        self.every = every
        self._answered = answered
        self._over = over
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Beat now: there is something to say or to hear."""
        self._nudged.set()

    async def step(self) -> None:
        self._nudged.clear()
        beaten = None if self._membership.fenced else await self._membership.beat()
        if self._membership.left:
            await self._wait()
            return
        if beaten is None:
            await self._begin_anew()
            return
        answer, heeded = beaten
        self._answered(answer, heeded)
        if not heeded.lowered:
            await self._wait()
        # Else beat again at once: others wait for the acknowledgement.

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self.every):
                await self._nudged.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_TOGETHER)

    async def _begin_anew(self) -> None:
        """Whatever the old boot still runs is no longer its own: stop it, hand back what can be handed
        back under the old name, and only then begin anew."""
        self._membership.fence()
        await self._over()
        await self._membership.register()


class Fence(Service):
    """Stops what runs before others may be given it.

    At 0.7 of the TTL handlers are cancelled. A loop that has not even taken that in by 0.9, or with
    `exits` handlers that have not ended by then, end with the process. A process that was stopped finds
    all of this in the past; without `exits` its loop gets the same 0.2 to turn from when it goes on.
    """

    doing = "watching the beat"

    def __init__(
        self,
        membership: Membership,
        *,
        ttl: float,
        exits: bool,
        stop_all: Callable[[Callable[[], None]], None],
        running: Callable[[], int],
        tell: Tell,
        last_words: Tell,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        super().__init__(tell)
        self._membership = membership
        self._ttl = ttl
        self._exits = exits
        self._stop_all = stop_all
        self._running = running
        self._last_words = last_words
        self._end = end
        self._told = False
        self._turned = False
        self._turn_by = 0.0
        # A little before the timer of `beaten` ends the process, which cannot say why.
        self._ahead = ttl / 50 if exits else 0.0

    def beaten(self) -> None:
        """A beat was answered. Should no thread of this process get a turn any more, for a handler
        that does not let go of the interpreter, a timer outside of it ends the process."""
        self._told = self._turned = False
        if self._exits:
            # Counted from the question, as all trust is.
            faulthandler.dump_traceback_later(max(0.001, self._membership.deadline_in), exit=True)

    def disarm(self) -> None:
        """The pod has left; its process may go on without beats."""
        if self._exits:
            faulthandler.cancel_dump_traceback_later()

    async def step(self) -> None:
        if (left := self._membership.fence_in) > 0 and not self._membership.fenced:
            await asyncio.sleep(left)
            return
        if not self._told:
            self._told = True
            self._turn_by = asyncio.get_running_loop().time() + (DEADLINE - FENCE) * self._ttl
            self._membership.fence()
            self._stop_all(self._taken_in)
        if self._turned and not self._running():
            self.disarm()
        elif self._membership.deadline_in <= self._ahead:
            if not self._turned and (self._exits or asyncio.get_running_loop().time() >= self._turn_by):
                self._exit("the event loop did not turn in time, so its handlers could not be stopped")
            elif self._turned and self._exits:
                self._exit("handlers did not end when they were told to")
        await asyncio.sleep(min(0.05, self._ttl / 100))

    def _taken_in(self) -> None:
        self._turned = True

    def _exit(self, reason: str) -> None:
        self._last_words(PodExits(reason))
        faulthandler.dump_traceback()
        self._end(EXIT_CODE)
