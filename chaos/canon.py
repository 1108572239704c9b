"""One name for pods that differ only in what can no longer matter, or in how high numbers have climbed.

Incarnations and answer numbers are only ever compared, so their ranks say as much. What can have no
effect any more is dropped: answers nobody waits for, what a fenced process had heard.
"""

from __future__ import annotations

from ..cluster.rules import PodBoot
from .protocol import TTL, Answer, Beat, Boot, Pod, Process, Queue, incarnations
from .rulebook import Claims

STALE = -1
LATE = 1
"""What a beat of another boot has heard. It is refused; were it not, this might be any answer's number."""


def canonical(pod: Pod, *, refused: bool) -> Pod:
    """The pod that stands for all that will behave like this one.

    `refused`: keep beats of boots whose row is gone, which will be refused whenever they arrive.
    """
    if not refused:
        boot = pod.row.incarnation if pod.row else 0
        pod = pod._replace(beats=tuple(beat for beat in pod.beats if beat.incarnation == boot))
    return _ranked(_forgotten(pod))


def _forgotten(pod: Pod) -> Pod:
    me = pod.process
    if me is not None and not me.up:
        me = None if pod.row is None or pod.row.incarnation != me.incarnation else _fenced(me)
    up = me is not None and me.up
    answers = tuple(answer for answer in pod.answers if up and me and answer.incarnation == me.incarnation)
    return pod._replace(process=me, answers=answers, notices=pod.notices if up else ())


def _fenced(me: Process) -> Process:
    """What was committed counts as running, whatever the process knew; asked claims may still commit."""
    asked, taken, running, riding, lost, stray = me.claims
    claims = Claims(asked=asked + lost, running=taken + running + stray, riding=riding)
    return Process(me.incarnation, up=False, claims=claims)


def _ranked(pod: Pod) -> Pod:
    boots = {0: 0} | {number: rank for rank, number in enumerate(sorted(incarnations(pod)), start=1)}
    row, me = pod.row, pod.process
    now = row.incarnation if row else 0
    beats = tuple(_staled(beat, row) for beat in pod.beats)
    kept = pod.standby[0] if pod.standby else None
    heard = me.heard if me else 0
    if me and row and _behind(heard, me.timeline, row) and all(each.number > heard for each in pod.answers):
        heard = STALE
    numbers = {answer.number for answer in pod.answers}
    numbers |= {beat.heard for beat in beats if beat.incarnation == now}
    numbers |= {heard} if me and me.up else set()
    numbers |= {row.answer} if row else set()
    ranks = {number: rank for rank, number in enumerate(sorted(numbers or {0}))}

    def ranked_row(row: PodBoot) -> PodBoot:
        return PodBoot(boots[row.incarnation], TTL, TTL, ranks[row.answer], row.timeline, "", row.draining)

    def ranked_beat(beat: Beat) -> Beat:
        heard = ranks[beat.heard] if beat.incarnation == now else LATE
        return beat._replace(incarnation=boots[beat.incarnation], heard=heard)

    return pod._replace(
        row=row and ranked_row(row),
        process=me and me._replace(incarnation=boots[me.incarnation], heard=ranks[heard] if me.up else 0),
        beats=tuple(sorted(ranked_beat(beat) for beat in beats)),
        answers=tuple(
            sorted(
                Answer(boots[each[0]], each.timeline, ranks[each.number], each.target) for each in pod.answers
            )
        ),
        boots=tuple(sorted(Boot(boot.awaited, boots[boot.replaces], boots[boot.made]) for boot in pod.boots)),
        # On a new timeline answers are counted anew, so that the number the standby has is no matter.
        standby=pod.standby
        and (kept and ranked_row(kept._replace(answer=min(numbers, default=0))), pod.standby[1]),
    )


def _staled(beat: Beat, row: PodBoot | None) -> Beat:
    """The pod had not heard the latest answer when it sent this, and never will have."""
    if row and beat.incarnation == row.incarnation and _behind(beat.heard, beat.heard_on, row):
        return beat._replace(heard=STALE)
    return beat


def _behind(heard: int, on: int, row: PodBoot) -> bool:
    return heard < row.answer or on != row.timeline


def canonical_queue(queue: Queue) -> Queue:
    """The queue, with epochs by rank."""
    if not queue.lease.epoch and not queue.plans:
        return queue
    kept = queue.standby[3].epoch if queue.standby else 0
    epochs = sorted({0, kept, queue.lease.epoch} | {epoch for _, epoch, _ in queue.plans})
    rank = {epoch: place for place, epoch in enumerate(epochs)}
    return queue._replace(
        lease=queue.lease._replace(epoch=rank[queue.lease.epoch]),
        plans=tuple((holder, rank[epoch], on) for holder, epoch, on in queue.plans),
        standby=queue.standby and (*queue.standby[:3], queue.standby[3]._replace(epoch=rank[kept])),
    )
