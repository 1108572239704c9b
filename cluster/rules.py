"""The protocol's rules as pure functions: what a beat, a plan, a boot or a takeover does to the rows.

The SQL functions of storage/migrations/0003_the_rota.sql are their only other expression, and a
state machine plays both side by side. The explorer searches every state these rules can reach.

The invariant they keep: `held` is an upper bound on what a pod may be using, whatever beats and
answers are late, lost or overtaken; and the sum of what is held is never raised above the cap.

    leader     after_takeover  after_renewal  after_resignation  guarded
    queue      after_plan  after_share  cap_holds  in_force
    pod row    after_join  verdict  after_beat
    the pod    Side: may_take  said  after_answer
    server     after_sight  settling
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

from .view import Assignment

P = TypeVar("P")

NOTHING = Assignment()
NEVER = float("-inf")


# The server: after a failover pods may act on what the lost server told them.


class Server(NamedTuple):
    """Which timeline was seen, since when, and the longest any pod lives unheard."""

    timeline: int
    seen_at: float = NEVER
    ttl: float = 0.0


def after_sight(server: Server, timeline: int, now: float) -> Server:
    """What is known of the server by whoever asks it now."""
    if server.timeline == timeline:
        return server
    return server._replace(timeline=timeline, seen_at=now)


def settling(server: Server, now: float) -> bool:
    """Whether a pod that the new server never heard of may still be at work."""
    return now < server.seen_at + server.ttl


# The lease.


class Lease(NamedTuple):
    """The leader's right to act; (timeline, epoch) numbers its tenures."""

    holder: object = None
    epoch: int = 0
    timeline: int = 0
    ttl: float = 0.0
    expires_at: float = NEVER


def after_takeover(
    lease: Lease, pod: object, terms: float, *, now: float, timeline: int
) -> tuple[Lease, bool]:
    """The lease after someone tried to take it, and whether that was won."""
    if lease.expires_at > now + lease.ttl:
        # The clock went back: nobody can have been promised so much.
        return lease._replace(expires_at=now + lease.ttl), False
    if lease.expires_at > now and lease.timeline == timeline:
        return lease, False
    return Lease(pod, lease.epoch + 1, timeline, terms, now + terms), True


def guarded(lease: Lease, pod: object, epoch: int, on: int, *, now: float, timeline: int) -> bool:
    """Whether a leader of this epoch, given on this timeline, may write."""
    tenure = (lease.holder, lease.epoch, lease.timeline) == (pod, epoch, on)
    return tenure and on == timeline and lease.expires_at > now


def after_renewal(lease: Lease, terms: float, *, now: float) -> Lease:
    """The lease of a leader that `guarded` let through."""
    return lease._replace(ttl=terms, expires_at=now + terms)


def after_resignation(lease: Lease, pod: object, epoch: int, on: int) -> Lease:
    """The lease after its holder gave it up; nobody else can."""
    if (lease.holder, lease.epoch, lease.timeline) != (pod, epoch, on):
        return lease
    return lease._replace(holder=None, expires_at=NEVER)


# One queue: its assignments by pod.


def cap_holds(rows: Mapping[P, Assignment], cap: int) -> bool:
    """Whether a cap is in force: no more can be running, or nobody may start anything."""
    return sum(row.held for row in rows.values()) <= cap or all(row.acting == 0 for row in rows.values())


def in_force(rows: Mapping[P, Assignment], cap: int, *, force: int, unsure: bool) -> bool:
    """Whether a cap that was asked for is in force, where `force` is.

    A raised one is at once. While a failover settles a lowered one is not, whatever the rows say: pods
    may act on what the lost server told them.
    """
    return cap >= force or (not unsure and cap_holds(rows, cap))


def after_plan(
    rows: Mapping[P, Assignment], wanted: Mapping[P, int], cap: int, *, unsure: bool = False
) -> dict[P, Assignment]:
    """The assignments after a leader asked for these targets; pods rise in order of their keys.

    Revoke before grant: a raise ends at what is held and the room left under the cap. While more
    is held than the cap allows targets only fall; once that is acknowledged and busy slots still
    hold too many, they fall to 0 until enough have been given back. Unsure: a failover settles.
    """
    wanted = {pod: slots for pod, slots in wanted.items() if slots > 0}
    after = dict.fromkeys(wanted, NOTHING) | dict(rows)
    held = sum(row.held for row in after.values())
    room, over = max(0, cap - held), held > cap
    if over and all(
        row.acting == row.target and wanted.get(pod, 0) >= row.target for pod, row in after.items()
    ):
        wanted = {}
    for pod in sorted(after):  # type: ignore[type-var]
        row, slots = after[pod], wanted.get(pod, 0)
        gets = min(slots, row.target) if over or unsure else min(slots, row.held + room)
        room -= max(0, gets - row.held)
        after[pod] = Assignment(gets, max(row.held, gets), max(row.acting, gets))
    return after


