"""How far the slots of one queue have come on their way to where they ought to be. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from rota.words import PodId, QueueName

from .planner import plan
from .sentence import sentence
from .view import ClusterView, Picture, QueueView


class Holder(NamedTuple):
    """What one pod has of the queue."""

    pod: PodId
    name: str
    target: int
    held: int
    silent: bool = False
    """Whether it has expired, so that nothing of it runs; it holds until a leader removes it."""

    @property
    def giving_back(self) -> int:
        """What is waited for: slots above its target, and all that a silent pod had."""
        return self.held if self.silent else max(0, self.held - self.target)


@dataclass(frozen=True)
class Standing:
    """One queue's slots in one picture: oldest pods first, without those that have none."""

    queue: QueueView
    holders: tuple[Holder, ...]
    serving: int
    """Live pods that may have slots of it."""
    view: ClusterView

    @cached_property
    def grantable(self) -> int:
        """The slots it can have: its cap, or what its pods can hold beside their other queues."""
        return sum(plan(self.view).get(self.queue.name, {}).values())

    @property
    def granted(self) -> int:
        return sum(holder.target for holder in self.holders)

    @property
    def held(self) -> int:
        return sum(holder.held for holder in self.holders)

    @property
    def settled(self) -> bool:
        """Whether all that can be granted is granted, and nothing is left to be given back."""
        return not any(holder.giving_back for holder in self.holders) and self.granted == self.grantable

    @property
    def deserted(self) -> bool:
        """Whether nobody is there whom one could wait for."""
        return not self.serving and all(holder.silent for holder in self.holders)

    @property
    def shortage(self) -> str | None:
        """What keeps the queue from having as many slots as its cap, whoever gives back what."""
        if not self.serving:
            return "no live pod serves it"
        if self.grantable < self.queue.cap:
            return f"pods can hold {self.grantable} of {self.queue.cap}"
        return None

    def left(self, most: int = 5) -> str:
        """What is still to happen, and who is waited for."""
        givers = sorted((one for one in self.holders if one.giving_back), key=lambda one: -one.giving_back)
        if not givers and self.granted > self.queue.cap:
            return f"{self.granted - self.queue.cap} are to be taken back by the leader's next plan"
        if not givers:
            return f"{self.granted} of {self.grantable} are granted"
        said = [
            f"{one.name} fell silent with {one.held}"
            if one.silent
            else f"{one.name} gives back {one.giving_back}"
            for one in givers[:most]
        ]
        more = f" and {len(givers) - most} more pods" if len(givers) > most else ""
        return ", ".join(said) + more


def standing(picture: Picture, name: str) -> Standing | None:
    """Where a queue's slots stand; None: there is no such queue."""
    view, queue = picture.view, _queue(picture.view, name)
    if queue is None:
        return None
    holders = (
        Holder(pod.id, picture.names.get(pod.id, ""), row.target, row.held, pod.id in picture.silent)
        for pod in view.pods
        if (row := view.assignments.get((queue.name, pod.id))) is not None and row.held
    )
    serving = sum(pod.room_for(queue.name) > 0 for pod in view.pods)
    return Standing(queue, tuple(holders), serving, view)


class Move(NamedTuple):
    """One pod's slots before and after."""

    pod: PodId
    name: str
    before: int
    held: int
    after: int


class Rehearsal(NamedTuple):
    """What a change of a queue would come to: each pod's slots, and the plan in words."""

    moves: tuple[Move, ...]
    sentence: str
    standing: Standing
    """Where it would begin: the cap as changed, the slots as they are."""


def rehearse(picture: Picture, name: str, *, max_workers: int, cause: str) -> Rehearsal | None:
    """The plan that a leader would make of it; None: there is no such queue."""
    queue = _queue(picture.view, name)
    if queue is None:
        return None
    changed = replace(queue, max_workers=max_workers)
    queues = tuple(changed if other is queue else other for other in picture.view.queues)
    begins = standing(picture._replace(view=replace(picture.view, queues=queues)), name)
    assert begins is not None
    names = dict(picture.names)
    before = {holder.pod: holder.target for holder in begins.holders if holder.target}
    after = dict(plan(begins.view).get(queue.name, {}))
    held = {holder.pod: holder.held for holder in begins.holders}
    moves = (
        Move(pod.id, names.get(pod.id, ""), before.get(pod.id, 0), held.get(pod.id, 0), after.get(pod.id, 0))
        for pod in begins.view.pods
        if pod.id in held or pod.id in after
    )
    return Rehearsal(tuple(moves), sentence(queue.name, before, after, names, cause), begins)


def _queue(view: ClusterView, name: str) -> QueueView | None:
    return next((queue for queue in view.queues if queue.name == QueueName(name)), None)
