"""Keeping pods as child processes; here a few lines of Python play the pods."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from rota.cli.report import PodReport, QueueReport
from rota.demo.crew import Crew, PodNotStarted

REPORT = PodReport("1", "rota-1", 4711, {"emails": QueueReport(5, 1, {"done": 3})})
TELL = f"print({REPORT.line()!r}, flush=True)"
# As `rota worker --owned` does: ends with its owner, and drains when asked.
SERVE = f"import sys; {TELL}; sys.stdin.read()"


class Heard(list[str]):
    """What the pods said, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.append(line)
        self.news.set()


def crew(heard: Heard, script: str, size: int = 1) -> Crew:
    return Crew(size, (sys.executable, "-c", script), os.environ, heard)


async def test_pods_are_asked_to_drain_and_their_last_report_is_kept() -> None:
    pods, stop = crew(Heard(), SERVE, size=2), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pods.run(stop))
        await pods.up.wait()
        stop.set()
    assert pods.reports
    assert all(report == REPORT for report in pods.reports)


async def test_a_pod_that_ends_on_its_own_is_replaced() -> None:
    heard = Heard()
    pods, stop = crew(heard, TELL), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pods.run(stop))
        while len(pods.reports) < 2:
            heard.news.clear()
            await heard.news.wait()
        stop.set()
    assert "A pod ended with exit code 0; another takes its place." in heard


async def test_a_pod_that_never_came_up_ends_it_with_its_last_words() -> None:
    pods = crew(Heard(), "import sys; sys.exit('no such queue')")
    with pytest.raises(ExceptionGroup) as failed:
        await pods.run(asyncio.Event())
    assert failed.group_contains(PodNotStarted, match="exit code 1 before it was up: no such queue")


async def test_what_is_no_report_is_heard_and_not_taken_for_one() -> None:
    heard = Heard()
    pods, stop = crew(heard, f"print('hello'); {SERVE}"), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pods.run(stop))
        await pods.up.wait()
        stop.set()
    assert "hello" in heard


async def test_pods_that_do_not_listen_can_be_killed() -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVE}"
    pods, stop = crew(Heard(), deaf), asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(pods.run(stop))
        await pods.up.wait()
        stop.set()
        pods.kill()
