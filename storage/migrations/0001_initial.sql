-- The ground: queues, pods, jobs and their history, and the functions that move a job
-- through its life. A job's life reads downward: enqueue, ready_due_jobs,
-- claim_jobs, finalize_jobs; beside it release, rescue, cancel and requeue.
--
-- Every object is written rota.x; the loader puts another schema's name there when one
-- is configured. Locks are taken in the order queues, pods, jobs by id.

CREATE TYPE rota.job_state AS ENUM ('scheduled', 'ready', 'running', 'done', 'dead', 'cancelled');
CREATE TYPE rota.pod_state AS ENUM ('up', 'draining');

-- The one clock. Tests replace it; nothing else may ask for the time.
CREATE FUNCTION rota.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() $$;

-- The one channel; a notice is a word, a colon and a subject ("ready:emails").
CREATE FUNCTION rota.notice(word text, subject text) RETURNS void
LANGUAGE sql VOLATILE
AS $$ SELECT pg_notify('rota.notice', word || ':' || subject) $$;

CREATE TABLE rota.queue (
    name        text COLLATE "C" NOT NULL,
    max_workers integer NOT NULL DEFAULT 10,
    paused      boolean NOT NULL DEFAULT false,
    retry       jsonb,
    cool_until  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT rota.clock(),
    CONSTRAINT queue_name_is_unique PRIMARY KEY (name),
    CONSTRAINT queue_name_is_plain CHECK (name ~ '^[^[:cntrl:]]{1,128}$' AND name = btrim(name)),
    CONSTRAINT max_workers_is_not_negative CHECK (max_workers >= 0)
) WITH (fillfactor = 50);

-- Numbers the boots of all pods: an id that comes back after its row has gone must not be taken
-- for its earlier self, whose statements may still be under way.
CREATE SEQUENCE rota.incarnation AS integer;

CREATE TABLE rota.pod (
    id            uuid NOT NULL,
    incarnation   integer NOT NULL DEFAULT nextval('rota.incarnation'),
    least_batch   bigint NOT NULL DEFAULT 0,
    state         rota.pod_state NOT NULL DEFAULT 'up',
    expires_at    timestamptz NOT NULL,
    registered_at timestamptz NOT NULL,
    capacity      integer NOT NULL,
    name          text NOT NULL,
    zone          text NOT NULL DEFAULT '',
    version       text NOT NULL DEFAULT '',
    queues        text[] NOT NULL,
    kinds         text[] NOT NULL,
    CONSTRAINT pod_id_is_unique PRIMARY KEY (id),
    CONSTRAINT capacity_is_not_negative CHECK (capacity >= 0)
) WITH (fillfactor = 50);

COMMENT ON COLUMN rota.pod.least_batch IS
    'Claims numbered below this were given up by the pod and take nothing';

-- Waiting and running jobs only. Columns stand by falling alignment, so that a row is narrow.
-- Names and ranges are checked at the door, once per shape of a bulk and not once per row.
CREATE TABLE rota.job (
    id           bigint GENERATED ALWAYS AS IDENTITY,
    created_at   timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    claimed_at   timestamptz,
    batch        bigint,
    claim        integer NOT NULL DEFAULT 0,
    incarnation  integer,
    state        rota.job_state NOT NULL,
    timeout      real,
    priority     smallint NOT NULL DEFAULT 0,
    attempt      smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 5,
    rescues      smallint NOT NULL DEFAULT 0,
    awaited      boolean NOT NULL DEFAULT false,
    cancelling   boolean NOT NULL DEFAULT false,
    pod          uuid,
    queue        text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    payload      json NOT NULL,
    dedupe       text COLLATE "C",
    trace        text,
    note         text,
    cancel_note  text,
    tags         text[],
    progress     json,
    errors       jsonb,
    CONSTRAINT job_id_is_unique PRIMARY KEY (id),
    CONSTRAINT due_time_is_finite CHECK (isfinite(scheduled_at)),
    CONSTRAINT job_here_has_not_ended CHECK (state IN ('scheduled', 'ready', 'running')),
    CONSTRAINT running_job_has_a_pod CHECK ((state = 'running') = (pod IS NOT NULL))
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2
);

-- Kind stands before priority so that jobs of a kind a pod does not run never lie in its
-- way; -priority makes the order ascending throughout, so that a scan can start anywhere.
CREATE INDEX job_claim ON rota.job (queue, kind, (-priority), id) WHERE state = 'ready';
CREATE INDEX job_due ON rota.job (scheduled_at) WHERE state = 'scheduled';
CREATE INDEX job_running ON rota.job (pod) WHERE state = 'running';
CREATE UNIQUE INDEX job_dedupe ON rota.job (queue, dedupe) WHERE dedupe IS NOT NULL;

CREATE TABLE rota.history (
    id           bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    claimed_at   timestamptz,
    ended_at     timestamptz NOT NULL,
    claim        integer NOT NULL,
    incarnation  integer,
    state        rota.job_state NOT NULL,
    timeout      real,
    priority     smallint NOT NULL,
    attempt      smallint NOT NULL,
    max_attempts smallint NOT NULL,
    rescues      smallint NOT NULL,
    pod          uuid,
    queue        text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    payload      json NOT NULL,
    dedupe       text COLLATE "C",
    trace        text,
    note         text,
    tags         text[],
    progress     json,
    errors       jsonb,
    result       json,
    CONSTRAINT ended_job_id_is_unique PRIMARY KEY (id),
    CONSTRAINT job_here_has_ended CHECK (state IN ('done', 'dead', 'cancelled'))
);

