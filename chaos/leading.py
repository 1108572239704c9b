"""What leaders and operators do: plans, takeovers, resizes and pauses. All of it depends on rows alone.

Pods are interchangeable here: wherever the order of their ids or their age decides, every order is
played.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from ..cluster.view import Assignment
from .planning import ever_planned, planned
from .protocol import LATER, LEADER_BROKEN, NOW, TTL, Joint, Queue, Rows, Seats, Setting, Tenure, rows_of
from .rulebook import Rulebook

Wishes = tuple[tuple[int, ...], ...]
"""What each plan under way wants, by pod."""


def leading(queue: Queue, seats: Seats, wishes: Wishes, setting: Setting, rules: Rulebook) -> Iterator[Joint]:
    """Everything that leader and operator can do now."""
    yield from _changes(queue, seats, setting, rules)
    if setting.plans == "sent":
        yield from _takeovers(queue, rules)
        yield from _plans_made(queue, seats, wishes, setting)
        for nth in range(len(queue.plans)):
            yield from _plans_written(queue, seats, wishes, nth, rules)
        return
    for wanted in sorted(_wanted(queue, seats, setting)):
        for order in permutations(range(len(seats))):
            after, rows = written(queue, seats, wanted, order, rules)
            yield Joint(f"a plan asks for {_listed(wanted)}", after, rows)


def _changes(queue: Queue, seats: Seats, setting: Setting, rules: Rulebook) -> Iterator[Joint]:
    if setting.resizes:
        for cap in range(setting.slots + 1):
            if cap != queue.workers:
                after = _changed(queue, queue._replace(workers=cap), seats, rules)
                yield Joint(f"the queue is resized to {cap}", after)
    if setting.pauses:
        after = _changed(queue, queue._replace(paused=not queue.paused), seats, rules)
        yield Joint("the queue is resumed" if queue.paused else "the queue is paused", after)


def _changed(before: Queue, after: Queue, seats: Seats, rules: Rulebook) -> Queue:
    if after.cap == before.cap:
        return after
    return in_force(after._replace(pending=True), rows_of(seats), rules)


def in_force(queue: Queue, rows: Rows, rules: Rulebook) -> Queue:
    """The queue, with the cap that was asked for last in force if it is."""
    if queue.pending and rules.in_force(rows, queue.cap, force=queue.force, unsure=queue.settling):
        return queue._replace(force=queue.cap, pending=False)
    return queue


def _wanted(queue: Queue, seats: Seats, setting: Setting) -> set[tuple[int, ...]]:
    """What the planner may want: of these pods, or of a view as old as can be."""
    if setting.plans == "any":
        return set(ever_planned(setting.slots, len(seats)))
    return {wanted_in(queue, seats, order, setting) for order in permutations(range(len(seats)))}


def wanted_in(queue: Queue, seats: Seats, order: tuple[int, ...], setting: Setting) -> tuple[int, ...]:
    """What the planner wants; `order` says which pod is the oldest, and so on."""
    wanted = planned(queue.cap, setting.slots, tuple(seats[place] for place in order))
    return tuple(wanted[order.index(place)] for place in range(len(seats)))


def written(
    queue: Queue, seats: Seats, wanted: tuple[int, ...], order: tuple[int, ...], rules: Rulebook
) -> tuple[Queue, tuple[Assignment | None, ...]]:
    """Queue and rows after a plan was written; `order` ranks the pods by their ids."""
    ranked = {order[place]: row for place, row in rows_of(seats).items()}
    # A pod that has left meanwhile gets no row.
    asked = {order[place]: slots for place, slots in enumerate(wanted) if seats[place]}
    after = rules.after_plan(ranked, asked, queue.cap, unsure=queue.settling)
    rows = tuple(after.get(order[place]) for place in range(len(seats)))
    return in_force(queue, dict(after), rules), rows


def _takeovers(queue: Queue, rules: Rulebook) -> Iterator[Joint]:
    other = 1 if queue.lease.holder == 0 else 0
    lease, won = rules.after_takeover(queue.lease, other, TTL, now=LATER, timeline=queue.timeline)
    if won:
        after = queue._replace(lease=lease._replace(expires_at=TTL))
        yield Joint("the lease runs out, and another takes it", after)


def _plans_made(queue: Queue, seats: Seats, wishes: Wishes, setting: Setting) -> Iterator[Joint]:
    """The leader reads the view and plans; the plan is under way."""
    tenure = _tenure(queue)
    if queue.lease.holder is None or tenure in queue.plans or len(queue.plans) == 2:
        return
    after = queue._replace(plans=(*queue.plans, tenure))
    for wanted in sorted(_wanted(queue, seats, setting)):
        asked = tuple((*kept, slots) for kept, slots in zip(wishes, wanted, strict=True))
        yield Joint(f"the leader makes a plan: {_listed(wanted)}", after, wanted=asked)


def _plans_written(queue: Queue, seats: Seats, wishes: Wishes, nth: int, rules: Rulebook) -> Iterator[Joint]:
    """A plan comes to the database, perhaps after the lease has passed to another."""
    tenure = queue.plans[nth]
    left = queue._replace(plans=queue.plans[:nth] + queue.plans[nth + 1 :])
    rest = tuple(kept[:nth] + kept[nth + 1 :] for kept in wishes)
    if not rules.guarded(queue.lease, *tenure, now=NOW, timeline=queue.timeline):
        yield Joint("a plan of a deposed leader is refused", left, wanted=rest)
        return
    deposed = tenure != _tenure(queue) or tenure[2] != queue.timeline
    whose = "a deposed leader's plan" if deposed else "the leader's plan"
    for order in permutations(range(len(seats))):
        after, rows = written(left, seats, tuple(kept[nth] for kept in wishes), order, rules)
        changed = any(row != (seat and seat[1]) for row, seat in zip(rows, seats, strict=True))
        yield Joint(f"{whose} is written", after, rows, rest, LEADER_BROKEN if changed and deposed else "")


def _tenure(queue: Queue) -> Tenure:
    return queue.lease.holder, queue.lease.epoch, queue.lease.timeline


def _listed(wanted: tuple[int, ...]) -> str:
    """Slots by pod, in words that are filled in with names."""
    return ", ".join(f"{{{place}}} {slots}" for place, slots in enumerate(wanted))
