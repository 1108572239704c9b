-- The schema as all migrations leave it, to read and to compare; nothing executes this file.
-- Written by `python -m tests.support.snapshot`; a test says when it is not true.

CREATE TYPE rota.job_state AS ENUM ('scheduled', 'ready', 'running', 'done', 'dead', 'cancelled');

CREATE TYPE rota.pod_state AS ENUM ('up', 'draining');

CREATE SEQUENCE rota.incarnation AS integer;

CREATE TABLE rota.assignment (
    queue text COLLATE "C" NOT NULL,
    pod uuid NOT NULL,
    target integer NOT NULL,
    held integer NOT NULL,
    acting integer NOT NULL,
    CONSTRAINT assignment_is_of_a_pod FOREIGN KEY (pod) REFERENCES rota.pod(id) ON DELETE CASCADE,
    CONSTRAINT assignment_is_of_a_queue FOREIGN KEY (queue) REFERENCES rota.queue(name),
    CONSTRAINT assignment_is_one_per_pod_and_queue PRIMARY KEY (pod, queue),
    CONSTRAINT pod_acts_within_what_is_held CHECK (((target <= acting) AND (acting <= held))),
    CONSTRAINT target_is_within_what_is_held CHECK (((0 <= target) AND (target <= held)))
) WITH (
    fillfactor=50
);

CREATE TABLE rota.cap_change (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    queue text COLLATE "C" NOT NULL,
    cap integer NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    in_force_at timestamp with time zone,
    CONSTRAINT cap_change_id_is_unique PRIMARY KEY (id)
);

CREATE TABLE rota.history (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    claim integer NOT NULL,
    incarnation integer,
    state rota.job_state NOT NULL,
    timeout real,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    max_attempts smallint NOT NULL,
    rescues smallint NOT NULL,
    pod uuid,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload json NOT NULL,
    dedupe text COLLATE "C",
    trace text,
    note text,
    tags text[],
    progress json,
    errors jsonb,
    result json,
    CONSTRAINT ended_job_id_is_unique PRIMARY KEY (id),
    CONSTRAINT job_here_has_ended CHECK ((state = ANY (ARRAY['done'::rota.job_state, 'dead'::rota.job_state, 'cancelled'::rota.job_state])))
);

CREATE TABLE rota.job (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    batch bigint,
    claim integer NOT NULL DEFAULT 0,
    incarnation integer,
    state rota.job_state NOT NULL,
    timeout real,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 5,
    rescues smallint NOT NULL DEFAULT 0,
    awaited boolean NOT NULL DEFAULT false,
    cancelling boolean NOT NULL DEFAULT false,
    pod uuid,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    payload json NOT NULL,
    dedupe text COLLATE "C",
    trace text,
    note text,
    cancel_note text,
    tags text[],
    progress json,
    errors jsonb,
    alone boolean NOT NULL DEFAULT false,
    CONSTRAINT due_time_is_finite CHECK (isfinite(scheduled_at)),
    CONSTRAINT job_here_has_not_ended CHECK ((state = ANY (ARRAY['scheduled'::rota.job_state, 'ready'::rota.job_state, 'running'::rota.job_state]))),
    CONSTRAINT job_id_is_unique PRIMARY KEY (id),
    CONSTRAINT running_job_has_a_pod CHECK (((state = 'running'::rota.job_state) = (pod IS NOT NULL)))
) WITH (
    autovacuum_analyze_scale_factor=0.2,
    autovacuum_vacuum_cost_delay=0,
    autovacuum_vacuum_scale_factor=0.01,
    autovacuum_vacuum_threshold=5000,
    fillfactor=80
);

CREATE TABLE rota.lease (
    name text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    timeline integer NOT NULL DEFAULT 0,
    ttl double precision NOT NULL DEFAULT 0,
    expires_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
    holder uuid,
    CONSTRAINT lease_name_is_unique PRIMARY KEY (name)
) WITH (
    fillfactor=50
);

CREATE TABLE rota.migration (
    version integer NOT NULL,
    name text NOT NULL,
    serves integer NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    digest text,
    CONSTRAINT migration_version_is_unique PRIMARY KEY (version)
);

CREATE TABLE rota.plan (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at timestamp with time zone NOT NULL,
    epoch bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    granted integer NOT NULL,
    revoked integer NOT NULL,
    cause text NOT NULL,
    sentence text NOT NULL,
    CONSTRAINT plan_id_is_unique PRIMARY KEY (id)
);

CREATE TABLE rota.pod (
    id uuid NOT NULL,
    incarnation integer NOT NULL DEFAULT nextval('rota.incarnation'::regclass),
    least_batch bigint NOT NULL DEFAULT 0,
    state rota.pod_state NOT NULL DEFAULT 'up'::rota.pod_state,
    expires_at timestamp with time zone NOT NULL,
    registered_at timestamp with time zone NOT NULL,
    capacity integer NOT NULL,
    name text NOT NULL,
    zone text NOT NULL DEFAULT ''::text,
    version text NOT NULL DEFAULT ''::text,
    queues text[] NOT NULL,
    kinds text[] NOT NULL,
    answer bigint NOT NULL DEFAULT 0,
    timeline integer NOT NULL DEFAULT 0,
    ttl double precision NOT NULL DEFAULT 10,
    machine text NOT NULL DEFAULT ''::text,
    capacities jsonb NOT NULL DEFAULT '{}'::jsonb,
    CONSTRAINT capacity_is_not_negative CHECK ((capacity >= 0)),
    CONSTRAINT pod_id_is_unique PRIMARY KEY (id)
) WITH (
    fillfactor=50
);

