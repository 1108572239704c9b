"""The leader's loop: read the view, plan, write what changed under its epoch.

Events move slots, and a tick is the safety net: whatever is told while a plan is being written is
planned next. What may be written now the database decides (revoke before grant); the same rule is
asked here first, so that a queue with nothing to do costs no statement.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from rota.events import QueuePlanned, Tell
from rota.service import Service
from rota.words import PodId, QueueName

from ..storage.assignments import Assignments
from .leader import Lead
from .picture import take_picture
from .planner import plan
from .rules import after_plan
from .sentence import sentence
from .view import Assignment, ClusterView, QueueView

_FIRST = "a leader took over"
_TICK = "the regular look"


class Rebalancer(Service):
    """Plans for one tenure."""

    doing = "planning slots"

    def __init__(self, lead: Lead, assignments: Assignments, *, every: float, tell: Tell) -> None:
        super().__init__(tell)
        self._lead = lead
        self._assignments = assignments
        self.every = every
        self._causes = Counter([_FIRST])
        self._any = asyncio.Event()

    def hear(self, cause: str) -> None:
        """Something happened that may move slots."""
        self._causes[cause] += 1
        self._any.set()

    async def step(self) -> None:
        causes, self._causes = self._causes, Counter()
        self._any.clear()
        await self.rebalance(_cause(causes))
        try:
            async with asyncio.timeout(self.every):
                await self._any.wait()
        except TimeoutError:
            pass

    async def rebalance(self, cause: str) -> None:
        """Bring the rows as near to the plan as they may come now."""
        picture = await take_picture(self._assignments)
        view = picture.view
        wanted = plan(view)
        rows = _by_queue(view)
        due = [queue for queue in view.queues if _moves(queue, rows[queue.name], wanted.get(queue.name, {}))]
        told: list[PodId] = []
        for place, queue in enumerate(due, start=1):
            before = {pod: row.target for pod, row in rows[queue.name].items() if row.target}
            targets = dict(wanted.get(queue.name, {}))
            words = sentence(queue.name, before, targets, picture.names, cause)
            written = await self._assignments.plan_queue(
                self._lead.tenure,
                queue.name,
                targets,
                cause=cause,
                sentence=words,
                also=told,
                tell=place == len(due),
            )
            self._lead.written(written is not None)
            if written is None:
                return
            told += written.changed
            if written.changed:
                self._tell(QueuePlanned(queue.name, written.granted, written.revoked, words))


def _by_queue(view: ClusterView) -> dict[QueueName, dict[PodId, Assignment]]:
    rows: dict[QueueName, dict[PodId, Assignment]] = {queue.name: {} for queue in view.queues}
    for (queue, pod), row in view.assignments.items():
        rows[queue][pod] = row
    return rows


def _moves(queue: QueueView, rows: Mapping[PodId, Assignment], wanted: Mapping[PodId, int]) -> bool:
    """Whether writing this queue's plan would change anything."""
    return queue.pending or after_plan(rows, wanted, queue.cap) != rows


def _cause(causes: Counter[str]) -> str:
    """What happened since the last plan, in words."""
    if not causes:
        return _TICK
    first = [cause for cause, _ in causes.most_common(3)]
    more = len(causes) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
