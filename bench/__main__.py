"""`python -m bench`: measure Rota against the ceiling and a peer, on one Postgres, in one run."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console

from bench.contenders import NAMES, at_hand, contenders
from bench.goals import judge
from bench.harness import Bench
from bench.peer import PeerMissing
from bench.process import ChildFailed
from bench.report import FILE, QUICK_FILE, print_figures, print_goals, write_file
from bench.server import Server, postgres
from bench.sizes import FULL, QUICK
from bench.works import WORKS, Work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code tells of missed goals only with --strict."""
    asked = _parse(arguments)
    if asked.list:
        print("\n".join(WORKS))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with postgres(asked.dsn) as dsn:
            return asyncio.run(_run(asked, dsn))
    except (ChildFailed, PeerMissing) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


async def _run(asked: argparse.Namespace, dsn: str) -> int:
    console = Console(width=None if sys.stdout.isatty() else 110)
    bench = Bench(
        server=Server(dsn),
        contenders=contenders(asked.contenders or (at_hand() if asked.quick else NAMES)),
        runs=asked.runs or (1 if asked.quick else 3),
        sizes=QUICK if asked.quick else FULL,
        selected=frozenset(asked.only),
        console=console,
    )
    await _introduce(bench)
    try:
        for word, measure in WORKS.items():
            if word in bench.selected:
                await _measure(bench, word, measure)
    finally:
        await bench.server.drop_all()
    file = asked.out or (QUICK_FILE if asked.quick else FILE)
    return _conclude(bench, file, strict=asked.strict)


async def _introduce(bench: Bench) -> None:
    server = await bench.server.describe()
    facts = ", ".join(f"{name} {value}" for name, value in server.items())
    bench.say(f"{facts}; {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    if "off" in (server["fsync"], server["synchronous_commit"]):
        bench.say("[red]This server does not keep what it commits: figures mean little.[/red]")


async def _measure(bench: Bench, word: str, measure: Work) -> None:
    began = time.monotonic()
    await measure(bench)
    bench.say(f"{word}: {time.monotonic() - began:.0f} s")
    print_figures(bench.console, [each for each in bench.figures.all() if each.work.startswith(word)])


def _conclude(bench: Bench, file: Path, *, strict: bool) -> int:
    verdicts = judge(bench.figures, bench.sizes)
    bench.console.rule("figures")
    print_figures(bench.console, bench.figures.all())
    bench.console.rule("goals")
    print_goals(bench.console, verdicts)
    write_file(bench.figures, verdicts, file)
    bench.say(f"written to {os.path.relpath(file)}")
    return int(strict and not all(verdict.met for verdict in verdicts))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=_words(WORKS), default=tuple(WORKS), metavar="WORD,WORD",
                        help=f"measure only these: {', '.join(WORKS)}")  # fmt: skip
    parser.add_argument("--contenders", type=_words(NAMES), metavar="NAME,NAME",
                        help=f"who takes part: {', '.join(NAMES)} "
                             "(default all; with --quick those that are installed)")  # fmt: skip
    parser.add_argument("--runs", type=int, help="runs of everything (default 3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true",
                        help="smallest sizes, to try the bench itself; the figures mean nothing")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="the figures go here (default bench/out/latest.json or quick.json)")  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--list", action="store_true", help="print the words and end")
    parser.add_argument("--dsn", default=os.environ.get("ROTA_BENCH_DSN"),
                        help="a Postgres to work on, in databases of our own (ROTA_BENCH_DSN); "
                             "default: an embedded one")  # fmt: skip
    return parser.parse_args(arguments)


def _words(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """A parser of comma-separated words out of these."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there is {', '.join(known)}")
        return words

    return parse


if __name__ == "__main__":
    sys.exit(main())
