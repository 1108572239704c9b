"""How quickly slots move: resizes, a leader that leaves or dies, a follower that dies or comes back."""

from __future__ import annotations

import signal
import time

from bench.cluster.app import CAP
from bench.cluster.fleet import LEASE_TTL, POD_TTL, Fleet
from bench.figures import percentile

PODS = 8


async def resizes(fleet: Fleet, times: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds, from before the call until every pod has acknowledged its slots."""
    took = []
    for turn in range(times):
        asked = time.monotonic()
        await fleet.app.queues.resize("bench", CAP // 2 if turn % 2 == 0 else CAP)
        took.append((await fleet.converged() - asked) * 1000)
    return percentile(took, 0.5), percentile(took, 0.99)


async def polite_leave(fleet: Fleet) -> float:
    """Milliseconds from SIGTERM to the leader until the next one has planned."""
    leader, epoch = await fleet.leader(), await fleet.epoch()
    told = await fleet.signal(leader, signal.SIGTERM)
    return (await fleet.planned_after(epoch) - told) * 1000


async def leader_killed(fleet: Fleet) -> float:
    """Seconds from SIGKILL of the leader until the next one has planned, beyond the lease's TTL."""
    leader, epoch = await fleet.leader(), await fleet.epoch()
    await fleet.app.queues.resize("bench", CAP - 1)
    await fleet.converged()
    killed = await fleet.signal(leader, signal.SIGKILL)
    await fleet.app.queues.resize("bench", CAP)
    return await fleet.planned_after(epoch) - killed - LEASE_TTL


async def follower_killed(fleet: Fleet) -> float:
    """Seconds from SIGKILL of a follower until its slots are others', beyond the pod's TTL."""
    follower = await fleet.follower()
    pod = await fleet.pod(follower)
    killed = await fleet.signal(follower, signal.SIGKILL)
    await fleet.until("its row is gone", lambda: _gone(fleet, pod))
    return await fleet.converged() - killed - POD_TTL


async def container_restarted(fleet: Fleet) -> float:
    """Seconds from when a killed pod is registered again until the jobs it ran run again."""
    follower = await fleet.follower()
    pod = await fleet.pod(follower)
    for _ in range(CAP):
        await fleet.app.enqueue_raw("wait", 600, queue="bench")
    await fleet.until("its slots are full", lambda: _running(fleet, pod))
    lost: list[int] = [
        row["id"]
        for row in await fleet.connection.fetch(
            "SELECT id FROM rota.job WHERE pod = $1 AND state = 'running'", pod
        )
    ]
    boot = await fleet.connection.fetchval("SELECT incarnation FROM rota.pod WHERE id = $1", pod)
    await fleet.signal(follower, signal.SIGKILL)
    await fleet.boot(follower)
    await fleet.until("it is registered again", lambda: _booted(fleet, pod, boot))
    back = time.monotonic()
    await fleet.until("its jobs run again", lambda: _all_run(fleet, lost, boot))
    return time.monotonic() - back


async def _gone(fleet: Fleet, pod: object) -> bool:
    return not await fleet.connection.fetchval("SELECT EXISTS (SELECT FROM rota.pod WHERE id = $1)", pod)


async def _running(fleet: Fleet, pod: object) -> bool:
    running: bool = await fleet.connection.fetchval(
        """SELECT count(*) = (SELECT sum(target) FROM rota.assignment WHERE assignment.pod = $1)
           FROM rota.job WHERE pod = $1 AND state = 'running'""",
        pod,
    )
    return running


async def _booted(fleet: Fleet, pod: object, boot: int) -> bool:
    return bool(
        await fleet.connection.fetchval("SELECT incarnation > $2 FROM rota.pod WHERE id = $1", pod, boot)
    )


async def _all_run(fleet: Fleet, jobs: list[int], boot: int) -> bool:
    running = await fleet.connection.fetchval(
        "SELECT count(*) FROM rota.job WHERE id = ANY ($1) AND state = 'running' AND incarnation <> $2",
        jobs,
        boot,
    )
    return bool(running == len(jobs))