-- Few jobs end other than done, so the operator's list of them costs next to nothing.
CREATE INDEX history_not_done ON rota.history (state, ended_at) WHERE state <> 'done';

-- ---------------------------------------------------------------- enqueue

-- What must hold of every job; refused at the door, in one sentence.
CREATE FUNCTION rota.check_job(queue text, kind text, priority integer, max_attempts integer, timeout float8)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF queue IS NULL OR queue !~ '^[^[:cntrl:]]{1,128}$' OR queue <> btrim(queue) THEN
        RAISE EXCEPTION 'A queue name must have 1 to 128 characters, no control characters and no space at its ends.'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF kind IS NULL OR kind !~ '^[^[:cntrl:]]{1,128}$' OR kind <> btrim(kind) THEN
        RAISE EXCEPTION 'A kind name must have 1 to 128 characters, no control characters and no space at its ends.'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF (priority BETWEEN -32000 AND 32000 AND max_attempts BETWEEN 1 AND 32000) IS NOT true
       OR (timeout > 0 AND timeout < 'infinity') IS false THEN
        RAISE EXCEPTION 'A job needs a priority from -32000 to 32000, 1 to 32000 attempts and a timeout above 0.'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN true;
END
$$;

CREATE FUNCTION rota.check_due(delay float8, due_at timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF (delay >= 0 AND isfinite(due_at)) IS NOT true THEN
        RAISE EXCEPTION 'A job needs a delay of 0 or more, or a finite time to run at.'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN true;
END
$$;

-- The notice that a job came in, if it is news: a ready one for whoever works the queue, a
-- scheduled one for whoever makes due jobs ready and looks at least once a minute anyway.
-- STABLE, as its parts are: declared stricter it would not be inlined, and cost more than the insert.
CREATE FUNCTION rota.enqueue_notice(queue text, due_at timestamptz, now timestamptz) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN due_at <= now THEN 'ready:' || queue
        WHEN due_at < now + interval '60 seconds' THEN 'due:' || extract(epoch FROM due_at - now)
    END
$$;

-- Enqueue one job, from any language and in the caller's own transaction. A job that waits or
-- runs with the same dedupe key stands in its way: then that one's id, and skipped.
CREATE FUNCTION rota.enqueue(
    kind         text,
    payload      json DEFAULT '{}',
    queue        text DEFAULT 'default',
    priority     integer DEFAULT 0,
    delay        interval DEFAULT '0',
    run_at       timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 5,
    timeout      float8 DEFAULT NULL,
    dedupe       text DEFAULT NULL,
    note         text DEFAULT NULL,
    tags         text[] DEFAULT NULL,
    trace        text DEFAULT NULL,
    OUT id       bigint,
    OUT skipped  boolean
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    now    timestamptz := rota.clock();
    due_at timestamptz := coalesce(run_at, now + delay);
    sound  boolean := rota.check_job(queue, kind, priority, max_attempts, timeout)
                      AND rota.check_due(extract(epoch FROM delay), due_at);
    notice text;
BEGIN
    IF length(dedupe) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'A dedupe key must have 1 to 512 characters.'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- jsonb refuses what no handler could read: NUL characters and lone surrogates.
    IF payload::jsonb IS NULL THEN
        RAISE EXCEPTION 'A job needs a payload; give the JSON value null for none.'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    FOR tries IN 1 .. 100 LOOP
        INSERT INTO rota.job AS job (created_at, scheduled_at, state, timeout, priority, max_attempts,
                                     queue, kind, payload, dedupe, note, tags, trace)
        VALUES (now, due_at, CASE WHEN due_at > now THEN 'scheduled'::rota.job_state ELSE 'ready' END,
                timeout, priority, max_attempts, queue, kind, payload, dedupe, note, tags, trace)
        ON CONFLICT DO NOTHING
        RETURNING job.id INTO id;
        IF FOUND THEN
            skipped := false;
            notice := rota.enqueue_notice(queue, due_at, now);
            IF notice IS NOT NULL THEN
                PERFORM pg_notify('rota.notice', notice);
            END IF;
            RETURN;
        END IF;
        SELECT job.id INTO id FROM rota.job WHERE job.queue = enqueue.queue AND job.dedupe = enqueue.dedupe;
        IF FOUND THEN
            skipped := true;
            RETURN;
        END IF;
        -- The other ended between the two statements, and the key is free again.
    END LOOP;
    RAISE EXCEPTION 'The dedupe key is held by a job that this transaction cannot see; try again.'
        USING ERRCODE = 'serialization_failure';
END
$$;

-- Enqueue many jobs. A shape is all that jobs of one call share; jobs name their shape by its
-- place (from 1) and bring payload and, where any has one, dedupe key. Gives the ids in the order
-- of the payloads; skipped is null when no job was, else says of each whether its id is that of
-- the other job that holds its key.
CREATE FUNCTION rota.enqueue_jobs(
    queues       text[],
    kinds        text[],
    priorities   smallint[],
    delays       float8[],
    run_ats      timestamptz[],
    max_attempts smallint[],
    timeouts     real[],
    traces       text[],
    notes        text[],
    tags         json[],
    shapes       integer[],
    payloads     json[],
    dedupes      text[] DEFAULT NULL,
    OUT ids      bigint[],
    OUT skipped  boolean[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    now    timestamptz := rota.clock();
    due_at timestamptz[];
BEGIN
    SELECT array_agg(coalesce(run_at, now + make_interval(secs => coalesce(delay, 0))) ORDER BY place)
    INTO due_at
    FROM unnest(delays, run_ats) WITH ORDINALITY AS given (delay, run_at, place);
    IF dedupes IS NOT NULL THEN
        SELECT array_agg(one.id ORDER BY place),
               CASE WHEN bool_or(one.skipped) THEN array_agg(one.skipped ORDER BY place) END
        INTO ids, skipped
        FROM unnest(shapes, payloads, dedupes) WITH ORDINALITY AS given (shape, payload, dedupe, place),
        LATERAL rota.enqueue(
            kinds[shape], payload, queues[shape], priorities[shape], '0', due_at[shape], max_attempts[shape],
            timeouts[shape], dedupe, notes[shape],
            CASE WHEN tags[shape] IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(tags[shape])) END,
            traces[shape]
        ) AS one;
        RETURN;
    END IF;

    PERFORM rota.check_job(queue, kind, priority, attempts, timeout)
    FROM (SELECT DISTINCT queue, kind, priority, attempts, timeout
          FROM unnest(queues, kinds, priorities, max_attempts, timeouts)
              AS given (queue, kind, priority, attempts, timeout)) AS shape;
    PERFORM rota.check_due(coalesce(delay, 0), due) FROM unnest(delays, due_at) AS given (delay, due);
    WITH inserted AS (
        INSERT INTO rota.job (created_at, scheduled_at, state, timeout, priority, max_attempts,
                              queue, kind, payload, trace, note, tags)
        SELECT now, due_at[shape],
               CASE WHEN due_at[shape] > now THEN 'scheduled'::rota.job_state ELSE 'ready' END,
               timeouts[shape], priorities[shape], max_attempts[shape],
               queues[shape], kinds[shape], payload, traces[shape], notes[shape],
               CASE WHEN tags[shape] IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(tags[shape])) END
        FROM unnest(shapes, payloads) AS given (shape, payload)
        RETURNING id
    )
    SELECT array_agg(id ORDER BY id) INTO ids FROM inserted;
    PERFORM pg_notify('rota.notice', notice)
    FROM (SELECT DISTINCT rota.enqueue_notice(queue, min(at), now) AS notice
          FROM unnest(queues, due_at) AS given (queue, at)
          GROUP BY queue, at <= now) AS news
    WHERE notice IS NOT NULL;
END
$$;

-- Make due jobs ready. Gives how many, and the seconds until the next one is due.
CREATE FUNCTION rota.ready_due_jobs(most integer, OUT moved bigint, OUT next_in float8)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    WITH due AS (
        UPDATE rota.job
        SET state = 'ready'
        WHERE id = ANY (ARRAY(
            SELECT id
            FROM rota.job
            WHERE state = 'scheduled' AND scheduled_at <= (SELECT rota.clock())
            ORDER BY scheduled_at
            LIMIT most
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING queue
    ), woken AS (
        SELECT queue, count(*) AS jobs FROM due GROUP BY queue
    )
    SELECT coalesce(sum(jobs), 0), NULL
    INTO moved, next_in
    FROM (SELECT jobs, rota.notice('ready', queue) FROM woken) AS told;

    SELECT extract(epoch FROM scheduled_at - rota.clock())
    INTO next_in
    FROM rota.job
    WHERE state = 'scheduled'
    ORDER BY scheduled_at
    LIMIT 1;
END
$$;

-- ---------------------------------------------------------------- claim

-- What a hint leaves to look through: all of a higher priority than it, and all from it on.
CREATE FUNCTION rota.hinted_spells(kinds text[], from_ranks integer[], from_ids bigint[])
RETURNS TABLE (kind text, from_rank integer, from_id bigint, to_rank integer)
LANGUAGE sql IMMUTABLE
AS $$
    SELECT hint.kind, -40000, 0::bigint, hint.rank
    FROM unnest(kinds, from_ranks, from_ids) AS hint (kind, rank, id)
    WHERE hint.rank > -40000
    UNION ALL
    SELECT hint.kind, hint.rank, hint.id, 40000
    FROM unnest(kinds, from_ranks, from_ids) AS hint (kind, rank, id)
$$;

-- Where a claim looks, in order: stretches of the claim index, and how many jobs to take from
-- each. With one kind that is what the hint leaves; with several it is first each kind's share
-- of the jobs at the head, then whatever is left, since others may hold what was counted. The
-- shares are counted without locks, so that every row a claim locks is one that it claims.
CREATE FUNCTION rota.claim_spells(
    this_queue text,
    most       integer,
    kinds      text[],
    from_ranks integer[],
    from_ids   bigint[]
)
RETURNS TABLE (kind text, from_rank integer, from_id bigint, to_rank integer, jobs integer)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(kinds) > 1 THEN
        RETURN QUERY
        SELECT head.kind, head.from_rank, head.from_id, head.to_rank, count(*)::integer
        FROM (
            SELECT spell.*
            FROM rota.hinted_spells(kinds, from_ranks, from_ids) AS spell,
            LATERAL (
                SELECT -priority AS rank, id
                FROM rota.job
                WHERE queue = this_queue
                  AND job.kind = spell.kind
                  AND state = 'ready'
                  AND (-priority, id) >= (spell.from_rank, spell.from_id)
                  AND -priority < spell.to_rank
                ORDER BY -priority, id
                LIMIT most
            ) AS ready
            ORDER BY ready.rank, ready.id
            LIMIT most
        ) AS head
        GROUP BY head.kind, head.from_rank, head.from_id, head.to_rank;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    RETURN QUERY
    SELECT spell.kind, spell.from_rank, spell.from_id, spell.to_rank, most
    FROM rota.hinted_spells(kinds, from_ranks, from_ids) AS spell;
END
$$;

-- Take ready jobs of one queue into a pod's empty slots: highest priority first, then oldest.
--
-- from_ranks and from_ids say, for each kind, where a scan may start (rank is -priority). They
-- are a hint that spares the dead entries an old snapshot keeps at the head of the index
-- (-40000 and 0: none); jobs of a higher priority than the hint's are always looked for from the beginning.
--
-- A pod that is not up, has expired, or gave this batch up takes nothing.
CREATE FUNCTION rota.claim_jobs(
    this_pod         uuid,
    this_incarnation integer,
    this_batch       bigint,
    this_queue       text,
    most             integer,
    kinds            text[],
    from_ranks       integer[],
    from_ids         bigint[]
)
RETURNS TABLE (
    id           bigint,
    claim        integer,
    attempt      smallint,
    max_attempts smallint,
    priority     smallint,
    waited       real,
    kind         text,
    payload      json,
    extra        json
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now     timestamptz;
    spell   record;
    got     bigint;
    wanting integer := most;
BEGIN
    PERFORM FROM rota.pod
    WHERE pod.id = this_pod
      AND incarnation = this_incarnation
      AND state = 'up'
      AND least_batch <= this_batch
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Lock first, then read the clock: the wait for the lock may outlast the pod.
    now := rota.clock();
    PERFORM
    FROM rota.pod
    LEFT JOIN rota.queue ON queue.name = this_queue
    WHERE pod.id = this_pod
      AND expires_at > now
      AND paused IS NOT true
      AND (cool_until > now) IS NOT true;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    FOR spell IN
        SELECT kind, from_rank, from_id, to_rank, jobs
        FROM rota.claim_spells(this_queue, most, kinds, from_ranks, from_ids)
    LOOP
        EXIT WHEN wanting = 0;
        RETURN QUERY
        UPDATE rota.job
        SET state = 'running',
            claim = claim + 1,
            attempt = attempt + 1,
            claimed_at = now,
            batch = this_batch,
            pod = this_pod,
            incarnation = this_incarnation
        WHERE job.id = ANY (ARRAY(
            SELECT job.id
            FROM rota.job
            WHERE queue = this_queue
              AND kind = spell.kind
              AND state = 'ready'
              AND (-priority, job.id) >= (spell.from_rank, spell.from_id)
              AND -priority < spell.to_rank
            ORDER BY -priority, job.id
            LIMIT least(spell.jobs, wanting)
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING job.id, claim, attempt, max_attempts, priority,
                  extract(epoch FROM now - scheduled_at)::real,
                  kind, payload,
                  CASE WHEN coalesce(timeout::text, trace, note, dedupe, tags::text) IS NOT NULL
                       THEN json_build_object(
                           'timeout', timeout, 'trace', trace, 'note', note, 'dedupe', dedupe, 'tags', tags)
                  END;
        GET DIAGNOSTICS got = ROW_COUNT;
        wanting := wanting - got;
    END LOOP;
END
$$;

-- ---------------------------------------------------------------- finalize

-- The error history of a job keeps the last 32.
CREATE FUNCTION rota.with_error(errors jsonb, attempt integer, error jsonb, at timestamptz) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN error IS NULL THEN errors
        WHEN jsonb_array_length(coalesce(errors, '[]')) < 32
            THEN coalesce(errors, '[]') || jsonb_build_array(
                jsonb_build_object('attempt', attempt, 'at', at) || error)
        ELSE (errors - 0) || jsonb_build_array(jsonb_build_object('attempt', attempt, 'at', at) || error)
    END
$$;

-- Write how runs of this pod ended. Done jobs come as arrays, since nearly all jobs are, with
-- ids rising: width_bucket then finds a job's claim and result by binary search, and no join
-- is there to be planned badly while statistics lag behind a burst. A job has a pod exactly
-- while it runs, so asking for the pod asks for the state too (and asking for the state would
-- let the planner walk the running index instead of the ids).
-- Every other outcome comes as an object {id, claim, outcome, delay, error, result} where outcome is
-- dead, cancelled, retry, release or throttle. A run this pod no longer owns is left alone and
-- its id is given back: it has ended already, or was given to another.
CREATE FUNCTION rota.finalize_jobs(
    this_pod         uuid,
    this_incarnation integer,
    done             bigint[],
    claims           integer[],
    results          json[],
    others           jsonb
)
RETURNS bigint[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now     timestamptz := rota.clock();
    written bigint;
    wanted  bigint := coalesce(cardinality(done), 0) + coalesce(jsonb_array_length(others), 0);
    awaited bigint;
    settled bigint[] := '{}';
BEGIN
    IF cardinality(done) > 0 THEN
        WITH ended AS (
            DELETE FROM rota.job
            WHERE id = ANY (done)
              AND claim = claims[width_bucket(id, done)]
              AND pod = this_pod
              AND incarnation = this_incarnation
            RETURNING job.*, results[width_bucket(id, done)] AS result
        ), kept AS (
            INSERT INTO rota.history (id, created_at, scheduled_at, claimed_at, ended_at, claim, incarnation, state,
                                      timeout, priority, attempt, max_attempts, rescues, pod, queue, kind, payload,
                                      dedupe, trace, note, tags, progress, errors, result)
            SELECT id, created_at, scheduled_at, claimed_at, now, claim, incarnation, 'done',
                   timeout, priority, attempt, max_attempts, rescues, pod, queue, kind, payload,
                   dedupe, trace, note, tags, progress, errors, result
            FROM ended
        )
        SELECT count(*), count(CASE WHEN awaited THEN rota.notice('ended', id::text)::text END)
        INTO written, awaited
        FROM ended;
        wanted := wanted - written;
    END IF;
    IF jsonb_array_length(others) > 0 THEN
        settled := rota.finalize_others(this_pod, this_incarnation, others);
        wanted := wanted - cardinality(settled);
    END IF;
    IF wanted = 0 THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        (SELECT unnest(done) EXCEPT SELECT id FROM rota.history WHERE id = ANY (done) AND ended_at = now)
        UNION ALL
        SELECT (run ->> 'id')::bigint FROM jsonb_array_elements(others) AS run
        WHERE (run ->> 'id')::bigint <> ALL (settled)
    );
END
$$;

-- Keep a job that ended other than done; its row has just been deleted from the hot table.
CREATE FUNCTION rota.keep_ended(
    job rota.job, ended_as rota.job_state, at timestamptz, error jsonb DEFAULT NULL, result json DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    told jsonb := error;
BEGIN
    IF ended_as = 'cancelled' AND job.cancel_note IS NOT NULL THEN
        told := coalesce(error, '{"type": "Cancelled"}') || jsonb_build_object('message', job.cancel_note);
    END IF;
    INSERT INTO rota.history (id, created_at, scheduled_at, claimed_at, ended_at, claim, incarnation, state,
                              timeout, priority, attempt, max_attempts, rescues, pod, queue, kind, payload,
                              dedupe, trace, note, tags, progress, errors, result)
    VALUES (job.id, job.created_at, job.scheduled_at, job.claimed_at, at, job.claim, job.incarnation, ended_as,
            job.timeout, job.priority, job.attempt, job.max_attempts, job.rescues, job.pod, job.queue, job.kind,
            job.payload, job.dedupe, job.trace, job.note, job.tags, job.progress,
            rota.with_error(job.errors, job.attempt, told, at), result);
    IF job.awaited THEN
        PERFORM rota.notice('ended', job.id::text);
    END IF;
    RETURN job.id;
END
$$;

-- The outcomes other than done. A job whose cancel was asked for never goes back to waiting.
CREATE FUNCTION rota.finalize_others(this_pod uuid, this_incarnation integer, others jsonb)
RETURNS bigint[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now      timestamptz := rota.clock();
    -- Beside the join, so that a plan made while the table was small cannot read all of it.
    ids      bigint[] := ARRAY(SELECT (run ->> 'id')::bigint FROM jsonb_array_elements(others) AS run);
    ended    bigint[];
    back     bigint[];
    woken    text[];
    next_due timestamptz;
BEGIN
    WITH run AS (
        SELECT id, claim, outcome, error, result
        FROM jsonb_to_recordset(others) AS run (id bigint, claim integer, outcome text, error jsonb, result json)
    ), gone AS (
        DELETE FROM rota.job
        USING run
        WHERE job.id = ANY (ids)
          AND job.id = run.id
          AND job.claim = run.claim
          AND pod = this_pod
          AND incarnation = this_incarnation
          AND (run.outcome IN ('dead', 'cancelled') OR cancelling)
        RETURNING job, run.outcome, run.error, run.result
    )
    SELECT array_agg(rota.keep_ended(
        job, CASE outcome WHEN 'dead' THEN 'dead'::rota.job_state ELSE 'cancelled' END, now, error, result))
    INTO ended
    FROM gone;

    WITH run AS (
        SELECT id, claim, outcome, delay, error
        FROM jsonb_to_recordset(others) AS run (id bigint, claim integer, outcome text, delay float8, error jsonb)
    ), returned AS (
        UPDATE rota.job
        SET state = CASE WHEN delay > 0 THEN 'scheduled'::rota.job_state ELSE 'ready' END,
            scheduled_at = now + make_interval(secs => coalesce(delay, 0)),
            attempt = CASE WHEN outcome = 'retry' THEN attempt ELSE attempt - 1 END,
            errors = rota.with_error(errors, attempt, error, now),
            pod = NULL,
            incarnation = NULL,
            batch = NULL,
            claimed_at = NULL
        FROM run
        WHERE job.id = ANY (ids)
          AND job.id = run.id
          AND job.claim = run.claim
          AND pod = this_pod
          AND incarnation = this_incarnation
          AND run.outcome IN ('retry', 'release', 'throttle')
        RETURNING job.id, queue, outcome, delay, state, scheduled_at
    ), cooled AS (
        UPDATE rota.queue
        SET cool_until = greatest(cool_until, now + make_interval(secs => hot.delay))
        FROM (SELECT queue, max(delay) AS delay FROM returned WHERE outcome = 'throttle' GROUP BY queue) AS hot
        WHERE name = hot.queue
    )
    SELECT array_agg(id),
           array_agg(DISTINCT queue) FILTER (WHERE state = 'ready'),
           min(scheduled_at) FILTER (WHERE state = 'scheduled')
    INTO back, woken, next_due
    FROM returned;

    PERFORM rota.notice('ready', queue) FROM unnest(woken) AS ready (queue);
    IF next_due < now + interval '60 seconds' THEN
        PERFORM rota.notice('due', round(extract(epoch FROM next_due - now)::numeric, 3)::text);
    END IF;
    RETURN coalesce(ended, '{}') || coalesce(back, '{}');
END
$$;

-- Finalize the last batch and claim the next in one round trip. A run that was not ours to
-- finalize comes back as a row without a kind.
CREATE FUNCTION rota.work_jobs(
    this_pod         uuid,
    this_incarnation integer,
    this_batch       bigint,
    this_queue       text,
    most             integer,
    kinds            text[],
    from_ranks       integer[],
    from_ids         bigint[],
    done             bigint[],
    claims           integer[],
    results          json[],
    others           jsonb
)
RETURNS TABLE (
    id           bigint,
    claim        integer,
    attempt      smallint,
    max_attempts smallint,
    priority     smallint,
    waited       real,
    kind         text,
    payload      json,
    extra        json
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    -- Pods before jobs, as everywhere.
    PERFORM FROM rota.pod WHERE pod.id = this_pod FOR KEY SHARE;
    RETURN QUERY
    SELECT lost, NULL::integer, NULL::smallint, NULL::smallint, NULL::smallint, NULL::real, NULL, NULL::json, NULL::json
    FROM unnest(rota.finalize_jobs(this_pod, this_incarnation, done, claims, results, others)) AS lost;
    RETURN QUERY
    SELECT *
    FROM rota.claim_jobs(
        this_pod, this_incarnation, this_batch, this_queue, most, kinds, from_ranks, from_ids);
END
$$;

-- ---------------------------------------------------------------- operators

-- Cancel a job: a waiting one at once, a running one by asking its pod to stop it.
-- Gives cancelled, requested, ended (it had already) or missing.
CREATE FUNCTION rota.cancel_job(this_job bigint, reason text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    job   rota.job;
    ended boolean;
BEGIN
    LOOP
        SELECT * INTO job FROM rota.job WHERE id = this_job FOR UPDATE;
        EXIT WHEN FOUND;
        -- It may have moved while we looked; one snapshot of both places knows.
        SELECT ended_at IS NOT NULL INTO ended FROM rota.any_job WHERE id = this_job;
        IF NOT FOUND THEN
            RETURN 'missing';
        ELSIF ended THEN
            RETURN 'ended';
        END IF;
    END LOOP;
    IF job.state = 'running' THEN
        UPDATE rota.job SET cancelling = true, cancel_note = reason WHERE id = this_job AND NOT cancelling;
        PERFORM rota.notice('cancel', job.pod::text || ':' || this_job);
        RETURN 'requested';
    END IF;
    DELETE FROM rota.job WHERE id = this_job;
    PERFORM rota.keep_ended(job, 'cancelled', rota.clock(),
                            jsonb_build_object('type', 'Cancelled', 'message', coalesce(reason, 'cancelled')));
    RETURN 'cancelled';
END
$$;

-- Bring an ended job back, with all its attempts before it, or make a scheduled one ready now.
-- Gives ready, running (nothing to do), missing, or skipped with the job that holds its key.
CREATE FUNCTION rota.retry_job(this_job bigint, OUT outcome text, OUT other bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    ended rota.history;
BEGIN
    LOOP
        DELETE FROM rota.history WHERE id = this_job RETURNING * INTO ended;
        IF FOUND THEN
            INSERT INTO rota.job (id, created_at, scheduled_at, claim, state, timeout, priority, attempt, max_attempts,
                                  queue, kind, payload, dedupe, trace, note, tags, errors)
            OVERRIDING SYSTEM VALUE
            VALUES (ended.id, ended.created_at, rota.clock(), ended.claim, 'ready', ended.timeout, ended.priority, 0,
                    ended.max_attempts, ended.queue, ended.kind, ended.payload, ended.dedupe, ended.trace, ended.note,
                    ended.tags, ended.errors)
            ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                INSERT INTO rota.history SELECT ended.*;
                SELECT id INTO other FROM rota.job WHERE queue = ended.queue AND dedupe = ended.dedupe;
                -- Without another, the key was freed meanwhile.
                CONTINUE WHEN NOT FOUND;
                outcome := 'skipped';
                RETURN;
            END IF;
        END IF;
        UPDATE rota.job
        SET state = 'ready', scheduled_at = rota.clock()
        WHERE id = this_job AND state = 'scheduled';
        SELECT CASE WHEN state = 'running' THEN 'running' ELSE 'ready' END
        INTO outcome
        FROM rota.job
        WHERE id = this_job;
        EXIT WHEN FOUND;
        -- It may have moved while we looked; one snapshot of both places knows.
        IF NOT EXISTS (SELECT FROM rota.any_job WHERE id = this_job) THEN
            outcome := 'missing';
            RETURN;
        END IF;
    END LOOP;
    IF outcome = 'ready' THEN
        PERFORM rota.notice('ready', queue) FROM rota.job WHERE id = this_job;
    END IF;
END
$$;

-- ---------------------------------------------------------------- pods

-- Make running jobs whose pod (in that incarnation) has no row ready again: by state, not by
-- event, so that a rescue that failed half-way is done by the next. The attempt counts,
-- but for pods named in given_back, which were draining. A job that keeps losing its pod is dead.
CREATE FUNCTION rota.rescue_jobs(most integer, most_rescues integer, given_back uuid[] DEFAULT '{}')
RETURNS TABLE (id bigint, state rota.job_state)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now  timestamptz;
    lost bigint[];
BEGIN
    lost := ARRAY(
        SELECT job.id
        FROM rota.job
        WHERE job.state = 'running'
          AND NOT EXISTS (SELECT FROM rota.pod WHERE pod.id = job.pod AND pod.incarnation = job.incarnation)
        ORDER BY job.id
        LIMIT most
        FOR UPDATE SKIP LOCKED
    );
    -- Lock first, then look at the pods again: the first look may have been too early to see the
    -- pod that has claimed a job since another rescued it.
    lost := ARRAY(
        SELECT job.id
        FROM rota.job
        WHERE job.id = ANY (lost)
          AND NOT EXISTS (SELECT FROM rota.pod WHERE pod.id = job.pod AND pod.incarnation = job.incarnation)
    );
    IF cardinality(lost) = 0 THEN
        RETURN;
    END IF;
    now := rota.clock();

    RETURN QUERY
    WITH gone AS (
        DELETE FROM rota.job
        WHERE job.id = ANY (lost)
          AND (cancelling
               OR rescues + 1 >= most_rescues
               OR (attempt >= max_attempts AND pod <> ALL (given_back)))
        RETURNING job, CASE WHEN cancelling THEN 'cancelled'::rota.job_state ELSE 'dead' END AS ended_as
    )
    SELECT rota.keep_ended(
               job, ended_as, now,
               jsonb_build_object('type', 'PodLost', 'message', 'pod lost', 'pod', (job).pod)),
           ended_as
    FROM gone;

    RETURN QUERY
    WITH rescued AS (
        UPDATE rota.job
        SET state = 'ready',
            attempt = attempt - (pod = ANY (given_back))::integer,
            rescues = rescues + 1,
            errors = rota.with_error(
                errors, attempt, jsonb_build_object('type', 'PodLost', 'message', 'pod lost', 'pod', pod), now),
            pod = NULL,
            incarnation = NULL,
            batch = NULL,
            claimed_at = NULL
        WHERE job.id = ANY (lost)
        RETURNING job.id, queue
    ), told AS (
        SELECT count(rota.notice('ready', queue)::text) FROM (SELECT DISTINCT queue FROM rescued) AS woken
    )
    SELECT rescued.id, 'ready'::rota.job_state FROM rescued, told;
END
$$;

-- Register a boot of a pod; a later incarnation retires the earlier and recovers its jobs at once.
CREATE FUNCTION rota.register_pod(
    this_pod      uuid,
    this_name     text,
    this_queues   text[],
    this_kinds    text[],
    this_capacity integer,
    this_zone     text,
    this_version  text,
    ttl           float8,
    most_rescues  integer
)
RETURNS integer
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    booted  integer;
    drained uuid[] := '{}';
BEGIN
    -- An upsert locks the row as UPDATE does, which lets claims pass; the retired boot's must not.
    SELECT CASE WHEN state = 'draining' THEN ARRAY[id] ELSE '{}' END
    INTO drained
    FROM rota.pod
    WHERE id = this_pod
    FOR UPDATE;
    INSERT INTO rota.pod AS earlier (id, name, queues, kinds, capacity, zone, version, registered_at, expires_at)
    VALUES (this_pod, this_name, this_queues, this_kinds, this_capacity, this_zone, this_version,
            rota.clock(), rota.clock() + make_interval(secs => ttl))
    ON CONFLICT (id) DO UPDATE
    SET incarnation = excluded.incarnation,
        least_batch = 0,
        state = 'up',
        name = excluded.name,
        queues = excluded.queues,
        kinds = excluded.kinds,
        capacity = excluded.capacity,
        zone = excluded.zone,
        version = excluded.version,
        registered_at = excluded.registered_at,
        expires_at = excluded.expires_at
    RETURNING incarnation INTO booted;
    PERFORM rota.rescue_jobs(1000, most_rescues, coalesce(drained, '{}'));
    RETURN booted;
END
$$;

-- A pod's one periodic round trip: renew the row, hear what is new. No row back: the pod
-- has expired; a row without a state: a later boot has retired it.
CREATE FUNCTION rota.beat(this_pod uuid, this_incarnation integer, ttl float8)
RETURNS TABLE (state rota.pod_state, cancels bigint[], ready text[], queues jsonb)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    me rota.pod;
BEGIN
    SELECT * INTO me FROM rota.pod WHERE id = this_pod FOR NO KEY UPDATE;
    IF me.incarnation > this_incarnation THEN
        RETURN QUERY SELECT NULL::rota.pod_state, NULL::bigint[], NULL::text[], NULL::jsonb;
        RETURN;
    END IF;
    IF me.id IS NULL OR me.incarnation <> this_incarnation OR me.expires_at <= rota.clock() THEN
        RETURN;
    END IF;
    UPDATE rota.pod SET expires_at = rota.clock() + make_interval(secs => ttl) WHERE id = this_pod;

    RETURN QUERY
    SELECT me.state,
           ARRAY(SELECT id FROM rota.job WHERE pod = this_pod AND state = 'running' AND cancelling),
           ARRAY(
               SELECT served.queue
               FROM unnest(me.queues) AS served (queue)
               WHERE EXISTS (
                   SELECT
                   FROM unnest(me.kinds) AS known (kind),
                   LATERAL (
                       SELECT
                       FROM rota.job
                       WHERE job.queue = served.queue AND job.kind = known.kind AND state = 'ready'
                       LIMIT 1
                   ) AS first
               )
           ),
           (SELECT jsonb_object_agg(
                name,
                jsonb_build_object('max_workers', max_workers, 'paused', paused, 'retry', retry))
            FROM rota.queue
            WHERE name = ANY (me.queues));
END
$$;

-- The pod claims nothing new from here on.
CREATE FUNCTION rota.drain_pod(this_pod uuid, this_incarnation integer) RETURNS boolean
LANGUAGE sql
AS $$
    WITH told AS (
        UPDATE rota.pod SET state = 'draining' WHERE id = this_pod AND incarnation = this_incarnation RETURNING id
    )
    SELECT EXISTS (SELECT FROM told)
$$;

-- Leave for good, unless jobs still run here: then the row must expire, and they are rescued.
CREATE FUNCTION rota.leave_pod(this_pod uuid, this_incarnation integer) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM rota.pod WHERE id = this_pod AND incarnation = this_incarnation FOR UPDATE;
    IF NOT FOUND OR EXISTS (SELECT FROM rota.job WHERE pod = this_pod AND state = 'running') THEN
        RETURN false;
    END IF;
    DELETE FROM rota.pod WHERE id = this_pod;
    RETURN true;
END
$$;

-- Remove pods whose time has run out, and rescue every job that has no pod.
CREATE FUNCTION rota.expire_pods(most_rescues integer, OUT expired uuid[], OUT rescued bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    drained uuid[];
    moved   bigint;
BEGIN
    WITH late AS (
        SELECT id FROM rota.pod WHERE expires_at <= rota.clock() ORDER BY id FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM rota.pod USING late WHERE pod.id = late.id RETURNING pod.id, pod.state
    )
    SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(id) FILTER (WHERE state = 'draining'), '{}')
    INTO expired, drained
    FROM gone;
    rescued := 0;
    LOOP
        SELECT count(*) INTO moved FROM rota.rescue_jobs(1000, most_rescues, drained);
        rescued := rescued + moved;
        -- Only now is it known who was draining: what is left for the next sweep loses its attempt.
        EXIT WHEN moved < 1000 OR drained = '{}';
    END LOOP;
END
$$;

-- Settle claims whose answer never came. Any claim numbered below next_batch takes nothing from
-- now on; jobs that such a claim did take, in batches the pod does not know, go back to waiting
-- with the attempt returned. FOR UPDATE waits for claims that are being executed this instant,
-- so nothing can slip in behind it, however long a cut-off statement lingers in the server.
CREATE FUNCTION rota.settle_batches(this_pod uuid, this_incarnation integer, next_batch bigint, known bigint[])
RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    gone     rota.job;
    released bigint;
BEGIN
    PERFORM FROM rota.pod WHERE id = this_pod AND incarnation = this_incarnation FOR UPDATE;
    UPDATE rota.pod
    SET least_batch = next_batch
    WHERE id = this_pod AND incarnation = this_incarnation AND least_batch < next_batch;

    FOR gone IN
        DELETE FROM rota.job
        WHERE pod = this_pod AND state = 'running' AND incarnation = this_incarnation
          AND batch < next_batch AND batch <> ALL (known) AND cancelling
        RETURNING *
    LOOP
        PERFORM rota.keep_ended(gone, 'cancelled', rota.clock());
    END LOOP;

    WITH returned AS (
        UPDATE rota.job
        SET state = 'ready',
            attempt = attempt - 1,
            pod = NULL,
            incarnation = NULL,
            batch = NULL,
            claimed_at = NULL
        WHERE pod = this_pod AND state = 'running' AND incarnation = this_incarnation
          AND batch < next_batch AND batch <> ALL (known)
        RETURNING queue
    )
    SELECT coalesce(sum(jobs), 0)
    INTO released
    FROM (SELECT count(*) AS jobs, rota.notice('ready', queue) FROM returned GROUP BY queue) AS told;
    RETURN released;
END
$$;

-- ---------------------------------------------------------------- reading

-- A job wherever it is; one statement, one snapshot, so that it is always in exactly one place.
CREATE VIEW rota.any_job AS
SELECT id, created_at, scheduled_at, claimed_at, NULL::timestamptz AS ended_at, claim, incarnation, state,
       timeout, priority, attempt, max_attempts, rescues, cancelling, pod, queue, kind, payload, dedupe, trace,
       note, tags, progress, errors, NULL::json AS result
FROM rota.job
UNION ALL
SELECT id, created_at, scheduled_at, claimed_at, ended_at, claim, incarnation, state,
       timeout, priority, attempt, max_attempts, rescues, false, pod, queue, kind, payload, dedupe, trace,
       note, tags, progress, errors, result
FROM rota.history;

CREATE FUNCTION rota.read_job(this_job bigint) RETURNS SETOF rota.any_job
LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
    SELECT any_job.*
    FROM rota.any_job
    WHERE id = this_job
$$;

-- Ask that the end of a job be told; only awaited jobs notify.
CREATE FUNCTION rota.await_job(this_job bigint) RETURNS void
LANGUAGE sql
SET enable_seqscan = off
AS $$
    UPDATE rota.job
    SET awaited = true
    WHERE id = this_job
      AND NOT awaited
$$;

-- Progress of runs that are still this pod's.
CREATE FUNCTION rota.write_progress(
    this_pod uuid, this_incarnation integer, jobs bigint[], claims integer[], progresses json[]
)
RETURNS void
LANGUAGE sql
SET enable_seqscan = off
AS $$
    UPDATE rota.job
    SET progress = told.progress
    FROM unnest(jobs, claims, progresses) AS told (id, claim, progress)
    WHERE job.id = ANY (jobs)
      AND job.id = told.id
      AND job.claim = told.claim
      AND job.pod = this_pod
      AND job.incarnation = this_incarnation
$$;
