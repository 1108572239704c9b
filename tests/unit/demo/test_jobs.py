"""The demo's jobs do as they are told, and the feeder draws only what they accept."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

from rota import Dead
from rota.demo.feeder import SHARES, draw
from rota.demo.jobs import QUEUES, Email, Image, Report, app, build_report, echo, resize_image, send_email

MAIL = Email(to="ada@example.org", subject="hi", seconds=0, failures=2)


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_mail_fails_as_often_as_it_says(attempt: int) -> None:
    with pytest.raises(ConnectionError, match=r"ada@example\.org"):
        await send_email(SimpleNamespace(attempt=attempt), MAIL)


async def test_a_mail_is_sent_at_last() -> None:
    assert await send_email(SimpleNamespace(attempt=3), MAIL) is None


async def test_a_report_tells_its_progress_and_has_a_result() -> None:
    told: list[float] = []
    ctx = SimpleNamespace(progress=lambda done, note: told.append(done))
    result = await build_report(ctx, Report(customer="ada", pages=2, seconds_per_page=0))
    assert (result, told) == ({"customer": "ada", "pages": 2}, [0.0, 0.5])


def test_an_image_is_halved() -> None:
    image = Image(name="a.png", width=640, height=480, seconds=0)
    assert resize_image(image) == {"name": "a.png", "width": 320, "height": 240}


def test_an_image_without_pixels_is_dead() -> None:
    with pytest.raises(Dead, match=r"a\.png has no pixels"):
        resize_image(Image(name="a.png", width=0, height=480))


async def test_an_echo_gives_back_what_it_was_given() -> None:
    assert await echo({"a": 1}) == {"a": 1}


def test_every_queue_of_the_demo_is_declared_and_fed() -> None:
    chance = Random(1)
    drawn = Counter(draw(chance).shape.queue for _ in range(500))
    assert set(drawn) == set(QUEUES) == set(app.declared_queues)


def test_every_kind_of_the_demo_is_fed() -> None:
    chance = Random(1)
    assert {draw(chance).shape.kind for _ in range(500)} == set(app.handlers)
    assert len(SHARES) == len(app.handlers)


def test_reminders_are_scheduled_and_some_mails_fail() -> None:
    chance = Random(1)
    drawn = [draw(chance) for _ in range(3000)]
    assert all(request.shape.delay >= 1 for request in drawn if request.shape.kind == "send_reminder")
    mails = [Email.model_validate_json(r.payload) for r in drawn if r.shape.kind == "send_email"]
    assert {mail.failures for mail in mails} == {0, 1, 2, 4}
