"""What came out: a table to read, and a file to compute with."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figure, Figures
from bench.goals import Verdict

FILE = Path(__file__).parent / "out" / "latest.json"
QUICK_FILE = FILE.with_name("quick.json")
"""Small sizes prove nothing, so they do not take the place of a real run."""


def shown(value: float, unit: str) -> str:
    """A value as people read it."""
    digits = 0 if value >= 1_000 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def print_figures(console: Console, figures: list[Figure]) -> None:
    """One line for each work and contender."""
    table = Table("work", "contender", box=None, header_style="bold", pad_edge=False)
    for column in ("median", "spread", "runs"):
        table.add_column(column, justify="right")
    last = None
    for figure in figures:
        work = figure.work if figure.work != last else ""
        last = figure.work
        table.add_row(
            work,
            figure.contender,
            shown(figure.value, figure.unit),
            f"{figure.spread:.0%}",
            str(len(figure.values)),
        )
    console.print(table)


def print_goals(console: Console, verdicts: list[Verdict]) -> None:
    """One line for each goal, and how many are met."""
    table = Table("goal", box=None, header_style="bold", pad_edge=False)
    for column in ("ratio", "bar", ""):
        table.add_column(column, justify="right")
    for verdict in verdicts:
        met = "[green]met[/green]" if verdict.met else "[red]missed[/red]"
        sense = "≥" if verdict.sense == ">=" else "≤"
        table.add_row(verdict.goal, f"{verdict.ratio:.2f}", f"{sense} {verdict.bar:g}", met)
    console.print(table)
    console.print(f"{sum(verdict.met for verdict in verdicts)} of {len(verdicts)} goals met.")


def write_file(figures: Figures, verdicts: list[Verdict], file: Path) -> None:
    """The figures, then the goals, in one list; the file holds the last run."""
    entries: list[dict[str, object]] = [
        {
            "work": figure.work,
            "contender": figure.contender,
            "value": round(figure.value, 4),
            "unit": figure.unit,
            "runs": len(figure.values),
            "spread": round(figure.spread, 4),
        }
        for figure in figures.all()
    ]
    entries += [
        {
            "goal": verdict.goal,
            "ratio": round(verdict.ratio, 4),
            "bar": verdict.bar,
            "sense": verdict.sense,
            "met": verdict.met,
        }
        for verdict in verdicts
    ]
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
