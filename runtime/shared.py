"""What the queues of one pod share: its membership, its slots, its batch numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.clock import Clock
from rota.events import Tell
from rota.words import BatchNo

from ..cluster.membership import Membership
from ..cluster.slots import Slots
from ..storage.jobs import Jobs
from ..storage.pool import Database

if TYPE_CHECKING:
    from .app import App
    from .claimer import Claimer
    from .context import Context
    from .progress import ProgressWriter
    from .settler import Settler


@dataclass(slots=True)
class Shared:
    """One per pod."""

    app: App
    database: Database
    jobs: Jobs
    membership: Membership
    slots: Slots
    nudge: Callable[[], None]
    lanes: int
    clock: Clock
    tell: Tell
    progress: ProgressWriter
    started: Callable[[str, Sequence[Any]], None]
    ended: Callable[[str, Sequence[Context]], None]
    claimers: dict[str, Claimer] = field(default_factory=dict)
    draining: bool = False
    settler: Settler = field(init=False)
    _last: int = 0

    def next_batch(self) -> BatchNo:
        """A number no claim of this boot has had."""
        self._last += 1
        return BatchNo(self._last)

    def unused_batch(self) -> BatchNo:
        """The number the next claim will have; every claim sent so far has a lower one."""
        return BatchNo(self._last + 1)

    def known_batches(self) -> set[BatchNo]:
        """Batches of which a job is still held here, or the answer is awaited."""
        return {batch for claimer in self.claimers.values() for batch in claimer.batches()}

    def under_way(self) -> list[Callable[[], None]]:
        """How to wake each queue that awaits the answer of a claim."""
        return [claimer.wake for claimer in self.claimers.values() if claimer.claiming]
