"""A thousand pods that only beat, with their real statement, and one real pod that leads them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import UUID, uuid4

from bench.cluster.fleet import Fleet
from rota.settings import DatabaseSettings
from rota.storage.pods import Pods
from rota.storage.pool import Database
from rota.storage.rows import Report
from rota.words import Incarnation, PodId

EVERY, TTL = 2.0, 10.0
CONNECTIONS = 20


async def measure(dsn: str, pods: int, seconds: float) -> dict[str, float]:
    """Beats that came late, the longest one took, and the share of one core that Postgres used."""
    async with Fleet.on(dsn) as fleet:
        await fleet.start(1)
        database = Database(DatabaseSettings(url=dsn, pool_size=CONNECTIONS))
        await database.open()
        try:
            return await _beat_all(fleet, Pods(database), pods, seconds)
        finally:
            await database.close()


async def _beat_all(fleet: Fleet, pods: Pods, number: int, seconds: float) -> dict[str, float]:
    ids = [PodId(uuid4()) for _ in range(number)]
    boots = await asyncio.gather(*(_register(pods, pod) for pod in ids))
    lateness: list[float] = []
    began, cpu = time.monotonic(), _cpu(await _postmaster(fleet))
    await asyncio.gather(
        *(
            _beats(pods, pod, boot, EVERY * place / number, seconds, lateness)
            for place, (pod, boot) in enumerate(zip(ids, boots, strict=True))
        )
    )
    took = time.monotonic() - began
    used = _cpu(await _postmaster(fleet)) - cpu
    view = time.monotonic()
    await fleet.app.assignments.read_view()
    return {
        "beats": len(lateness),
        "beats later than 0.5 s": sum(late > 0.5 for late in lateness),
        "latest beat, s": max(lateness),
        "Postgres, cores": used / took,
        "reading the view, s": time.monotonic() - view,
        "pods lost": number + 1 - await fleet.connection.fetchval("SELECT count(*) FROM rota.pod"),
    }


async def _register(pods: Pods, pod: UUID) -> Incarnation:
    boot = await pods.register_pod(
        PodId(pod), replaces=Incarnation(0), machine="bench", name=f"crowd-{pod.hex[:8]}", queues=["bench"],
        kinds=["wait"], capacity=256, capacities={}, zone="", version="", ttl=TTL, max_rescues=3,
    )  # fmt: skip
    assert boot.incarnation is not None
    return boot.incarnation


async def _beats(
    pods: Pods, pod: UUID, boot: Incarnation, first: float, seconds: float, lateness: list[float]
) -> None:
    report, due = Report(), time.monotonic() + first
    until = time.monotonic() + seconds
    while due < until:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        answer = await pods.beat(PodId(pod), boot, report)
        assert answer is not None
        lateness.append(time.monotonic() - due)
        busy = tuple(queue for queue, slots in answer.targets.items() if slots)
        slots = tuple(answer.targets[queue] for queue in busy)
        report = Report(answer.timeline, answer.answer, busy, slots, (0,) * len(slots), (), answer.digest)
        due += EVERY


async def _postmaster(fleet: Fleet) -> int:
    backend: int = await fleet.connection.fetchval("SELECT pg_backend_pid()")
    return _parent(backend)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _cpu(postmaster: int) -> float:
    """Seconds of CPU that the server's processes have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == postmaster:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / 100