def after_share(
    rows: Mapping[P, Assignment], pod: P, cap: int, *, live: int, empty: int, unsure: bool = False
) -> dict[P, Assignment]:
    """The assignments after a pod that has none took its fair share, out of what is free.

    `live` pods serve the queue; `empty` is what is left of the pod's own capacity.
    """
    after = dict(rows)
    fair = -(-cap // max(1, live))
    gets = min(fair, cap - sum(row.held for row in rows.values()), empty)
    if pod not in rows and gets > 0 and not unsure:
        after[pod] = Assignment(gets, gets, gets)
    return after


# One pod: its row, and its own side.


class PodBoot(NamedTuple):
    """The row of a pod, as far as the protocol goes; `answer` numbers the answers to its beats."""

    incarnation: int
    expires_at: float
    ttl: float
    answer: int = 0
    timeline: int = 0
    machine: object = ""
    draining: bool = False


def after_join(
    row: PodBoot | None,
    replaces: int,
    incarnation: int,
    *,
    machine: object,
    ttl: float,
    now: float,
    timeline: int,
) -> PodBoot | None:
    """The row of a boot that names the incarnation it replaces; None: it may not, or not yet.

    An unexpired earlier boot is retired only from its own machine, where its lock was to be had.
    """
    if row is not None:
        if row.incarnation != replaces:
            return None
        if row.expires_at > now and row.machine != machine:
            return None
    return PodBoot(incarnation, now + ttl, ttl, 0, timeline, machine)


Verdict = Literal["beaten", "expired", "retired"]


def verdict(
    row: PodBoot | None, incarnation: int, *, now: float, timeline: int, unsure: bool = True
) -> Verdict:
    """What becomes of a beat.

    While a failover settles, a row that the lost server renewed last counts, however old it looks.
    """
    if row is None or row.incarnation < incarnation:
        return "expired"
    if row.incarnation > incarnation:
        return "retired"
    counts = row.expires_at > now or (unsure and row.timeline != timeline)
    return "beaten" if counts else "expired"


class Said(NamedTuple):
    """What a pod says of one queue when it beats."""

    acts: int = 0
    uses: int = 0


def latest(row: PodBoot, heard: int, heard_on: int, timeline: int) -> bool:
    """Whether the pod had received the last answer it was given when it sent this beat."""
    return heard_on == timeline == row.timeline and heard == row.answer


def after_answering(row: PodBoot, *, now: float, timeline: int) -> PodBoot:
    """The pod's row after a beat that is not refused."""
    return row._replace(expires_at=now + row.ttl, answer=row.answer + 1, timeline=timeline)


def after_beat(
    row: Assignment | None, said: Said, *, latest: bool, learns: bool, unsure: bool = False
) -> Assignment | None:
    """One queue's assignment after a beat.

    It falls to what the pod acts on, uses, or is being told, and only if the pod had the latest
    answer: an earlier one, on its way, might make it act on more. After a failover it only rises,
    and while that settles the pod is told no more than it acts on: a target that had been taken
    back, and given to others, may have returned with the older rows.
    """
    if learns:
        if row is None and said == (0, 0):
            return None
        known = row or NOTHING
        target = min(known.target, said.acts) if unsure else known.target
        return Assignment(target, max(known.held, *said), max(known.acting, said.acts))
    if row is None or not latest:
        return row
    acting = min(row.acting, max(row.target, said.acts))
    return Assignment(row.target, min(row.held, max(row.target, *said)), acting)


class Side(NamedTuple):
    """The pod's own side of one queue."""

    timeline: int = 0
    heard: int = 0
    target: int = 0
    used: int = 0
    flying: int = 0
    """Claims whose answer is awaited; their slots are among the used."""


def may_take(side: Side) -> int:
    """How many slots a claim sent now may ask for."""
    return max(0, side.target - side.used)


def said(side: Side) -> Said:
    """What the pod says of itself; while a claim is under way it acts on what that was sent under."""
    return Said(max(side.target, side.used) if side.flying else side.target, side.used)


def after_answer(side: Side, timeline: int, answer: int, target: int) -> Side:
    """The pod's side when an answer comes; one older than what it has is ignored."""
    if (timeline, answer) <= (side.timeline, side.heard):
        return side
    return side._replace(timeline=timeline, heard=answer, target=target)
