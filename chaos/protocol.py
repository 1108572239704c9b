"""The modelled world, as seen from one pod: its row, its process, and what is under way between them.

Time has no numbers here, only an order: a row expires after its process has fenced itself, and what is
under way arrives at any time, or never. A message that is never delivered needs no event: it is as if
it had not been sent. A lost answer does, because the database has given it.

What is left out, because something worse is in:

- A claim asks for one job; a batch is several that follow one another.
- An outcome's commit and its acknowledgement are one event, the later one: until then the run counts.
- A claim may be answered empty at any time, which is also how it looks to be given up and settled.
- A fenced process and a dead one are the same: neither starts anything, and what they ran counts
  until the row is gone.
- A notice carries nothing and makes the pod beat; a beat can be sent at any time.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from ..cluster.rules import Lease, PodBoot, Said
from ..cluster.view import Assignment
from .rulebook import Claims

NOW, LATER, TTL = 0.0, 1.0, 1.0
"""A row that was renewed lasts from NOW; LATER it looks expired."""

IDLE = Claims()

T = TypeVar("T")

CAP_BROKEN = "promise 1 is broken: a job starts while the cluster runs as many as the cap in force"
LEADER_BROKEN = "promise 4 is broken: a deposed leader's write changes a row"
HELD_BROKEN = "held is no upper bound on what a pod uses"
SHORT = "it does not converge: slots that could be granted are not"


class Beat(NamedTuple):
    """A beat that was sent."""

    incarnation: int
    heard_on: int
    heard: int
    said: Said
    seen: int = -1
    """The target in its snapshot; only where a variant reads it before the lock is there."""


class Answer(NamedTuple):
    """An answer that was given."""

    incarnation: int
    timeline: int
    number: int
    target: int


class Boot(NamedTuple):
    """A registration under way; `made` is its incarnation once it is committed."""

    awaited: bool
    replaces: int
    made: int = 0


class Process(NamedTuple):
    """One boot of a pod. When it is no longer up it has fenced itself or is dead."""

    incarnation: int
    up: bool = True
    timeline: int = 0
    heard: int = 0
    target: int = 0
    claims: Claims = IDLE


class Pod(NamedTuple):
    """All there is about one pod id."""

    row: PodBoot | None = None
    slots: Assignment | None = None
    process: Process | None = None
    beats: tuple[Beat, ...] = ()
    answers: tuple[Answer, ...] = ()
    boots: tuple[Boot, ...] = ()
    ghosts: int = 0
    """Runs of a living process over which another has registered."""
    notices: tuple[int, ...] = ()
    """Targets told by notice; only where a variant does that."""
    wanted: tuple[int, ...] = ()
    """What plans under way ask for this pod."""
    standby: tuple[PodBoot | None, Assignment | None] | None = None
    """What a standby has of its rows."""


class Ground(NamedTuple):
    """What a pod's events depend on beside the pod."""

    timeline: int = 1
    settling: bool = False
    paused: bool = False


class Setting(NamedTuple):
    """How large the world is, and which of the rarer events happen in it."""

    pods: int = 2
    slots: int = 2
    beats: int = 1
    caps: tuple[int, ...] = ()
    """The caps at the beginning; else every one."""
    resizes: bool = True
    pauses: bool = True
    drains: bool = True
    ends: bool = True
    """Fence, death, expiry, and boots that follow."""
    shares: bool = True
    late_boots: bool = False
    riding: bool = False
    giving_up: bool = False
    failover: bool = False
    crossing: bool = False
    """Statements sent before the failover reach the new server."""
    plans: str = "fresh"
    """fresh: written as soon as made; any: made from any view, however old; sent: under way, with leaders."""
    notices: bool = False
    """A broken rule: plans tell targets by notice."""
    snapshots: bool = False
    """A broken rule: a beat is one statement with one snapshot."""
    refused: bool = True
    """Whether beats of boots whose row is gone stay under way, though they will be refused."""


class Move(NamedTuple):
    """An event of one pod; `{}` in its words is the pod's name."""

    words: str
    pod: Pod
    starts: int = 0
    """1: a job starts; -1: a job starts in the transaction that ends one."""


Tenure = tuple[object, int, int]


class Queue(NamedTuple):
    """What is not of one pod: the queue, the server, the lease."""

    workers: int
    force: int
    """The cap in force."""
    pending: bool = False
    """Whether the cap that was asked for last is not in force yet."""
    paused: bool = False
    timeline: int = 1
    settling: bool = False
    standby: tuple[int, int, bool, Lease] | None = None
    """What a standby has of this: workers, force, paused, lease."""
    lease: Lease = Lease()
    plans: tuple[Tenure, ...] = ()
    """Tenures whose plans are under way."""

    @property
    def cap(self) -> int:
        return 0 if self.paused else self.workers

    @property
    def ground(self) -> Ground:
        return Ground(self.timeline, self.settling, self.paused)


class Step(NamedTuple):
    """An event: in words, the place of its pod (or -1), what it leads to, and the promise it breaks."""

    words: str
    place: int
    queue: int
    pods: tuple[int, ...]
    broken: str = ""


class Joint(NamedTuple):
    """An event of leader or operator: the queue after it, and each pod's assignment and wishes if they
    change."""

    words: str
    queue: Queue
    rows: tuple[Assignment | None, ...] | None = None
    wanted: tuple[tuple[int, ...], ...] | None = None
    broken: str = ""


Seat = tuple[bool, Assignment | None]
"""A pod as the planner sees it: whether it drains, and its assignment."""
Seats = tuple[Seat | None, ...]
Rows = dict[int, Assignment]


def rows_of(seats: Seats) -> Rows:
    """The assignments there are, by place."""
    return {place: seat[1] for place, seat in enumerate(seats) if seat and seat[1]}


def runs(pod: Pod) -> int:
    """Runs that count: from the claim's commit until the outcome's, the rescue, or the expiry."""
    if pod.process is None:
        return pod.ghosts
    claims = pod.process.claims
    return pod.ghosts + claims.taken + claims.running + claims.riding + claims.stray


def within_held(pod: Pod) -> bool:
    """Whether the pod uses no more than the row says it may."""
    if pod.process is None or pod.row is None or pod.row.incarnation != pod.process.incarnation:
        return True
    slots = pod.slots or Assignment()
    return sum(pod.process.claims) <= slots.held and 0 <= slots.target <= slots.acting <= slots.held


def incarnations(pod: Pod) -> set[int]:
    """Every boot anyone still knows of."""
    known = {beat.incarnation for beat in pod.beats} | {answer.incarnation for answer in pod.answers}
    known |= {number for boot in pod.boots for number in (boot.replaces, boot.made) if number}
    known |= {kept.incarnation for kept in (pod.row, pod.process, pod.standby and pod.standby[0]) if kept}
    return known


def without(items: tuple[T, ...], item: T) -> tuple[T, ...]:
    """The items but for one that equals this."""
    place = items.index(item)
    return items[:place] + items[place + 1 :]
