"""A recorder in the test's own database, past Rota: it writes down when runs begin and end.

Triggers append to a table of their own, in the transaction that they watch, so that a fact is there
exactly if what it tells was committed. What counts is the commit, which a trigger cannot know; the
server does, with track_commit_timestamp, and a row's xmin leads to it.

Are those instants exact? The server reads its clock on the way to the commit, before the change can
be seen by anyone. Whoever acts because of the change acts later, and reads the same clock later for
its own commit: cause and effect never change places. So a start that waited for an end, however
many pods and beats lay between, has the later instant (or the same, which the judge lets pass), and
a correct run is never accused. A start that did *not* wait has an instant of its own, before or
after the end as it happened, to a few microseconds: two commits that pass the clock one way round
and become visible the other way round are one instant to everybody else.

The caps are those of rota.cap_change, as promise 1 says. Their instants are read inside the
transaction, before its commit and with the queue's row locked. A lowered cap therefore counts a
little too early, which is the strict side; it must hold there, since all that may run was bounded
before. A raised one counts early by the length of one short statement, before anybody can know of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

from rota.chaos.history import CapChange, Claimed, Ended, Fact, Freed, Gone

SERVER = {"track_commit_timestamp": "on"}
"""The setting that the recorder's server needs; it can only be given at its start."""

INSTALL = """
CREATE SCHEMA recorder;

CREATE TABLE recorder.fact (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what        text NOT NULL,
    job         bigint,
    claim       integer,
    queue       text,
    pod         text,
    incarnation integer,
    state       text,
    attempt     integer,
    rescues     integer,
    told        integer,
    expires_at  timestamptz,
    draining    boolean,
    replaced    boolean
);

CREATE FUNCTION recorder.watch_job() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    ran  boolean := TG_OP <> 'INSERT' AND OLD.state = 'running';
    runs boolean := TG_OP <> 'DELETE' AND NEW.state = 'running';
    same boolean := ran AND runs
                    AND (OLD.claim, OLD.pod, OLD.incarnation) = (NEW.claim, NEW.pod, NEW.incarnation);
BEGIN
    IF ran AND NOT same THEN
        INSERT INTO recorder.fact (what, job, claim) VALUES ('freed', OLD.id, OLD.claim);
    END IF;
    IF runs AND NOT same THEN
        INSERT INTO recorder.fact (what, job, claim, queue, pod, incarnation)
        VALUES ('claimed', NEW.id, NEW.claim, NEW.queue, NEW.pod, NEW.incarnation);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION recorder.watch_history() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO recorder.fact (what, job, state, claim, attempt, rescues, told)
    VALUES ('ended', NEW.id, NEW.state, NEW.claim, NEW.attempt, NEW.rescues, (NEW.result #>> '{}')::integer);
    RETURN NULL;
END
$$;

CREATE FUNCTION recorder.watch_pod() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO recorder.fact (what, pod, incarnation, expires_at, draining, replaced)
    VALUES ('gone', OLD.id, OLD.incarnation, OLD.expires_at, OLD.state = 'draining', TG_OP = 'UPDATE');
    RETURN NULL;
END
$$;

CREATE TRIGGER recorder AFTER INSERT OR UPDATE OR DELETE ON rota.job
FOR EACH ROW EXECUTE FUNCTION recorder.watch_job();
CREATE TRIGGER recorder AFTER INSERT ON rota.history
FOR EACH ROW EXECUTE FUNCTION recorder.watch_history();
CREATE TRIGGER recorder_of_boots AFTER UPDATE ON rota.pod
FOR EACH ROW WHEN (OLD.incarnation <> NEW.incarnation) EXECUTE FUNCTION recorder.watch_pod();
CREATE TRIGGER recorder_of_ends AFTER DELETE ON rota.pod
FOR EACH ROW EXECUTE FUNCTION recorder.watch_pod();
"""


async def install(dsn: str) -> None:
    """Have it record in this database from now on."""
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("SHOW track_commit_timestamp") == "on"
        await connection.execute(INSTALL)
    finally:
        await connection.close()


async def read_facts(connection: asyncpg.Connection) -> tuple[Fact, ...]:
    """What was recorded, in the order in which it was written."""
    rows = await connection.fetch(
        """
        SELECT *,
               (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint AS at,
               (extract(epoch FROM expires_at) * 1000000)::bigint AS expiry
        FROM recorder.fact
        ORDER BY id
        """
    )
    return tuple(_facts(rows))


async def read_changes(connection: asyncpg.Connection) -> tuple[CapChange, ...]:
    """Every cap that was asked for, in that order."""
    rows = await connection.fetch(
        """
        SELECT queue, cap,
               (extract(epoch FROM asked_at) * 1000000)::bigint AS asked_at,
               (extract(epoch FROM in_force_at) * 1000000)::bigint AS in_force_at
        FROM rota.cap_change
        ORDER BY id
        """
    )
    return tuple(CapChange(**row) for row in rows)


def _facts(rows: Iterable[Any]) -> Iterable[Fact]:
    for row in rows:
        match row["what"]:
            case "claimed":
                yield Claimed(
                    row["at"], row["job"], row["claim"], row["queue"], row["pod"], row["incarnation"]
                )
            case "freed":
                yield Freed(row["at"], row["job"], row["claim"])
            case "gone":
                yield Gone(
                    row["at"],
                    row["pod"],
                    row["incarnation"],
                    row["expiry"],
                    row["draining"],
                    row["replaced"],
                )
            case "ended":
                yield Ended(
                    row["at"],
                    row["job"],
                    row["state"],
                    row["claim"],
                    row["attempt"],
                    row["rescues"],
                    row["told"],
                )
