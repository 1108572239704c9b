"""An operator's control of queues: look, create, resize, pause, resume, set, and wait for it.

    change = await app.queues.resize("emails", 40)
    await app.queues.wait(change)

A raised cap is in force at once. A lowered one is in force when every pod has acknowledged that it
may no longer fill what was taken from it; what runs by then finishes. `wait` returns then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from rota.errors import BadOption, CapOvertaken, HandOverTimeout, QueueExists, QueueNotFound
from rota.settings import check_name

from ..cluster.handover import Rehearsal, Standing, rehearse, standing
from ..cluster.picture import take_picture
from ..storage.assignments import Assignments
from ..storage.pool import Database
from ..storage.queues import Queues
from ..storage.rows import CapChangeRow, QueueRow
from .backoff import Retry

MOST_WORKERS = 2**31 - 1


class QueueSettings(TypedDict, total=False):
    """What can be set of a queue; a retry of None is the default policy again."""

    max_workers: int
    paused: bool
    retry: Retry | None


@dataclass(frozen=True, slots=True)
class Change:
    """What was asked of a queue: its cap from then on (0 while paused), and whether that is in force.

    `id` names what to wait for; None: the cap stayed what it was and was in force.
    """

    queue: str
    cap: int
    id: int | None
    in_force: bool


@dataclass(frozen=True, slots=True)
class HandOver:
    """How far a change has come: where the slots stand, and for how long it has been under way."""

    change: Change
    in_force: bool
    overtaken: bool
    standing: Standing
    took: float = 0.0
    """Seconds until it was in force, or so far."""
    age: float = 0.0

    @property
    def settled(self) -> bool:
        """Whether what ran above the cap has given its slots back, and all that can be granted is."""
        return self.in_force and (self.standing.settled or self.standing.deserted)

    def over(self, settled: bool) -> bool:
        """Whether waiting is over, reached or not; where nobody is there nobody is waited for."""
        if not self.in_force:
            return self.overtaken or self.standing.deserted
        return not settled or self.settled or self.overtaken


def check_max_workers(queue: str, value: object) -> int:
    """A cap that a queue can have, or BadOption."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_WORKERS:
        raise BadOption(
            f"max_workers of {queue!r} is {value!r}; it must be a whole number from 0 to {MOST_WORKERS}."
        )
    return value


def pauses() -> Iterator[float]:
    """Seconds between looks while waiting: most changes are there within milliseconds."""
    pause = 0.01
    while True:
        yield pause
        pause = min(pause * 1.3, 0.5)


