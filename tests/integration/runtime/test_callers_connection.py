"""Enqueue on a connection that is the caller's own, as the caller has set it up."""

from __future__ import annotations

import json
import sqlite3

import asyncpg
import pytest
from pydantic import BaseModel

from rota import App, BadInput, Handler
from tests.support.pods import QUEUE


class Email(BaseModel):
    to: str


@pytest.fixture
def send(app: App) -> Handler[Email]:
    @app.job(queue=QUEUE)
    async def send(email: Email) -> None: ...

    return send


async def test_a_codec_of_the_callers_own_for_json_does_not_change_what_is_stored(
    app: App, send: Handler[Email], connection: asyncpg.Connection
) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    async with app:
        one = await send.enqueue(Email(to="a"), connection=connection, tags=["x"])
        keyed = await send.enqueue(Email(to="b"), connection=connection, dedupe="b")
        many = await app.enqueue_many(
            [send.request(Email(to=to), tags=["y"]) for to in "cd"], connection=connection
        )
        rows = [await job.status() for job in (one, keyed, *many)]
    assert [row.payload for row in rows] == [{"to": to} for to in "abcd"]
    assert [row.tags for row in rows] == [("x",), (), ("y",), ("y",)]


async def test_a_connection_that_is_not_asyncpgs_is_refused_in_one_sentence(
    app: App, send: Handler[Email]
) -> None:
    async with app:
        with pytest.raises(BadInput, match=r"A sqlite3\.Connection was given .* rota\.enqueue on yours"):
            await send.enqueue(Email(to="a"), connection=sqlite3.connect(":memory:"))
