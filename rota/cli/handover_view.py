"""A change of a cap for people: how far it has come, how it ended, and what it would come to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota.cli.durations import say_duration
from rota.cli.options import Aim
from rota.cli.output import plain, say
from rota.cluster.handover import Rehearsal, Standing
from rota.runtime.queues import HandOver

MOST_PODS = 20
"""Lines of the live table."""

See = Callable[[HandOver], None]


@contextmanager
def shown(aim: Aim, *, quiet: bool) -> Iterator[See]:
    """Something to show looks to, while waiting: a table that changes, or lines where nobody looks."""
    settled = aim is Aim.SETTLED
    if quiet:
        yield lambda now: None
    elif sys.stderr.isatty():
        out = Console(stderr=True, markup=False, emoji=False, highlight=False)
        with Live(console=out, auto_refresh=False, transient=True) as live:
            yield lambda now: live.update(hand_over_table(now), refresh=True)
    else:
        yield _lines(settled)


def _lines(settled: bool) -> See:
    said: list[str] = []

    def see(now: HandOver) -> None:
        line = hand_over_line(now)
        if not now.over(settled) and said[-1:] != [line]:
            said.append(line)
            say(line)

    return see


def hand_over_line(now: HandOver) -> str:
    """How far it has come, in one line."""
    where = now.standing
    state = "in force" if now.in_force else "not in force yet"
    return f"{_cap(now)} {state}, {where.held} slots held: {where.left()}."


def hand_over_table(now: HandOver) -> RenderableType:
    """The same with who holds what."""
    where = now.standing
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pod", "target", "held", ""):
        table.add_column(name, justify="right" if name in ("target", "held") else "left")
    for holder in where.holders[:MOST_PODS]:
        note = (
            "silent" if holder.silent else f"giving back {holder.giving_back}" if holder.giving_back else ""
        )
        table.add_row(plain(holder.name), str(holder.target), str(holder.held), note)
    more = len(where.holders) - MOST_PODS
    rest = [Text(f"and {more} more pods", style="dim")] if more > 0 else []
    return Group(Text(plain(hand_over_line(now)), style="bold"), table, *rest)


def outcome(now: HandOver, aim: Aim | None) -> str:
    """What has come of a change, when it was waited for or right after it was asked for."""
    where = now.standing
    if now.in_force:
        state = f"in force{_when(now, now.took, aim)}"
        if aim is Aim.SETTLED and not where.deserted:
            state += f", settled{_when(now, now.age, aim)}"
    else:
        state = "asked for, not in force yet"
    notes = [f"{_cap(now)} {state}", *_notes(now, aim)]
    return "; ".join(notes) + "."


def _when(now: HandOver, seconds: float, aim: Aim | None) -> str:
    if aim is None or now.change.id is None:
        return ""
    return f" after {say_duration(seconds)}" if seconds else " at once"


def _notes(now: HandOver, aim: Aim | None) -> Iterator[str]:
    where = now.standing
    busy = sum(holder.giving_back for holder in where.holders if not holder.silent)
    if not now.in_force:
        yield where.left()
    elif busy and where.held > where.queue.cap:
        yield f"{busy} {'slot is' if busy == 1 else 'slots are'} still busy with what runs"
    if where.shortage is not None:
        yield where.shortage
    if where.queue.paused:
        yield f"max_workers is {where.queue.max_workers}"
    if not now.in_force and where.deserted:
        yield "the next pod takes them back, or rota rescue"
    elif not now.in_force and aim is None:
        yield "--wait waits for it"


def hand_over_json(now: HandOver) -> dict[str, Any]:
    """The same for machines."""
    where = now.standing
    return {
        "queue": now.change.queue,
        "max_workers": where.queue.max_workers,
        "paused": where.queue.paused,
        "cap": now.change.cap,
        "change": now.change.id,
        "in_force": now.in_force,
        "took": now.took,
        "settled": now.settled,
        **_standing_json(where),
        "slots": [
            {"pod": str(holder.pod), "name": holder.name, "target": holder.target, "held": holder.held}
            for holder in where.holders
        ],
    }


def rehearsal_table(plan: Rehearsal) -> RenderableType:
    """What a resize would come to: the plan in words, and slots by pod before and after."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pod", "now", "held", "then"):
        table.add_column(name, justify="left" if name == "pod" else "right")
    for move in plan.moves:
        table.add_row(plain(move.name), *map(str, (move.before, move.held, move.after)))
    shortage = plan.standing.shortage
    ends = [Text(f"Short: {shortage}.")] if shortage else []
    return Group(Text(f"Dry run, nothing is changed. {plain(plan.sentence)}"), table, *ends)


def rehearsal_json(plan: Rehearsal) -> dict[str, Any]:
    """The same for machines."""
    queue = plan.standing.queue
    return {
        "queue": queue.name,
        "dry_run": True,
        "max_workers": queue.max_workers,
        "paused": queue.paused,
        "cap": queue.cap,
        "sentence": plan.sentence,
        **_standing_json(plan.standing),
        "slots": [{**move._asdict(), "pod": str(move.pod)} for move in plan.moves],
    }


def _standing_json(where: Standing) -> dict[str, Any]:
    return {
        "granted": where.granted,
        "held": where.held,
        "grantable": where.grantable,
        "pods": where.serving,
        "short": where.shortage,
    }


def _cap(now: HandOver) -> str:
    queue = now.standing.queue
    paused = " is paused:" if queue.paused else ":"
    return f'Queue "{queue.name}"{paused} cap {now.change.cap}'
