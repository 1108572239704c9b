"""Whether the cluster converges from a state: what is under way arrives, what runs ends, what is silent
expires; then beats and plans alternate, and after a few rounds every slot that can be granted is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from ..cluster.rules import Lease
from .beating import applied, beat_of, heard
from .leading import wanted_in, written
from .living import expired, lives, registered
from .protocol import IDLE, Ground, Pod, Process, Queue, Seats, without
from .world import World

ROUNDS = 5
"""Plans, each followed by a beat of every pod, within which every grantable slot is granted."""


class Convergence:
    """Asks of every state, and works it out once for all that come to the same calm."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._queues: dict[int, int] = {}
        self._pods: dict[tuple[Ground, int], int] = {}
        self._known: dict[int, int] = {}
        self.rounds = 0
        """The most rounds that were needed."""

    def holds(self, state: int) -> bool:
        """Whether every slot that can be granted will be, within a few rounds."""
        queue, pods = self._world.unpack(state)
        ground = self._world.grounds[queue]
        calm = [self._calmed(ground, pod) for pod in pods]
        key = self._world.pack(self._quieted(queue), calm)
        rounds = self._known.get(key)
        if rounds is None:
            rounds = self._known[key] = self._rounds(*self._world.unpack(key))
            self.rounds = max(self.rounds, rounds)
        return rounds <= ROUNDS

    def _quieted(self, number: int) -> int:
        known = self._queues.get(number)
        if known is None:
            queue = self._world.queues.things[number]._replace(standby=None, plans=(), lease=Lease())
            known = self._queues[number] = self._world.queue(queue)
        return known

    def _calmed(self, ground: Ground, number: int) -> int:
        known = self._pods.get((ground, number))
        if known is None:
            pod = self._delivered(self._world.pods.things[number], ground)
            known = self._pods[ground, number] = self._world.pod(pod)
        return known

    def _delivered(self, pod: Pod, ground: Ground) -> Pod:
        """The pod once everything under way has arrived, and every run has ended."""
        rules = self._world.rules
        pod = pod._replace(standby=None, wanted=(), notices=(), ghosts=0)
        for boot in pod.boots:
            pod = pod._replace(boots=without(pod.boots, boot))
            if boot.awaited and boot.made:
                pod = pod._replace(process=Process(boot.made))
            elif boot.awaited:
                pod = registered(pod, boot, ground, rules) or pod
        for beat in pod.beats:
            pod = applied(pod, beat, ground, rules) or pod._replace(beats=without(pod.beats, beat))
        pod = self._hearing(pod)
        me = pod.process
        if me is not None and me.up:
            return pod._replace(process=me._replace(claims=IDLE))
        return pod

    def _hearing(self, pod: Pod) -> Pod:
        for answer in pod.answers:
            me = pod.process
            if me is not None and me.up and me.incarnation == answer.incarnation:
                pod = heard(pod, answer, self._world.rules)
        return pod._replace(answers=())

    def _rounds(self, number: int, pods: tuple[int, ...]) -> int:
        """The most rounds it takes, whatever the order of the pods' ids; more than ROUNDS: too many."""
        queue = self._world.queues.things[number]
        start = [self._world.pods.things[pod] for pod in pods]
        orders = permutations(range(len(pods)))
        return max(self._rounds_in(order, queue, start) for order in orders)

    def _rounds_in(self, order: tuple[int, ...], queue: Queue, pods: list[Pod]) -> int:
        played = enumerate(self._playing(order, queue, pods))
        return next(rounds for rounds, now in played if rounds > ROUNDS or self._granted(*now))

    def _playing(
        self, order: tuple[int, ...], queue: Queue, pods: list[Pod]
    ) -> Iterator[tuple[Queue, list[Pod]]]:
        while True:
            pods = [self._beaten(pod, queue.ground) for pod in pods]
            queue = queue._replace(settling=False)
            pods = [pod if pod.row is None or lives(pod) else expired(pod) for pod in pods]
            yield queue, pods
            seats = _seats(pods)
            wanted = wanted_in(queue, seats, order, self._world.setting)
            queue, rows = written(queue, seats, wanted, order, self._world.rules)
            pods = [pod._replace(slots=row) for pod, row in zip(pods, rows, strict=True)]

    def _beaten(self, pod: Pod, ground: Ground) -> Pod:
        """The pod after a beat that is answered; one that is refused fences itself."""
        me = pod.process
        if me is None or not me.up:
            return pod._replace(process=None)
        beat = beat_of(me, self._world.rules)
        after = applied(pod._replace(beats=(beat,)), beat, ground, self._world.rules)
        return pod._replace(process=None) if after is None else self._hearing(after)

    def _granted(self, queue: Queue, pods: list[Pod]) -> bool:
        """Whether the cap is in force, and everyone acts on, holds and is told the same."""
        setting = self._world.setting
        targets = [pod.slots.target if pod.slots else 0 for pod in pods]
        able = sum(setting.slots for pod in pods if pod.row is not None and not pod.row.draining)
        level = all(
            pod.process is None or (pod.slots or (0, 0, 0)) == (pod.process.target,) * 3 for pod in pods
        )
        return not queue.pending and level and sum(targets) == min(queue.cap, able)


def _seats(pods: list[Pod]) -> Seats:
    return tuple((pod.row.draining, pod.slots) if pod.row else None for pod in pods)