class QueueControl:
    """The queues of one database, for operators and for code that acts as one."""

    def __init__(self, database: Database) -> None:
        self._queues = Queues(database)
        self._assignments = Assignments(database)

    async def list_queues(self) -> list[QueueRow]:
        """Every queue, by name."""
        return await self._queues.list_queues()

    async def show(self, queue: str) -> QueueRow:
        """One queue as it stands."""
        rows = await self.list_queues()
        found = next((row for row in rows if row.name == queue), None)
        if found is None:
            raise QueueNotFound(queue, [row.name for row in rows])
        return found

    async def create(self, queue: str, *, max_workers: int = 10, retry: Retry | None = None) -> None:
        """Make a queue before any pod serves it; one that exists is left as it is."""
        check_name("queue", queue)
        policy = retry.to_json() if retry else None
        if not await self._queues.declare_queues({queue: (check_max_workers(queue, max_workers), policy)}):
            raise QueueExists(queue)

    async def list_changes(self, queue: str, most: int = 10) -> list[CapChangeRow]:
        """The latest changes of a queue's cap first."""
        return await self._queues.list_cap_changes(queue, most)

    async def resize(self, queue: str, max_workers: int) -> Change:
        """Let so many jobs of a queue run at once, in the whole cluster."""
        return await self.set(queue, max_workers=max_workers)

    async def pause(self, queue: str) -> Change:
        """Start no more jobs of a queue; what runs finishes."""
        return await self.set(queue, paused=True)

    async def resume(self, queue: str) -> Change:
        """End a pause."""
        return await self.set(queue, paused=False)

    async def set(self, queue: str, **settings: Unpack[QueueSettings]) -> Change:
        """Change some settings of a queue, all at once or none."""
        check_name("queue", queue)
        row = await self._queues.change_queue(queue, **_checked(queue, dict(settings)))
        if row is None:
            raise QueueNotFound(queue, await self._names())
        change = row.change
        if change is None and not row.in_force:
            # The same was asked for before and is still under way: that is what to wait for.
            latest = await self._queues.list_cap_changes(queue)
            change = next((known.id for known in latest if known.cap == row.cap), None)
        return Change(queue, row.cap, change, row.in_force)

    async def look(self, change: Change) -> HandOver:
        """How far a change has come."""
        status = None if change.id is None else await self._queues.read_cap_change(change.id)
        if status is not None and status.holds and not (status.in_force or status.overtaken):
            # A leader would note it with its next plan, but there may be none.
            await self._queues.confirm_cap(change.queue)
            status = await self._queues.read_cap_change(change.id or 0)
        where = standing(await take_picture(self._assignments), change.queue)
        if where is None:
            raise QueueNotFound(change.queue, await self._names())
        if status is None:
            return HandOver(change, change.in_force, where.queue.cap != change.cap, where)
        return HandOver(change, status.in_force, status.overtaken, where, status.took, status.age)

    async def wait(
        self,
        change: Change,
        *,
        settled: bool = False,
        timeout: float | None = None,
        see: Callable[[HandOver], None] = lambda now: None,
    ) -> HandOver:
        """Wait until a change is in force; with `settled`, until no slot is left to be moved either.

        Returns at once where no live pod serves the queue. Raises CapOvertaken when a later change
        takes its place, and HandOverTimeout; the change stays. `see` is shown every look.
        """
        pause, now = pauses(), await self.look(change)
        see(now)
        try:
            async with asyncio.timeout(timeout):
                while not now.over(settled):
                    await asyncio.sleep(next(pause))
                    now = await self.look(change)
                    see(now)
        except TimeoutError:
            raise HandOverTimeout(
                change.queue, change.cap, _aim(now), timeout or 0.0, now.standing.left()
            ) from None
        if now.overtaken and (settled or not now.in_force):
            raise CapOvertaken(change.queue, change.cap, _aim(now))
        return now

    async def rehearse(self, queue: str, max_workers: int) -> Rehearsal:
        """What a resize would come to; nothing is written."""
        check_name("queue", queue)
        check_max_workers(queue, max_workers)
        picture = await take_picture(self._assignments)
        found = rehearse(picture, queue, max_workers=max_workers, cause=f"{queue} was resized")
        if found is None:
            raise QueueNotFound(queue, sorted(known.name for known in picture.view.queues))
        return found

    async def _names(self) -> list[str]:
        return [row.name for row in await self.list_queues()]


def _aim(now: HandOver) -> str:
    return "settled" if now.in_force else "in force"


def _checked(queue: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as storage takes them, or BadOption."""
    unknown = [name for name in settings if name not in QueueSettings.__annotations__]
    if unknown:
        raise BadOption(
            f"{unknown[0]!r} is no setting of a queue; {', '.join(QueueSettings.__annotations__)} can be set."
        )
    if "max_workers" in settings:
        check_max_workers(queue, settings["max_workers"])
    if not isinstance(settings.get("paused", False), bool):
        raise BadOption(f"paused of {queue!r} is {settings['paused']!r}; it must be true or false.")
    if "retry" in settings:
        retry = settings["retry"]
        if retry is not None and not isinstance(retry, Retry):
            raise BadOption(
                f"retry of {queue!r} is {retry!r}; it must be a retry policy, as Fixed(30), or None."
            )
        settings["retry"] = {} if retry is None else retry.to_json()
    return settings