CREATE TABLE rota.queue (
    name text COLLATE "C" NOT NULL,
    max_workers integer NOT NULL DEFAULT 10,
    paused boolean NOT NULL DEFAULT false,
    retry jsonb,
    cool_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL DEFAULT rota.clock(),
    CONSTRAINT max_workers_is_not_negative CHECK ((max_workers >= 0)),
    CONSTRAINT queue_name_is_plain CHECK (((name ~ '^[^[:cntrl:]]{1,128}$'::text) AND (name = btrim(name)))),
    CONSTRAINT queue_name_is_unique PRIMARY KEY (name)
) WITH (
    fillfactor=50
);

CREATE TABLE rota.server (
    only_row boolean NOT NULL DEFAULT true,
    timeline integer NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    ttl double precision NOT NULL DEFAULT 0,
    CONSTRAINT server_has_one_row PRIMARY KEY (only_row),
    CONSTRAINT server_row_is_the_only_one CHECK (only_row)
) WITH (
    fillfactor=50
);

CREATE INDEX assignment_queue ON rota.assignment USING btree (queue);

CREATE INDEX cap_change_queue ON rota.cap_change USING btree (queue, id);

CREATE INDEX history_not_done ON rota.history USING btree (state, ended_at) WHERE (state <> 'done'::rota.job_state);

CREATE INDEX job_alone ON rota.job USING btree (queue, kind, id) WHERE ((state = 'ready'::rota.job_state) AND alone);

CREATE INDEX job_claim ON rota.job USING btree (queue, kind, ((- priority)), id) WHERE (state = 'ready'::rota.job_state);

CREATE UNIQUE INDEX job_dedupe ON rota.job USING btree (queue, dedupe) WHERE (dedupe IS NOT NULL);

CREATE INDEX job_due ON rota.job USING btree (scheduled_at) WHERE (state = 'scheduled'::rota.job_state);

CREATE INDEX job_running ON rota.job USING btree (pod) WHERE (state = 'running'::rota.job_state);

CREATE INDEX plan_queue ON rota.plan USING btree (queue, id);

CREATE OR REPLACE FUNCTION rota.await_job(this_job bigint)
 RETURNS void
 LANGUAGE sql
 SET enable_seqscan TO 'off'
AS $function$
    UPDATE rota.job
    SET awaited = true
    WHERE id = this_job
      AND NOT awaited
$function$
;

CREATE OR REPLACE FUNCTION rota.beat(this_pod uuid, this_incarnation integer, heard bigint, heard_on integer, busy text[], acts integer[], uses integer[], sharing text[], knows text)
 RETURNS TABLE(state rota.pod_state, answer bigint, timeline integer, targeted text[], targets integer[], cancels bigint[], ready text[], lone bigint, lone_queue text, settings text, digest text, leader uuid, lease_in double precision)
 LANGUAGE plpgsql
 SET lock_timeout TO '5s'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    unsure  boolean := rota.settling();
    line    integer := rota.timeline();
    latest  boolean;
    me      rota.pod;
    lowered boolean := false;
    now     timestamptz;
BEGIN
    IF cardinality(sharing) > 0 THEN
        PERFORM FROM rota.queue WHERE name = ANY (sharing) ORDER BY name FOR NO KEY UPDATE;
    END IF;
    SELECT * INTO me FROM rota.pod WHERE id = this_pod FOR NO KEY UPDATE;
    IF me.incarnation > this_incarnation THEN
        RETURN QUERY SELECT NULL::rota.pod_state, NULL::bigint, NULL::integer, NULL::text[], NULL::integer[],
                            NULL::bigint[], NULL::text[], NULL::bigint, NULL, NULL, NULL, NULL::uuid, NULL::float8;
        RETURN;
    END IF;
    IF me.id IS NULL OR me.incarnation <> this_incarnation
       OR (me.expires_at <= rota.clock() AND me.timeline = line) THEN
        RETURN;
    END IF;
    latest := heard_on = line AND me.timeline = line AND heard = me.answer;
    UPDATE rota.pod
    SET expires_at = rota.clock() + make_interval(secs => ttl),
        answer = me.answer + 1,
        timeline = line
    WHERE id = this_pod;

    IF heard_on <> line THEN
        -- A server that knows less than the pod was told, or as much: it only learns.
        INSERT INTO rota.assignment AS row (queue, pod, target, held, acting)
        SELECT queue, this_pod, 0, greatest(acts, uses), acts
        FROM unnest(busy, acts, uses) AS said (queue, acts, uses)
        JOIN rota.queue ON name = queue
        WHERE greatest(acts, uses) > 0
        ORDER BY queue
        ON CONFLICT (pod, queue) DO UPDATE
        SET held = greatest(row.held, excluded.held),
            acting = greatest(row.acting, excluded.acting);
    ELSIF latest THEN
        PERFORM
        FROM rota.assignment
        WHERE pod = this_pod
          AND (held > greatest(target, acts[array_position(busy, queue)], uses[array_position(busy, queue)])
               OR acting > greatest(target, acts[array_position(busy, queue)]))
        ORDER BY queue
        FOR NO KEY UPDATE;
        IF FOUND THEN
            -- A later statement, so that it sees what a plan wrote while the lock was waited for.
            UPDATE rota.assignment
            SET held = least(
                    held, greatest(target, acts[array_position(busy, queue)], uses[array_position(busy, queue)])),
                acting = least(acting, greatest(target, acts[array_position(busy, queue)]))
            WHERE pod = this_pod
              AND (held > greatest(target, acts[array_position(busy, queue)], uses[array_position(busy, queue)])
                   OR acting > greatest(target, acts[array_position(busy, queue)]));
            lowered := FOUND;
        END IF;
    END IF;
    IF cardinality(sharing) > 0 AND NOT unsure AND me.state = 'up' THEN
        PERFORM rota.take_share(me, queue)
        FROM unnest(sharing) AS wish (queue)
        WHERE NOT EXISTS (SELECT FROM rota.assignment WHERE pod = this_pod AND assignment.queue = wish.queue)
        ORDER BY queue;
    END IF;
    IF lowered THEN
        PERFORM rota.notice('plan', 'slots were given back');
    END IF;

    settings := (
        SELECT jsonb_object_agg(
            name, jsonb_build_object('max_workers', max_workers, 'paused', paused, 'retry', retry))::text
        FROM rota.queue
        WHERE name = ANY (me.queues));
    digest := hashtextextended(settings, 0)::text;
    now := rota.clock();
    RETURN QUERY
    SELECT me.state, me.answer + 1, line,
           (SELECT array_agg(queue ORDER BY queue) FROM rota.assignment WHERE pod = this_pod),
           (SELECT array_agg(target ORDER BY queue) FROM rota.assignment WHERE pod = this_pod),
           ARRAY(SELECT id FROM rota.job WHERE pod = this_pod AND state = 'running' AND cancelling),
           ARRAY(
               SELECT served.queue
               FROM unnest(me.queues) AS served (queue)
               WHERE EXISTS (
                   SELECT
                   FROM unnest(me.kinds) AS mine (kind),
                   LATERAL (
                       SELECT
                       FROM rota.job
                       WHERE job.queue = served.queue AND job.kind = mine.kind AND state = 'ready' AND NOT alone
                       LIMIT 1
                   ) AS first
               )
           ),
           alone.job, alone.queue,
           CASE WHEN digest IS DISTINCT FROM knows THEN settings END,
           digest,
           lease.holder,
           least(lease.ttl, extract(epoch FROM greatest(expires_at, now) - now)::float8)
    FROM rota.lease
    LEFT JOIN rota.lone_job(me) AS alone ON true
    WHERE name = 'leader';
