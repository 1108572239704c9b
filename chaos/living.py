"""A pod's life: it registers, drains, leaves, fences itself or dies, and expires.

A process that has fenced itself and one that is dead are the same here. Only then does its row expire, or
is it registered over; by the clock of the database, or because the lock of its machine is to be had.
"""

from __future__ import annotations

from collections.abc import Iterator

from .protocol import (
    IDLE,
    LATER,
    NOW,
    TTL,
    Boot,
    Ground,
    Move,
    Pod,
    Process,
    Setting,
    incarnations,
    runs,
    without,
)
from .rulebook import Rulebook


def living(pod: Pod, ground: Ground, setting: Setting, rules: Rulebook) -> Iterator[Move]:
    """What can happen to the process and the row of one pod."""
    yield from _ending(pod, ground, setting)
    yield from _asking(pod, ground, setting, rules)
    for boot in sorted(set(pod.boots)):
        if boot.made:
            yield from _hearing(pod, boot)
        else:
            yield from _deciding(pod, boot, ground, rules)


def _ending(pod: Pod, ground: Ground, setting: Setting) -> Iterator[Move]:
    me, row = pod.process, pod.row
    mine = row is not None and me is not None and row.incarnation == me.incarnation
    if setting.ends and me is not None and me.up:
        yield Move("{} fences itself, or dies", pod._replace(process=me._replace(up=False)))
    if setting.drains and row is not None and not row.draining:
        yield Move("{} drains", pod._replace(row=row._replace(draining=True)))
    if setting.drains and mine and me is not None and me.up and me.claims == IDLE:
        yield Move("{} leaves", pod._replace(row=None, slots=None, process=None))
    if setting.ends and row is not None and not ground.settling and not lives(pod):
        yield Move("the leader expires {}", expired(pod))
    if pod.ghosts:
        yield Move("a run of the retired process of {} ends", pod._replace(ghosts=pod.ghosts - 1))
        yield Move("the retired process of {} exits", pod._replace(ghosts=0))


def lives(pod: Pod) -> bool:
    """Whether a process works, or will when it hears of it, as the incarnation that has the row."""
    now = pod.row.incarnation if pod.row else 0
    up = pod.process is not None and pod.process.up and pod.process.incarnation == now
    return up or any(boot.awaited and boot.made == now for boot in pod.boots)


def expired(pod: Pod) -> Pod:
    """The pod without its row, and without what ran under it."""
    me = pod.process if pod.process is not None and pod.process.up else None
    return pod._replace(row=None, slots=None, process=me)


def _asking(pod: Pod, ground: Ground, setting: Setting, rules: Rulebook) -> Iterator[Move]:
    """Begin a boot, in place of the one that is found."""
    me, row = pod.process, pod.row
    if any(boot.awaited for boot in pod.boots) or len(pod.boots) == 2:
        return
    ask = Boot(True, row.incarnation if row else 0)
    if me is None or (not me.up and setting.ends):
        if setting.late_boots:
            yield Move("{} asks to be registered", pod._replace(boots=(*pod.boots, ask)))
        elif (after := registered(pod, ask, ground, rules)) is not None:
            yield Move("{} registers", after)
    elif me.up and setting.ends and ground.settling and (row is None or row.timeline != ground.timeline):
        # On another machine, where it cannot know that the process lives: the row, which the lost
        # server renewed last, is not there or looks expired.
        ghost = pod._replace(process=None, ghosts=pod.ghosts + runs(pod))
        if (after := registered(ghost, ask, ground, rules, machine="another")) is not None:
            yield Move("{} registers elsewhere, over a process that lives", after)


def registered(pod: Pod, boot: Boot, ground: Ground, rules: Rulebook, *, machine: str = "") -> Pod | None:
    """The pod after a registration that is committed and answered at once; None when it was refused."""
    after = _decided(pod, boot, ground, rules, machine)
    if after is None:
        return None
    assert after.row is not None
    return after._replace(process=Process(after.row.incarnation))


def _deciding(pod: Pod, boot: Boot, ground: Ground, rules: Rulebook) -> Iterator[Move]:
    """A registration comes to the database, awaited or late."""
    rest = pod._replace(boots=without(pod.boots, boot))
    after = _decided(rest, boot, ground, rules, "")
    if boot.awaited:
        late = boot._replace(awaited=False)
        yield Move("{} gives its registration up", rest._replace(boots=(*rest.boots, late)))
    if after is None:
        yield Move("a registration of {} is refused", rest)
    elif boot.awaited:
        assert after.row is not None
        made = boot._replace(made=after.row.incarnation)
        yield Move("{} is registered", after._replace(boots=(*after.boots, made)))
    else:
        yield Move("{} is registered by a late statement that nobody awaits", after)


def _decided(pod: Pod, boot: Boot, ground: Ground, rules: Rulebook, machine: str) -> Pod | None:
    """The rows after a registration; the sequence gives a number that was never given before."""
    number = 1 + max(incarnations(pod), default=0)
    now = LATER if machine else NOW
    row = rules.after_join(
        pod.row, boot.replaces, number, machine=machine, ttl=TTL, now=now, timeline=ground.timeline
    )
    return None if row is None else expired(pod)._replace(row=row)


def _hearing(pod: Pod, boot: Boot) -> Iterator[Move]:
    rest = pod._replace(boots=without(pod.boots, boot))
    if boot.awaited:
        yield Move("{} hears its incarnation", rest._replace(process=Process(boot.made)))
    yield Move("the answer to a registration of {} is lost", rest)
