"""The pods of the cluster's figures: 100 queues, and a handler that only waits."""

from __future__ import annotations

import asyncio
import os

from rota import App

QUEUES = int(os.environ.get("BENCH_QUEUES", "1"))
CAP = int(os.environ.get("BENCH_CAP", "40"))
names = [f"bench{number}" if number else "bench" for number in range(QUEUES)]

app = App(queues=names)
for name in names:
    app.queue(name, max_workers=CAP)


@app.job(queue="bench")
async def wait(seconds: float) -> None:
    """Hold a slot."""
    await asyncio.sleep(seconds)
