"""Settles claims whose answer never came.

Such a claim may have committed, may commit later, or never. The pod gives it up: one
statement forbids the claim (its batch number is too low from then on) and releases what it
took. Until that statement is answered the slots it asked for count as in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rota.events import BatchesSettled, Tell
from rota.service import Service
from rota.words import BatchNo

from ..cluster.membership import Membership
from ..storage.jobs import Jobs


class Settler(Service):
    """One for all queues of a pod; also looks every TTL if anything was claimed, whatever was given up."""

    doing = "settling unanswered claims"

    def __init__(
        self,
        jobs: Jobs,
        membership: Membership,
        known: Callable[[], Iterable[BatchNo]],
        next_batch: Callable[[], BatchNo],
        under_way: Callable[[], list[Callable[[], None]]],
        every: float,
        tell: Tell,
    ) -> None:
        super().__init__(tell)
        self._jobs = jobs
        self._membership = membership
        self._known = known
        self._next_batch = next_batch
        self._under_way = under_way
        self._every = every
        self._given_up: list[Callable[[], None]] = []
        self._any = asyncio.Event()
        self._settled = next_batch()

    def give_up(self, settled: Callable[[], None]) -> None:
        """Have a claim settled; `settled` is called once it can no longer take anything."""
        self._given_up.append(settled)
        self._any.set()

    async def step(self) -> None:
        try:
            async with asyncio.timeout(self._every):
                await self._any.wait()
        except TimeoutError:
            if self._next_batch() == self._settled:
                return  # nothing was claimed since
        await self.settle()

    async def settle(self) -> None:
        """Settle now."""
        given_up = len(self._given_up)
        refused = self._under_way()
        unused = self._next_batch()
        released = await self._jobs.settle_batches(
            self._membership.pod, self._membership.incarnation, unused, sorted(set(self._known()))
        )
        self._settled = unused
        settled, self._given_up = self._given_up[:given_up], self._given_up[given_up:]
        if not self._given_up:
            self._any.clear()
        # A claim that was under way may have been refused as well, and must not be taken for "no work".
        for again in (*settled, *refused):
            again()
        if released or settled:
            self._tell(BatchesSettled(released))
