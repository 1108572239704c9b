"""The demo's app: mails, reports and images that take their time, and fail as they are told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pydantic import BaseModel

from rota import App, Context, Dead, Exponential

QUEUES = {"emails": 20, "reports": 10, "images": 8, "default": 10}
"""Each queue with its max_workers."""

app = App()
for _queue, _workers in QUEUES.items():
    app.queue(_queue, max_workers=_workers)


class Email(BaseModel):
    """A mail whose server answers after some seconds, and fails the first so many times."""

    to: str
    subject: str
    seconds: float = 0.1
    failures: int = 0


class Report(BaseModel):
    """A report, built page by page."""

    customer: str
    pages: int
    seconds_per_page: float = 0.2


class Image(BaseModel):
    """An image to be resized; one without pixels cannot be."""

    name: str
    width: int
    height: int
    seconds: float = 0.2


@app.job(queue="emails", max_attempts=4, timeout=30, retry=Exponential(base=0.5))
async def send_email(ctx: Context, email: Email) -> None:
    """Fails and is retried when the mail says so."""
    await asyncio.sleep(email.seconds)
    if ctx.attempt <= email.failures:
        raise ConnectionError(f"the mail server of {email.to} hung up")


@app.job(queue="emails", timeout=30)
async def send_reminder(email: Email) -> None:
    """Enqueued now, due later."""
    await asyncio.sleep(email.seconds)


@app.job(queue="reports", max_attempts=3, timeout=60)
async def build_report(ctx: Context, report: Report) -> dict[str, Any]:
    """Tells its progress and has a result."""
    for page in range(report.pages):
        ctx.progress(page / report.pages, f"page {page + 1} of {report.pages}")
        await asyncio.sleep(report.seconds_per_page)
    return {"customer": report.customer, "pages": report.pages}


@app.job(queue="images", timeout=30)
def resize_image(image: Image) -> dict[str, Any]:
    """A plain function, run on a thread."""
    if image.width <= 0 or image.height <= 0:
        raise Dead(f"{image.name} has no pixels")
    time.sleep(image.seconds)
    return {"name": image.name, "width": image.width // 2, "height": image.height // 2}


@app.job(queue="default")
async def echo(payload: Any) -> Any:
    """Does nothing and gives back what it was given."""
    return payload
