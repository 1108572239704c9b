"""A failover to a standby that lacks the last commits.

From some moment on the standby hears no more; later it takes over, on a new timeline, with the rows as
they were at that moment. The lost server is gone, and with it what was on its way to and from it. A
failover has settled when every process that acts on what the lost server told has heard the new one, or
has fenced itself: by the clock, one TTL after the new timeline was first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .protocol import HELD_BROKEN, Pod, Queue, Step
from .rulebook import Claims

if TYPE_CHECKING:
    from .world import World


class Failover:
    """One for a world in which a failover happens, once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, int], int] = {}

    def steps(self, queue: int, pods: tuple[int, ...]) -> Iterator[Step]:
        world = self._world
        now = world.queues.things[queue]
        if now.timeline > 1 and not now.settling:
            return
        if now.standby is None and not now.settling:
            behind = now._replace(standby=(now.workers, now.force, now.paused, now.lease))
            yield Step("the standby hears no more", -1, world.queue(behind), self._each(behind_of, pods))
        elif now.standby is not None:
            after = self._each(self._fallen, pods)
            yield Step(
                "the standby takes over, without later commits", -1, world.queue(self._over(now)), after
            )
        elif all(_settled(world.pods.things[pod], now.timeline) for pod in pods):
            sure = world.queue(now._replace(settling=False))
            broken = "" if world.fit(sure, pods) else HELD_BROKEN
            yield Step("the failover has settled", -1, sure, self._each(_expired, pods), broken)

    def _each(self, change: Callable[[Pod], Pod], pods: tuple[int, ...]) -> tuple[int, ...]:
        after = []
        for pod in pods:
            known = self._known.get((change.__name__, pod))
            if known is None:
                known = self._known[change.__name__, pod] = self._world.pod(
                    change(self._world.pods.things[pod])
                )
            after.append(known)
        return tuple(after)

    def _over(self, now: Queue) -> Queue:
        """The queue on the new server. A cap that was lost with the old one is as good as asked for anew:
        what was in force may be acted on until a plan finds that the older one holds."""
        assert now.standby is not None
        workers, force, paused, lease = now.standby
        plans = now.plans if self._world.setting.crossing else ()
        return Queue(workers, max(force, now.force), True, paused, now.timeline + 1, True, None, lease, plans)

    def _fallen(self, pod: Pod) -> Pod:
        assert pod.standby is not None
        row, slots = pod.standby
        after = pod._replace(row=row, slots=slots, standby=None, answers=())
        if self._world.setting.crossing:
            return after
        me = pod.process
        if me is not None:
            claims = me.claims
            # Claims on their way were lost with the server, and so were outcomes.
            kept = claims._replace(asked=0, lost=0, riding=0, running=claims.running + claims.riding)
            after = after._replace(process=me._replace(claims=kept))
        return after._replace(beats=(), boots=(), wanted=())


def behind_of(pod: Pod) -> Pod:
    """The pod, with a standby that has its rows as they are now."""
    return pod._replace(standby=(pod.row, pod.slots))


def _settled(pod: Pod, timeline: int) -> bool:
    """Whether nothing of this pod acts on what the lost server told."""
    me = pod.process
    return not pod.ghosts and (me is None or not me.up or me.timeline in (0, timeline))


def _expired(pod: Pod) -> Pod:
    """A row that only the lost server renewed has expired by now, and its process has fenced itself: what
    it ran counts no more, though a claim may still be under way."""
    me = pod.process
    if me is None or me.up or (pod.row is not None and pod.row.timeline > 1):
        return pod
    return pod._replace(process=me._replace(claims=Claims(asked=me.claims.asked)))
