"""Runs the demo: pods, feeder and view side by side, until the time is up or someone says stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from rota import App
from rota.cli.session import watch_server
from rota.cli.signals import stop_on_signals
from rota.demo.crew import Crew, worker_command, worker_environment
from rota.demo.display import View
from rota.demo.feeder import Feeder
from rota.demo.jobs import QUEUES
from rota.demo.picture import Picture, Rows, Speed, done_by_name, pod_lines, queue_lines
from rota.errors import DatabaseUnavailable
from rota.storage.embedded import EmbeddedServer

PLANS = 4
"""Of the leader's plans so many are shown."""

REPORT = 0.5
"""Seconds between two reports of a pod."""


@dataclass(frozen=True, slots=True)
class Play:
    """What was asked for."""

    pods: int
    rate: float
    length: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """How it went."""

    seconds: float
    pods: int
    enqueued: int
    done: int
    retried: int
    dead: int
    waiting: int
    jobs_per_second: float

    def sentence(self) -> str:
        pods = "1 pod" if self.pods == 1 else f"{self.pods} pods"
        return (
            f"Ran {self.seconds:.1f} s with {pods}: {self.enqueued} jobs enqueued, {self.done} done "
            f"({self.jobs_per_second:.1f}/s), {self.retried} retried, {self.dead} dead, "
            f"{self.waiting} still waiting."
        )


async def perform(app: App, play: Play, view: View, server: EmbeddedServer | None) -> Summary:
    """Run it all to the end; every pod has ended when this returns or raises."""
    command = worker_command("rota.demo:app", tuple(QUEUES), REPORT)
    crew = Crew(play.pods, command, worker_environment(app.settings.database.url or ""), view.hear)
    async with app:
        await app.migrate()
        stage = Stage(app, play, view, crew)
        with stop_on_signals(lambda number: crew.kill()) as stop:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch_server(server))
                await stage.run(stop)
                watching.cancel()
        return stage.summary()


class Stage:
    """The demo while it runs."""

    def __init__(self, app: App, play: Play, view: View, crew: Crew) -> None:
        self._app = app
        self._play = play
        self._view = view
        self._crew = crew
        self._clock = app.clock
        self._began = self._clock.monotonic()
        self._feeder = Feeder(app, play.rate, Random(), self._clock)
        self._speed = Speed()
        self._rows = Rows()
        self._trouble: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Begin when a pod is up; feed and draw until told to stop; then let the pods drain."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self._crew.run(stop))
            await any_of(self._crew.up, stop)
            self._began = self._clock.monotonic()
            drawing = group.create_task(self._draw())
            feeding = group.create_task(self._feeder.run())
            await any_of(stop, within=self._play.length)
            stop.set()
            feeding.cancel()
            await working
            drawing.cancel()
        self._view.draw(await self._picture())

    def summary(self) -> Summary:
        """All that happened, once it is over."""
        picture = self._last
        total = picture.total
        return Summary(
            seconds=round(picture.seconds, 3),
            pods=self._play.pods,
            enqueued=picture.enqueued,
            done=total.done,
            retried=total.retried,
            dead=total.dead,
            waiting=total.ready + total.scheduled,
            jobs_per_second=round(total.done / max(picture.seconds, 0.001), 1),
        )

    async def _draw(self) -> None:
        while True:
            self._view.draw(await self._picture())
            await asyncio.sleep(self._view.every)

    async def _picture(self) -> Picture:
        await self._read()
        now, reports = self._clock.monotonic(), self._crew.reports
        self._speed.see(now, done_by_name(reports))
        self._last = Picture(
            now - self._began,
            self._feeder.enqueued,
            queue_lines(self._rows, reports, self._speed),
            pod_lines(self._rows, reports, self._speed),
            self._trouble,
            [f"{plan.at.astimezone():%H:%M:%S} {plan.sentence}" for plan in self._rows.plans],
        )
        return self._last

    async def _read(self) -> None:
        """What the database says; while it does not answer, what it said last."""
        try:
            self._rows = Rows(
                await self._app.jobs.count_jobs(),
                await self._app.queues.list_queues(),
                await self._app.pods.list_pods(),
                await self._app.assignments.list_assignments(),
                await self._app.assignments.list_plans(most=PLANS),
            )
            self._trouble = None
        except DatabaseUnavailable as error:
            self._trouble = str(error)


async def any_of(*events: asyncio.Event, within: float | None = None) -> None:
    """Wait until one of them is set, or the time is up."""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