END
$function$
;

CREATE OR REPLACE FUNCTION rota.cancel_job(this_job bigint, reason text DEFAULT NULL::text)
 RETURNS text
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.cap_holds(this_queue text, cap bigint)
 RETURNS boolean
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(sum(held), 0) <= cap OR (max(acting) = 0)
    FROM rota.assignment
    WHERE queue = this_queue
$function$
;

CREATE OR REPLACE FUNCTION rota.change_queue(this_queue text, workers integer, pause boolean, policy jsonb)
 RETURNS TABLE(change bigint, cap integer, in_force boolean)
 LANGUAGE plpgsql
 SET lock_timeout TO '5s'
AS $function$
#variable_conflict use_column
DECLARE
    unsure boolean := rota.settling();
    was    rota.queue;
    force  integer;
    now    timestamptz;
BEGIN
    SELECT * INTO was FROM rota.queue WHERE name = this_queue FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    now := rota.clock();
    UPDATE rota.queue
    SET max_workers = coalesce(workers, max_workers),
        paused = coalesce(pause, paused),
        retry = nullif(coalesce(policy, retry), 'null')
    WHERE name = this_queue
    RETURNING CASE WHEN paused THEN 0 ELSE max_workers END INTO cap;
    IF policy IS NOT NULL THEN
        -- Policies travel with beats, and no plan will ask for one.
        PERFORM rota.nudge(ARRAY(SELECT id FROM rota.pod WHERE this_queue = ANY (queues)));
    END IF;
    IF cap = (was.max_workers * (NOT was.paused)::integer) THEN
        in_force := NOT EXISTS (
            SELECT FROM rota.cap_change WHERE id = (SELECT max(id) FROM rota.cap_change WHERE queue = this_queue)
                                          AND in_force_at IS NULL);
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT made.cap INTO force
    FROM rota.cap_change AS made
    WHERE made.queue = this_queue AND in_force_at IS NOT NULL
    ORDER BY made.id DESC
    LIMIT 1;
    in_force := cap >= coalesce(force, was.max_workers * (NOT was.paused)::integer)
                OR (NOT unsure AND rota.cap_holds(this_queue, cap));
    INSERT INTO rota.cap_change AS made (queue, cap, asked_at, in_force_at)
    VALUES (this_queue, cap, now, CASE WHEN in_force THEN now END)
    RETURNING made.id INTO change;
    PERFORM rota.notice('plan', this_queue || ' was '
        || CASE WHEN pause IS NULL OR pause = was.paused THEN 'resized' WHEN pause THEN 'paused' ELSE 'resumed' END);
    RETURN NEXT;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.check_due(delay double precision, due_at timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
BEGIN
    IF (delay >= 0 AND isfinite(due_at)) IS NOT true THEN
        RAISE EXCEPTION 'A job needs a delay of 0 or more, or a finite time to run at.'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN true;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.check_job(queue text, kind text, priority integer, max_attempts integer, timeout double precision)
 RETURNS boolean
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.claim_alone(this_pod uuid, this_incarnation integer, this_batch bigint, this_queue text, this_job bigint)
 RETURNS TABLE(id bigint, claim integer, attempt smallint, max_attempts smallint, priority smallint, waited real, kind text, payload json, extra json)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now timestamptz;
BEGIN
    PERFORM
    FROM rota.pod
    WHERE pod.id = this_pod AND incarnation = this_incarnation AND state = 'up' AND least_batch <= this_batch
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    now := rota.clock();
    RETURN QUERY
    UPDATE rota.job
    SET state = 'running',
        claim = claim + 1,
        attempt = attempt + 1,
        claimed_at = now,
        batch = this_batch,
        pod = this_pod,
        incarnation = this_incarnation
    WHERE job.id = this_job
      AND job.queue = this_queue
      AND state = 'ready'
      AND alone
      AND EXISTS (
          SELECT
          FROM rota.pod
          JOIN rota.queue ON queue.name = this_queue
          WHERE pod.id = this_pod AND expires_at > now AND NOT paused AND (cool_until > now) IS NOT true
      )
    RETURNING job.id, claim, attempt, max_attempts, priority,
              extract(epoch FROM now - scheduled_at)::real,
              kind, payload,
              CASE WHEN coalesce(timeout::text, trace, note, dedupe, tags::text) IS NOT NULL
                   THEN json_build_object(
                       'timeout', timeout, 'trace', trace, 'note', note, 'dedupe', dedupe, 'tags', tags)
              END;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.claim_jobs(this_pod uuid, this_incarnation integer, this_batch bigint, this_queue text, most integer, kinds text[], from_ranks integer[], from_ids bigint[])
 RETURNS TABLE(id bigint, claim integer, attempt smallint, max_attempts smallint, priority smallint, waited real, kind text, payload json, extra json)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
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
              AND NOT alone
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
$function$
;

CREATE OR REPLACE FUNCTION rota.claim_spells(this_queue text, most integer, kinds text[], from_ranks integer[], from_ids bigint[])
 RETURNS TABLE(kind text, from_rank integer, from_id bigint, to_rank integer, jobs integer)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
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
                  AND NOT alone
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
$function$
;

CREATE OR REPLACE FUNCTION rota.clock()
 RETURNS timestamp with time zone
 LANGUAGE sql
 PARALLEL SAFE
AS $function$ SELECT clock_timestamp() $function$
;

CREATE OR REPLACE FUNCTION rota.confirm_cap(this_queue text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET lock_timeout TO '5s'
AS $function$
#variable_conflict use_column
DECLARE
    unsure boolean := rota.settling();
    cap    integer;
    latest bigint;
BEGIN
    SELECT CASE WHEN paused THEN 0 ELSE max_workers END INTO cap
    FROM rota.queue WHERE name = this_queue FOR NO KEY UPDATE;
    SELECT max(id) INTO latest FROM rota.cap_change WHERE queue = this_queue;
    UPDATE rota.cap_change
    SET in_force_at = rota.clock()
    WHERE id = latest
      AND in_force_at IS NULL
      AND NOT unsure
      AND rota.cap_holds(this_queue, cap);
    RETURN (SELECT in_force_at IS NOT NULL FROM rota.cap_change WHERE id = latest);
END
$function$
;

CREATE OR REPLACE FUNCTION rota.drain_pod(this_pod uuid, this_incarnation integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE rota.pod
    SET state = 'draining'
    WHERE id = this_pod
      AND incarnation = coalesce(this_incarnation, incarnation);
    IF FOUND THEN
        PERFORM rota.notice('plan', left(name, 100) || ' drains') FROM rota.pod WHERE id = this_pod;
        PERFORM rota.nudge(ARRAY[this_pod]);
    END IF;
    RETURN FOUND;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.enqueue(kind text, payload json DEFAULT '{}'::json, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, delay interval DEFAULT '00:00:00'::interval, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT 5, timeout double precision DEFAULT NULL::double precision, dedupe text DEFAULT NULL::text, note text DEFAULT NULL::text, tags text[] DEFAULT NULL::text[], trace text DEFAULT NULL::text, OUT id bigint, OUT skipped boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.enqueue_jobs(queues text[], kinds text[], priorities smallint[], delays double precision[], run_ats timestamp with time zone[], max_attempts smallint[], timeouts real[], traces text[], notes text[], tags json[], shapes integer[], payloads json[], dedupes text[] DEFAULT NULL::text[], OUT ids bigint[], OUT skipped boolean[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.enqueue_notice(queue text, due_at timestamp with time zone, now timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT CASE
        WHEN due_at <= now THEN 'ready:' || queue
        WHEN due_at < now + interval '60 seconds' THEN 'due:' || extract(epoch FROM due_at - now)
    END
$function$
;

CREATE OR REPLACE FUNCTION rota.expire_pods(this_pod uuid, this_epoch bigint, this_timeline integer, most_rescues integer)
 RETURNS TABLE(expired uuid[], rescued bigint)
 LANGUAGE plpgsql
 SET lock_timeout TO '2s'
AS $function$
#variable_conflict use_column
DECLARE
    unsure boolean := rota.settling();
BEGIN
    IF NOT rota.guard(this_pod, this_epoch, this_timeline) THEN
        RETURN;
    END IF;
    IF unsure THEN
        RETURN QUERY SELECT '{}'::uuid[], 0::bigint;
    ELSE
        RETURN QUERY SELECT swept.expired, swept.rescued FROM rota.sweep_pods(most_rescues) AS swept;
    END IF;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.finalize_jobs(this_pod uuid, this_incarnation integer, done bigint[], claims integer[], results json[], others jsonb)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now     timestamptz;
    written bigint;
    wanted  bigint := coalesce(cardinality(done), 0) + coalesce(jsonb_array_length(others), 0);
    awaited bigint;
    settled bigint[] := '{}';
BEGIN
    IF others @> '[{"outcome": "throttle"}]' THEN
        PERFORM rota.lock_throttled_queues(others);
    END IF;
    now := rota.clock();
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
$function$
;

CREATE OR REPLACE FUNCTION rota.finalize_others(this_pod uuid, this_incarnation integer, others jsonb)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.guard(this_pod uuid, this_epoch bigint, this_timeline integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
DECLARE
    lease rota.lease;
BEGIN
    SELECT * INTO lease FROM rota.lease WHERE name = 'leader' FOR SHARE;
    RETURN lease.holder IS NOT DISTINCT FROM this_pod
       AND lease.epoch = this_epoch
       AND lease.timeline = this_timeline
       AND this_timeline = rota.timeline()
       AND lease.expires_at > rota.clock();
END
$function$
;

CREATE OR REPLACE FUNCTION rota.hinted_spells(kinds text[], from_ranks integer[], from_ids bigint[])
 RETURNS TABLE(kind text, from_rank integer, from_id bigint, to_rank integer)
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT hint.kind, -40000, 0::bigint, hint.rank
    FROM unnest(kinds, from_ranks, from_ids) AS hint (kind, rank, id)
    WHERE hint.rank > -40000
    UNION ALL
    SELECT hint.kind, hint.rank, hint.id, 40000
    FROM unnest(kinds, from_ranks, from_ids) AS hint (kind, rank, id)
$function$
;

CREATE OR REPLACE FUNCTION rota.keep_ended(job rota.job, ended_as rota.job_state, at timestamp with time zone, error jsonb DEFAULT NULL::jsonb, result json DEFAULT NULL::json)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.leave_pod(this_pod uuid, this_incarnation integer)
 RETURNS boolean
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    me rota.pod;
BEGIN
    SELECT * INTO me FROM rota.pod WHERE id = this_pod AND incarnation = this_incarnation FOR UPDATE;
    IF NOT FOUND OR EXISTS (SELECT FROM rota.job WHERE pod = this_pod AND state = 'running') THEN
        RETURN false;
    END IF;
    PERFORM FROM rota.assignment WHERE pod = this_pod ORDER BY queue FOR UPDATE;
    DELETE FROM rota.pod WHERE id = this_pod;
    PERFORM rota.notice('plan', left(me.name, 100) || ' left');
    RETURN true;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.lock_throttled_queues(others jsonb)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    throttled bigint[] := ARRAY(
        SELECT (run ->> 'id')::bigint FROM jsonb_array_elements(others) AS run WHERE run ->> 'outcome' = 'throttle'
    );
BEGIN
    PERFORM
    FROM rota.queue
    WHERE name = ANY (ARRAY(SELECT DISTINCT queue FROM rota.job WHERE id = ANY (throttled)))
    ORDER BY name
    FOR NO KEY UPDATE;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.lone_job(this_pod rota.pod, OUT job bigint, OUT queue text)
 RETURNS record
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
AS $function$
    SELECT lone.id, lone.queue
    FROM unnest((this_pod).queues) AS served (queue),
    LATERAL (
        SELECT waiting.id, waiting.queue, waiting.kind
        FROM rota.job AS waiting
        WHERE waiting.queue = served.queue AND waiting.kind = ANY ((this_pod).kinds) AND state = 'ready' AND alone
        ORDER BY waiting.queue, waiting.kind, waiting.id
        LIMIT 1
    ) AS lone
    WHERE (this_pod).id = (
        SELECT pod.id
        FROM rota.pod
        JOIN rota.assignment ON assignment.pod = pod.id AND assignment.queue = lone.queue AND target > 0
        WHERE pod.state = 'up' AND expires_at > rota.clock() AND lone.kind = ANY (pod.kinds)
        ORDER BY hashtextextended(pod.id::text, lone.id)
        LIMIT 1
    )
    LIMIT 1
$function$
;

CREATE OR REPLACE FUNCTION rota.notice(word text, subject text)
 RETURNS void
 LANGUAGE sql
AS $function$ SELECT pg_notify('rota.notice', word || ':' || subject) $function$
;

CREATE OR REPLACE FUNCTION rota.nudge(pods uuid[])
 RETURNS void
 LANGUAGE sql
AS $function$
    SELECT rota.notice(
        'beat',
        CASE WHEN cardinality(pods) > 400 THEN '*'
             ELSE (SELECT string_agg(left(pod::text, 13), ',') FROM unnest(pods) AS told (pod))
        END)
    WHERE cardinality(pods) > 0
$function$
;

CREATE OR REPLACE FUNCTION rota.plan_queue(this_pod uuid, this_epoch bigint, this_timeline integer, this_queue text, pods uuid[], wanted integer[], cause text, sentence text, also uuid[], tell boolean)
 RETURNS TABLE(changed uuid[], granted integer, revoked integer)
 LANGUAGE plpgsql
 SET lock_timeout TO '2s'
AS $function$
#variable_conflict use_column
DECLARE
    unsure boolean := rota.settling();
    cap    integer;
    spare  bigint;
    over   boolean;
    acked  boolean;
    was    record;
    wants  integer;
    gets   integer;
    now    timestamptz;
BEGIN
    IF NOT rota.guard(this_pod, this_epoch, this_timeline) THEN
        RETURN;
    END IF;
    SELECT CASE WHEN paused THEN 0 ELSE max_workers END INTO cap
    FROM rota.queue WHERE name = this_queue FOR NO KEY UPDATE;
    changed := '{}';
    granted := 0;
    revoked := 0;
    IF cap IS NOT NULL THEN
        -- New pods get a row; one that has left meanwhile cannot.
        INSERT INTO rota.assignment (queue, pod, target, held, acting)
        SELECT this_queue, pod.id, 0, 0, 0
        FROM unnest(pods, wanted) AS wish (pod, slots)
        JOIN rota.pod ON pod.id = wish.pod
        WHERE wish.slots > 0
          AND NOT EXISTS (SELECT FROM rota.assignment WHERE queue = this_queue AND assignment.pod = wish.pod)
        ORDER BY pod.id
        FOR KEY SHARE OF pod
        ON CONFLICT DO NOTHING;
        PERFORM FROM rota.assignment WHERE queue = this_queue ORDER BY pod FOR UPDATE;
        SELECT greatest(0, cap - coalesce(sum(held), 0)), coalesce(sum(held), 0) > cap,
               coalesce(bool_and(acting = target), true)
        INTO spare, over, acked
        FROM rota.assignment
        WHERE queue = this_queue;
        IF over AND acked AND NOT EXISTS (
            SELECT
            FROM rota.assignment
            LEFT JOIN unnest(pods, wanted) AS wish (pod, slots) ON wish.pod = assignment.pod
            WHERE queue = this_queue AND greatest(wish.slots, 0) < target
        ) THEN
            wanted := array_fill(0, ARRAY[cardinality(pods)]);
        END IF;
        FOR was IN
            SELECT assignment.pod, target, held, acting, greatest(slots, 0) AS slots
            FROM rota.assignment
            LEFT JOIN unnest(pods, wanted) AS wish (pod, slots) ON wish.pod = assignment.pod
            WHERE queue = this_queue
            ORDER BY assignment.pod
        LOOP
            gets := CASE WHEN over OR unsure THEN least(was.slots, was.target)
                         ELSE least(was.slots, was.held + spare) END;
            CONTINUE WHEN gets = was.target;
            spare := spare - greatest(0, gets - was.held);
            UPDATE rota.assignment
            SET target = gets,
                held = greatest(held, gets),
                acting = greatest(acting, gets)
            WHERE queue = this_queue AND pod = was.pod;
            changed := changed || was.pod;
            granted := granted + greatest(0, gets - was.target);
            revoked := revoked + greatest(0, was.target - gets);
        END LOOP;
        now := rota.clock();
        PERFORM rota.confirm_cap(this_queue);
        IF cardinality(changed) > 0 THEN
            INSERT INTO rota.plan AS kept (at, epoch, queue, granted, revoked, cause, sentence)
            VALUES (now, this_epoch, this_queue, granted, revoked, cause, sentence)
            RETURNING kept.id INTO spare;
            DELETE FROM rota.plan WHERE id <= spare - 10000;
        END IF;
    END IF;
    IF tell THEN
        PERFORM rota.nudge(ARRAY(SELECT unnest(changed) UNION SELECT unnest(also)));
    END IF;
    RETURN NEXT;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.promote_jobs(this_pod uuid, this_epoch bigint, this_timeline integer, most integer)
 RETURNS TABLE(moved bigint, next_in double precision)
 LANGUAGE plpgsql
 SET lock_timeout TO '2s'
AS $function$
BEGIN
    IF rota.guard(this_pod, this_epoch, this_timeline) THEN
        RETURN QUERY SELECT due.moved, due.next_in FROM rota.ready_due_jobs(most) AS due;
    END IF;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.read_job(this_job bigint)
 RETURNS SETOF rota.any_job
 LANGUAGE sql
 STABLE
 SET enable_seqscan TO 'off'
AS $function$
    SELECT any_job.*
    FROM rota.any_job
    WHERE id = this_job
$function$
;

CREATE OR REPLACE FUNCTION rota.ready_due_jobs(most integer, OUT moved bigint, OUT next_in double precision)
 RETURNS record
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.register_pod(this_pod uuid, replaces integer, this_machine text, this_name text, this_queues text[], this_kinds text[], this_capacity integer, this_capacities jsonb, this_zone text, this_version text, this_ttl double precision, most_rescues integer)
 RETURNS TABLE(booted integer, wait_in double precision, standing integer)
 LANGUAGE plpgsql
 SET lock_timeout TO '5s'
AS $function$
#variable_conflict use_column
DECLARE
    unsure  boolean := rota.settling();
    earlier rota.pod;
    now     timestamptz;
BEGIN
    UPDATE rota.server SET ttl = this_ttl WHERE ttl < this_ttl;
    -- An upsert locks the row as UPDATE does, which lets claims pass; the retired boot's must not.
    SELECT * INTO earlier FROM rota.pod WHERE id = this_pod FOR UPDATE;
    now := rota.clock();
    standing := coalesce(earlier.incarnation, 0);
    IF earlier.id IS NOT NULL AND earlier.incarnation <> replaces THEN
        RETURN NEXT;
        RETURN;
    END IF;
    IF earlier.expires_at > now AND earlier.machine <> this_machine THEN
        wait_in := extract(epoch FROM earlier.expires_at - now);
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM FROM rota.assignment WHERE pod = this_pod ORDER BY queue FOR UPDATE;
    DELETE FROM rota.assignment WHERE pod = this_pod;
    INSERT INTO rota.pod AS made (id, name, queues, kinds, capacity, capacities, zone, version, machine,
                                  timeline, ttl, registered_at, expires_at)
    VALUES (this_pod, this_name, this_queues, this_kinds, this_capacity, this_capacities, this_zone, this_version,
            this_machine, rota.timeline(), this_ttl, now, now + make_interval(secs => this_ttl))
    ON CONFLICT (id) DO UPDATE
    SET incarnation = excluded.incarnation,
        least_batch = 0,
        answer = 0,
        timeline = excluded.timeline,
        state = 'up',
        name = excluded.name,
        queues = excluded.queues,
        kinds = excluded.kinds,
        capacity = excluded.capacity,
        capacities = excluded.capacities,
        zone = excluded.zone,
        version = excluded.version,
        machine = excluded.machine,
        ttl = excluded.ttl,
        registered_at = excluded.registered_at,
        expires_at = excluded.expires_at
    -- Another first boot may have come in between, unseen above: it is not what this one replaces.
    WHERE made.incarnation = replaces
    RETURNING incarnation INTO booted;
    IF booted IS NULL THEN
        standing := coalesce((SELECT incarnation FROM rota.pod WHERE id = this_pod), 0);
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT unsure THEN
        PERFORM rota.rescue_jobs(
            1000, most_rescues, CASE WHEN earlier.state = 'draining' THEN ARRAY[this_pod] ELSE '{}' END);
    END IF;
    PERFORM rota.notice('plan', left(this_name, 100) || ' joined');
    RETURN NEXT;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.renew_lease(this_pod uuid, this_epoch bigint, this_timeline integer, terms double precision)
 RETURNS TABLE(clock double precision, started double precision, settling boolean, expiry_in double precision)
 LANGUAGE plpgsql
 SET lock_timeout TO '2s'
AS $function$
#variable_conflict use_column
DECLARE
    unsure boolean := rota.settling();
    now    timestamptz;
BEGIN
    PERFORM FROM rota.lease WHERE name = 'leader' FOR NO KEY UPDATE;
    IF NOT rota.guard(this_pod, this_epoch, this_timeline) THEN
        RETURN;
    END IF;
    now := rota.clock();
    UPDATE rota.lease SET ttl = terms, expires_at = now + make_interval(secs => terms) WHERE name = 'leader';
    -- The clock went back: nobody was promised more than a TTL, and the silent must not live on.
    UPDATE rota.pod
    SET expires_at = now + make_interval(secs => ttl)
    WHERE expires_at > now + make_interval(secs => ttl);
    RETURN QUERY
    SELECT extract(epoch FROM now)::float8,
           extract(epoch FROM pg_postmaster_start_time())::float8,
           unsure,
           (SELECT extract(epoch FROM min(expires_at) - now)::float8 FROM rota.pod);
END
$function$
;

CREATE OR REPLACE FUNCTION rota.rescue_jobs(most integer, most_rescues integer, given_back uuid[] DEFAULT '{}'::uuid[])
 RETURNS TABLE(id bigint, state rota.job_state)
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
            alone = rescues + 2 >= most_rescues,
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
$function$
;

CREATE OR REPLACE FUNCTION rota.resign_lease(this_pod uuid, this_epoch bigint, this_timeline integer)
 RETURNS boolean
 LANGUAGE plpgsql
 SET lock_timeout TO '2s'
AS $function$
#variable_conflict use_column
BEGIN
    UPDATE rota.lease
    SET expires_at = '-infinity',
        holder = NULL
    WHERE name = 'leader'
      AND holder = this_pod
      AND epoch = this_epoch
      AND timeline = this_timeline;
    IF FOUND THEN
        PERFORM rota.notice('lease', 'free');
    END IF;
    RETURN FOUND;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.retry_job(this_job bigint, OUT outcome text, OUT other bigint)
 RETURNS record
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.settle_batches(this_pod uuid, this_incarnation integer, next_batch bigint, known bigint[])
 RETURNS bigint
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
$function$
;

CREATE OR REPLACE FUNCTION rota.settling()
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
DECLARE
    line   integer := rota.timeline();
    server rota.server;
BEGIN
    SELECT * INTO server FROM rota.server;
    IF server.timeline <> line THEN
        UPDATE rota.server SET timeline = line, seen_at = rota.clock() WHERE timeline <> line;
        SELECT * INTO server FROM rota.server;
    END IF;
    RETURN rota.clock() < server.seen_at + make_interval(secs => server.ttl);
END
$function$
;

CREATE OR REPLACE FUNCTION rota.sweep_pods(most_rescues integer, OUT expired uuid[], OUT rescued bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    late    uuid[];
    drained uuid[];
    names   text;
    moved   bigint;
BEGIN
    late := ARRAY(SELECT id FROM rota.pod WHERE expires_at <= rota.clock() ORDER BY id FOR UPDATE SKIP LOCKED);
    -- They go with their pods, but in any order, and a plan may want them in this one.
    PERFORM FROM rota.assignment WHERE pod = ANY (late) ORDER BY queue, pod FOR UPDATE;
    WITH gone AS (
        DELETE FROM rota.pod WHERE id = ANY (late) RETURNING id, state, name
    )
    SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(id) FILTER (WHERE state = 'draining'), '{}'),
           string_agg(name, ', ')
    INTO expired, drained, names
    FROM gone;
    rescued := 0;
    LOOP
        SELECT count(*) INTO moved FROM rota.rescue_jobs(1000, most_rescues, drained);
        rescued := rescued + moved;
        -- Only now is it known who was draining: what is left for the next sweep loses its attempt.
        EXIT WHEN moved < 1000 OR drained = '{}';
    END LOOP;
    IF names IS NOT NULL THEN
        PERFORM rota.notice('plan', left(names, 200) || ' fell silent');
    END IF;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.take_lease(this_pod uuid, terms double precision)
 RETURNS TABLE(won boolean, epoch bigint, timeline integer, expires_in double precision)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    lease rota.lease;
    line  integer := rota.timeline();
    now   timestamptz;
BEGIN
    SELECT * INTO lease FROM rota.lease WHERE name = 'leader' FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::bigint, NULL::integer, NULL::float8;
        RETURN;
    END IF;
    now := rota.clock();
    IF lease.expires_at > now + make_interval(secs => lease.ttl) THEN
        -- The clock went back: nobody can have been promised so much.
        UPDATE rota.lease SET expires_at = now + make_interval(secs => ttl) WHERE name = 'leader';
        RETURN QUERY SELECT false, lease.epoch, lease.timeline, lease.ttl;
    ELSIF lease.expires_at > now AND lease.timeline = line THEN
        RETURN QUERY SELECT false, lease.epoch, lease.timeline, extract(epoch FROM lease.expires_at - now)::float8;
    ELSE
        UPDATE rota.lease AS taken
        SET epoch = lease.epoch + 1,
            timeline = line,
            ttl = terms,
            expires_at = now + make_interval(secs => terms),
            holder = this_pod
        WHERE name = 'leader';
        RETURN QUERY SELECT true, lease.epoch + 1, line, terms;
    END IF;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.take_share(this_pod rota.pod, this_queue text)
 RETURNS void
 LANGUAGE plpgsql
 SET enable_seqscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    cap   integer;
    fair  integer;
    room  bigint;
    empty bigint;
BEGIN
    SELECT CASE WHEN paused THEN 0 ELSE max_workers END INTO cap FROM rota.queue WHERE name = this_queue;
    IF cap IS NULL THEN
        RETURN;
    END IF;
    SELECT ceil(cap::float8 / greatest(1, count(*)))
    INTO fair
    FROM rota.pod
    WHERE state = 'up' AND this_queue = ANY (queues) AND expires_at > rota.clock();
    SELECT cap - coalesce(sum(held), 0) INTO room FROM rota.assignment WHERE queue = this_queue;
    SELECT this_pod.capacity - coalesce(sum(held), 0) INTO empty FROM rota.assignment WHERE pod = this_pod.id;
    fair := least(fair, room, empty, coalesce((this_pod.capacities ->> this_queue)::integer, fair));
    IF fair > 0 THEN
        INSERT INTO rota.assignment (queue, pod, target, held, acting)
        VALUES (this_queue, this_pod.id, fair, fair, fair)
        ON CONFLICT DO NOTHING;
    END IF;
END
$function$
;

CREATE OR REPLACE FUNCTION rota.timeline()
 RETURNS integer
 LANGUAGE sql
AS $function$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer $function$
;

CREATE OR REPLACE FUNCTION rota.with_error(errors jsonb, attempt integer, error jsonb, at timestamp with time zone)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
AS $function$
    SELECT CASE
        WHEN error IS NULL THEN errors
        WHEN jsonb_array_length(coalesce(errors, '[]')) < 32
            THEN coalesce(errors, '[]') || jsonb_build_array(
                jsonb_build_object('attempt', attempt, 'at', at) || error)
        ELSE (errors - 0) || jsonb_build_array(jsonb_build_object('attempt', attempt, 'at', at) || error)
    END
$function$
;

CREATE OR REPLACE FUNCTION rota.work_jobs(this_pod uuid, this_incarnation integer, this_batch bigint, this_queue text, most integer, kinds text[], from_ranks integer[], from_ids bigint[], done bigint[], claims integer[], results json[], others jsonb)
 RETURNS TABLE(id bigint, claim integer, attempt smallint, max_attempts smallint, priority smallint, waited real, kind text, payload json, extra json)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    -- Queues before pods and pods before jobs, as everywhere.
    IF others @> '[{"outcome": "throttle"}]' THEN
        PERFORM rota.lock_throttled_queues(others);
    END IF;
    PERFORM FROM rota.pod WHERE pod.id = this_pod FOR KEY SHARE;
    RETURN QUERY
    SELECT lost, NULL::integer, NULL::smallint, NULL::smallint, NULL::smallint, NULL::real, NULL, NULL::json, NULL::json
    FROM unnest(rota.finalize_jobs(this_pod, this_incarnation, done, claims, results, others)) AS lost;
    RETURN QUERY
    SELECT *
    FROM rota.claim_jobs(
        this_pod, this_incarnation, this_batch, this_queue, most, kinds, from_ranks, from_ids);
END
$function$
;

CREATE OR REPLACE FUNCTION rota.write_progress(this_pod uuid, this_incarnation integer, jobs bigint[], claims integer[], progresses json[])
 RETURNS void
 LANGUAGE sql
 SET enable_seqscan TO 'off'
AS $function$
    UPDATE rota.job
    SET progress = told.progress
    FROM unnest(jobs, claims, progresses) AS told (id, claim, progress)
    WHERE job.id = ANY (jobs)
      AND job.id = told.id
      AND job.claim = told.claim
      AND job.pod = this_pod
      AND job.incarnation = this_incarnation
$function$
;

COMMENT ON COLUMN rota.assignment.target IS
    'The slots the leader wants the pod to have';

COMMENT ON COLUMN rota.assignment.held IS
    'The most slots the pod may be using; never falls but by its own beat';

COMMENT ON COLUMN rota.assignment.acting IS
    'The greatest target the pod may be acting on';

COMMENT ON COLUMN rota.job.alone IS
    'On its last chance: claimed only by a pod that runs nothing else';

COMMENT ON COLUMN rota.pod.least_batch IS
    'Claims numbered below this were given up by the pod and take nothing';

COMMENT ON COLUMN rota.pod.answer IS
    'The number of the latest answer given to a beat of this boot';

COMMENT ON COLUMN rota.pod.machine IS
    'Where its lock lies: only there can a later boot know that it is gone';

CREATE VIEW rota.any_job AS
 SELECT id,
    created_at,
    scheduled_at,
    claimed_at,
    NULL::timestamp with time zone AS ended_at,
    claim,
    incarnation,
    state,
    timeout,
    priority,
    attempt,
    max_attempts,
    rescues,
    cancelling,
    pod,
    queue,
    kind,
    payload,
    dedupe,
    trace,
    note,
    tags,
    progress,
    errors,
    NULL::json AS result
   FROM rota.job
UNION ALL
 SELECT id,
    created_at,
    scheduled_at,
    claimed_at,
    ended_at,
    claim,
    incarnation,
    state,
    timeout,
    priority,
    attempt,
    max_attempts,
    rescues,
    false AS cancelling,
    pod,
    queue,
    kind,
    payload,
    dedupe,
    trace,
    note,
    tags,
    progress,
    errors,
    result
   FROM rota.history;
