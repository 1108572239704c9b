"""Draws a picture: tables that change in place on a terminal, one plain line a second elsewhere."""

from __future__ import annotations

import io
from collections import deque
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota.cli.output import plain
from rota.demo.picture import Picture, QueueLine, SlotCell

BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 60
"""Readings that the throughput's little chart shows."""

BAR = 16
"""Columns of the bar that shows how full a pod's slots are."""

LAST_WORDS = 4
"""Lines of the pods' own output that are kept on the screen."""


class View(Protocol):
    """Where pictures go; `every` is how many seconds to leave between two."""

    every: float

    def draw(self, picture: Picture) -> None: ...
    def hear(self, line: str) -> None: ...
    def close(self) -> None: ...


class Lines:
    """One plain line per picture; what pods say goes to stderr as it comes."""

    every = 1.0

    def __init__(self, out: TextIO, heard: TextIO) -> None:
        self._out = out
        self._heard = heard

    def draw(self, picture: Picture) -> None:
        print(plain_line(picture), file=self._out, flush=True)

    def hear(self, line: str) -> None:
        print(plain(line), file=self._heard, flush=True)

    def close(self) -> None:
        """Nothing is left on a screen."""


class Screen:
    """Tables that change in place."""

    every = 0.5

    def __init__(self, title: str) -> None:
        self._title = title
        self._rates: deque[float] = deque(maxlen=HISTORY)
        self._heard: deque[str] = deque(maxlen=LAST_WORDS)
        console = Console(markup=False, emoji=False, highlight=False)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def draw(self, picture: Picture) -> None:
        self._rates.append(picture.total.rate)
        self._live.update(self._render(picture), refresh=True)

    def hear(self, line: str) -> None:
        self._heard.append(plain(line))

    def close(self) -> None:
        self._live.stop()

    def _render(self, picture: Picture) -> RenderableType:
        parts: list[RenderableType] = [Text(f"{self._title}   {picture.seconds:.0f}s", style="bold"), Text()]
        parts += [queue_table(picture), Text(), pod_table(picture), Text(), _throughput(picture, self._rates)]
        parts += [
            Text(plain(plan), style="cyan", no_wrap=True, overflow="ellipsis") for plan in picture.plans
        ]
        if picture.trouble:
            parts.append(Text(picture.trouble, style="red"))
        parts += [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._heard]
        return Group(*parts, Text("Ctrl-C stops all of it", style="dim"))


class Heard(io.StringIO):
    """A stream whose lines a view hears: the demo's own log must not be written across its tables."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def write(self, text: str) -> int:
        if first := text.strip().partition("\n")[0]:
            self._view.hear(first)
        return len(text)


def plain_line(picture: Picture) -> str:
    """A picture in one line."""
    total = picture.total
    told = (
        f"{picture.seconds:4.0f}s  enqueued {picture.enqueued}  ready {total.ready}  "
        f"scheduled {total.scheduled}  running {total.running}  done {total.done} ({total.rate:.1f}/s)  "
        f"retried {total.retried}  dead {total.dead}  pods {len(picture.pods)}  "
        f"slots {picture.slots.running}/{picture.slots.target}"
    )
    return f"{told}  {picture.trouble}" if picture.trouble else told


def queue_table(picture: Picture) -> Table:
    """The queues, and all of them together."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("queue", min_width=10)
    for name in ("workers", "ready", "scheduled", "running", "done", "done/s", "retried", "dead"):
        table.add_column(name, justify="right", min_width=7)
    for queue in picture.queues:
        table.add_row(*_queue_cells(queue))
    table.add_row(*_queue_cells(picture.total), style="bold")
    return table


def pod_table(picture: Picture) -> Table:
    """The pods and the rota: of each queue what runs there, of how many slots, and what is still held."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("pod", min_width=10)
    table.add_column("pid", justify="right", min_width=6)
    table.add_column("state", min_width=8)
    for queue in picture.queues:
        table.add_column(plain(queue.name), justify="right", min_width=7)
    table.add_column("slots", justify="right", min_width=7)
    table.add_column("", min_width=BAR)
    table.add_column("done/s", justify="right", min_width=6)
    for pod in picture.pods:
        table.add_row(
            plain(pod.name),
            "" if pod.pid is None else str(pod.pid),
            "leader" if pod.leads and pod.state == "up" else pod.state,
            *(_slots(pod.cells.get(queue.name)) for queue in picture.queues),
            _slots(pod.total),
            _bar(pod.total),
            f"{pod.rate:.1f}",
        )
    return table


def _queue_cells(queue: QueueLine) -> list[str]:
    numbers = (queue.max_workers, queue.ready, queue.scheduled, queue.running, queue.done)
    return [
        plain(queue.name),
        *(str(number) for number in numbers),
        f"{queue.rate:.1f}",
        str(queue.retried),
        str(queue.dead),
    ]


def _slots(cell: SlotCell | None) -> str:
    """Running of slots; what has to be given back when its jobs end stands behind a minus."""
    if cell is None:
        return ""
    giving = f" -{cell.held - cell.target}" if cell.held > cell.target else ""
    return f"{cell.running}/{cell.target}{giving}"


def _bar(cell: SlotCell) -> Text:
    used = min(BAR, round(BAR * cell.running / cell.target)) if cell.target else 0
    return Text.assemble(("█" * used, "green"), ("░" * (BAR - used), "dim"))


def _throughput(picture: Picture, rates: deque[float]) -> Text:
    most = max(rates, default=0.0) or 1.0
    chart = "".join(BARS[round(rate / most * (len(BARS) - 1))] for rate in rates)
    return Text.assemble(("jobs/s ", "bold"), f"{picture.total.rate:.1f} ", (chart, "green"))
