"""Feeds the demo: so many jobs a second, drawn by chance from all the demo's kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from rota import App
from rota.clock import Clock
from rota.demo.jobs import Email, Image, Report, build_report, echo, resize_image, send_email, send_reminder
from rota.errors import DatabaseUnavailable
from rota.storage.rows import Request

ROUND = 0.2
"""Seconds between two bulk enqueues."""

NAMES = ("ada", "blaise", "carl", "dorothy", "emmy", "felix", "grace", "hedy")


class Feeder:
    """Enqueues at an even rate; what could not be enqueued is not made up for."""

    def __init__(self, app: App, rate: float, chance: Random, clock: Clock) -> None:
        self._app = app
        self._rate = rate
        self._chance = chance
        self._clock = clock
        self.enqueued = 0

    async def run(self) -> None:
        """Feed until cancelled."""
        owed, last = 0.0, self._clock.monotonic()
        while True:
            await asyncio.sleep(ROUND)
            now = self._clock.monotonic()
            owed, last = owed + self._rate * (now - last), now
            count = int(owed)
            owed -= count
            await self._feed(count)

    async def _feed(self, count: int) -> None:
        requests = [draw(self._chance) for _ in range(count)]
        try:
            self.enqueued += len(await self._app.enqueue_many(requests)) if requests else 0
        except DatabaseUnavailable:
            return


def draw(chance: Random) -> Request:
    """One job, of a kind drawn by its share."""
    (kind,) = chance.choices(list(SHARES), list(SHARES.values()))
    return kind(chance)


def _mail(chance: Random) -> Request:
    failures = chance.choices((0, 1, 2, 4), (90, 6, 3, 1))[0]
    return send_email.request(_email(chance, "Welcome", failures), priority=chance.choice((0, 0, 0, 5)))


def _reminder(chance: Random) -> Request:
    return send_reminder.request(_email(chance, "Do not forget"), delay=chance.uniform(1, 8))


def _email(chance: Random, subject: str, failures: int = 0) -> Email:
    name = chance.choice(NAMES)
    seconds = chance.uniform(0.05, 0.35)
    return Email(to=f"{name}@example.org", subject=f"{subject}, {name}", seconds=seconds, failures=failures)


def _report(chance: Random) -> Request:
    return build_report.request(Report(customer=chance.choice(NAMES), pages=chance.randint(2, 8)))


def _image(chance: Random) -> Request:
    width = 0 if chance.random() < 0.02 else 1920
    name = f"{chance.choice(NAMES)}-{chance.randrange(1000)}.png"
    return resize_image.request(Image(name=name, width=width, height=1080, seconds=chance.uniform(0.1, 0.4)))


def _echo(chance: Random) -> Request:
    return echo.request({"number": chance.randrange(1000)})


SHARES: dict[Callable[[Random], Request], int] = {
    _mail: 50,
    _reminder: 10,
    _report: 10,
    _image: 20,
    _echo: 10,
}
