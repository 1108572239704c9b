"""How much of everything: the sizes of the goals, and small ones for trying the harness out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of jobs, and of samples."""

    warm: int = 2_000
    """Jobs that each pod works before the clock starts: connections and statements are made."""
    drain: int = 20_000
    backlog: int = 500_000
    crowd: int = 1_000_000
    """Jobs that must not be in the way: future-dated, ended, or of a kind the pod does not run."""
    long: int = 100_000
    """The drain under an old snapshot, and the one after which memory is read."""
    flat: int = 1_000_000
    """The drain over which memory must not grow."""
    one_by_one: int = 200
    concurrent: int = 1_000
    callers: int = 50
    bulk: int = 10_000
    turns: int = 8
    """How often in a run contenders take turns to enqueue that many."""
    samples: int = 100
    """Pickups per contender and run."""
    wal: int = 20_000
    resizes: int = 100
    still: float = 30.0
    """Seconds over which stillness is listened to."""
    still_queues: tuple[int, ...] = (1, 10, 100)
    crowd_pods: int = 1_000


FULL = Sizes()
QUICK = Sizes(
    warm=500,
    drain=1_000,
    backlog=3_000,
    crowd=3_000,
    long=2_000,
    flat=5_000,
    one_by_one=20,
    concurrent=200,
    bulk=1_000,
    turns=1,
    samples=5,
    wal=1_000,
    resizes=4,
    still=2.0,
    still_queues=(1,),
    crowd_pods=50,
)
