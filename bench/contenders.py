"""Who takes part: Rota, the ceiling, and PgQueuer, the fastest Python peer we measured."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peer import is_installed, pgqueuer_python
from bench.stores import PgQueuerStore, RotaStore, Store
from bench.words import CEILING, PGQUEUER, ROTA
from rota.settings import PodSettings
from rota.storage.queries import queries

NAMES = (ROTA, CEILING, PGQUEUER)
SLOTS = 256
"""max_workers of the queue, for Rota and for the ceiling; PgQueuer has its own best batch."""
LANES = PodSettings().lanes
PGQUEUER_DRAINS = {"batch": 1_000, "pool": 5}
PGQUEUER_WAITS = {"batch": 1_000, "pool": 1}
"""By sweeps: a pool drains some 5 to 10 % faster, one connection picks up some 15 % sooner."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One that takes part: its tables, and the program that is its pod and its producer."""

    name: str
    store: Store
    python: Path
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What its program is told beside what all are told."""
    idle_options: Mapping[str, Any] = field(default_factory=dict)
    """The same where what counts is how soon an idle pod picks up a job."""


def at_hand() -> tuple[str, ...]:
    """Those that need no installing."""
    return NAMES if is_installed() else (ROTA, CEILING)


def contenders(names: Iterable[str]) -> list[Contender]:
    """Those named, in the order in which they take turns."""
    ours = Path(sys.executable)
    wanted, found = set(names), []
    if ROTA in wanted:
        found.append(Contender(ROTA, RotaStore(), ours, "bench.pods.rota_pod"))
    if CEILING in wanted:
        sql = {"sql": queries("rota")}
        found.append(Contender(CEILING, RotaStore(), ours, "bench.pods.ceiling_pod", sql))
    if PGQUEUER in wanted:
        peer = pgqueuer_python()
        tables, module = PgQueuerStore(peer), "bench.pods.pgqueuer_pod"
        found.append(Contender(PGQUEUER, tables, peer, module, PGQUEUER_DRAINS, PGQUEUER_WAITS))
    return found
