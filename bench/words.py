"""The names of works and contenders, as they stand in the table, the file and the goals."""

from __future__ import annotations

from dataclasses import dataclass

from bench.sizes import Sizes

ROTA, CEILING, PGQUEUER = "rota", "ceiling", "pgqueuer"

PICKUP_P50, PICKUP_P95 = "pickup: p50", "pickup: p95"
CPU_PER_JOB = "python: CPU per job"
WAL_PER_JOB = "wal: bytes per job"

RESIZE_P50, RESIZE_P99 = "cluster: resize, p50", "cluster: resize, p99"
LEADER_LEAVES = "cluster: leader leaves, next has planned"
LEADER_KILLED = "cluster: leader killed, beyond the lease TTL"
FOLLOWER_KILLED = "cluster: follower killed, beyond the pod TTL"
RESTARTED = "cluster: restarted, its jobs run again"
CAPPED, UNCAPPED = "cluster: drain with the cap", "cluster: drain without any"
SECONDS, PER_SECOND, COUNT = "s", "/s", ""


def still(who: str, queues: int) -> str:
    """An idle pod's talking."""
    return f"cluster: statements of a {who}, {queues} queues"


def planner(name: str) -> str:
    """The planner at 1,000 pods and 200 queues."""
    return f"cluster: planner, {name}"


def beside(work: str) -> str:
    """The plain drain that a crowded one is held against, made right before or after it."""
    return f"{work}, plain beside it"


RATE, MILLISECONDS, MICROSECONDS, MEBIBYTES, BYTES = "jobs/s", "ms", "µs", "MiB", "B"


@dataclass(frozen=True, slots=True)
class Works:
    """Names that tell a size."""

    sizes: Sizes

    @property
    def plain(self) -> str:
        return f"drain: {self.sizes.drain:,}, 1 process"

    @property
    def pair(self) -> str:
        return f"drain: {self.sizes.drain:,}, 2 processes"

    @property
    def backlog(self) -> str:
        return f"drain: first {self.sizes.drain:,} of {self.sizes.backlog:,}"

    @property
    def future(self) -> str:
        return f"drain: with {self.sizes.crowd:,} future-dated"

    @property
    def ended(self) -> str:
        return f"drain: with {self.sizes.crowd:,} ended"

    @property
    def foreign(self) -> str:
        return f"drain: with {self.sizes.crowd:,} of another kind"

    @property
    def long(self) -> str:
        return f"drain: {self.sizes.long:,}, 1 process"

    @property
    def snapshot(self) -> str:
        return f"drain: {self.sizes.long:,}, old snapshot open"

    @property
    def one_by_one(self) -> str:
        return "enqueue: one by one"

    @property
    def concurrent(self) -> str:
        return f"enqueue: {self.sizes.callers} concurrent callers"

    @property
    def bulk(self) -> str:
        return f"enqueue: bulk {self.sizes.bulk:,}"

    @property
    def memory(self) -> str:
        return f"memory: after {self.sizes.long:,}"

    @property
    def flat_base(self) -> str:
        return f"memory: at {self.sizes.flat // 10:,} of {self.sizes.flat:,}"

    @property
    def flat(self) -> str:
        return f"memory: at {self.sizes.flat:,} of {self.sizes.flat:,}"
