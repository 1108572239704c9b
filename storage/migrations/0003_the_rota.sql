-- serves: 3
-- The rota: who may run how much. A slot's life reads downward: change_queue asks for a cap,
-- take_lease makes a leader, plan_queue writes targets, beat hands them to pods and takes back
-- what they gave up; beside it register, drain, leave, expire.
--
-- Earlier code does not know assignments and would run the whole cap on every pod, so it may not
-- run on this schema.
--
-- Locks are taken in this order: server, lease, queues by name, pods by id, assignments by
-- (queue, pod), jobs by id. cluster/rules.py says the same rules as pure functions, and
-- tests/integration/cluster/test_rules_twin.py plays both side by side.

-- ---------------------------------------------------------------- the server

-- The timeline of the server's log: raised by every promotion of a standby. A server that cannot
-- be written to has none and refuses.
CREATE FUNCTION rota.timeline() RETURNS integer
LANGUAGE sql VOLATILE
AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer $$;

-- One row: which timeline was seen, since when, and the longest any pod lives unheard.
CREATE TABLE rota.server (
    only_row boolean NOT NULL DEFAULT true,
    timeline integer NOT NULL,
    seen_at  timestamptz NOT NULL,
    ttl      float8 NOT NULL DEFAULT 0,
    CONSTRAINT server_has_one_row PRIMARY KEY (only_row),
    CONSTRAINT server_row_is_the_only_one CHECK (only_row)
) WITH (fillfactor = 50);

INSERT INTO rota.server (timeline, seen_at) VALUES (rota.timeline(), '-infinity');

-- Whether a failover is so recent that pods may still act on what the lost server told them, even
-- pods whose rows were lost with it. Then nothing is granted, no pod expired, no job rescued.
CREATE FUNCTION rota.settling() RETURNS boolean
LANGUAGE plpgsql
AS $$
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
$$;

-- ---------------------------------------------------------------- tables

ALTER TABLE rota.pod
    ADD COLUMN answer     bigint NOT NULL DEFAULT 0,
    ADD COLUMN timeline   integer NOT NULL DEFAULT 0,
    ADD COLUMN ttl        float8 NOT NULL DEFAULT 10,
    ADD COLUMN machine    text NOT NULL DEFAULT '',
    ADD COLUMN capacities jsonb NOT NULL DEFAULT '{}';

COMMENT ON COLUMN rota.pod.answer IS 'The number of the latest answer given to a beat of this boot';
COMMENT ON COLUMN rota.pod.machine IS 'Where its lock lies: only there can a later boot know that it is gone';

CREATE TABLE rota.assignment (
    queue  text COLLATE "C" NOT NULL,
    pod    uuid NOT NULL,
    target integer NOT NULL,
    held   integer NOT NULL,
    acting integer NOT NULL,
    CONSTRAINT assignment_is_one_per_pod_and_queue PRIMARY KEY (pod, queue),
    CONSTRAINT assignment_is_of_a_queue FOREIGN KEY (queue) REFERENCES rota.queue (name),
    CONSTRAINT assignment_is_of_a_pod FOREIGN KEY (pod) REFERENCES rota.pod (id) ON DELETE CASCADE,
    CONSTRAINT target_is_within_what_is_held CHECK (0 <= target AND target <= held),
    CONSTRAINT pod_acts_within_what_is_held CHECK (target <= acting AND acting <= held)
) WITH (fillfactor = 50);

CREATE INDEX assignment_queue ON rota.assignment (queue);

COMMENT ON COLUMN rota.assignment.target IS 'The slots the leader wants the pod to have';
COMMENT ON COLUMN rota.assignment.held IS 'The most slots the pod may be using; never falls but by its own beat';
COMMENT ON COLUMN rota.assignment.acting IS 'The greatest target the pod may be acting on';

CREATE TABLE rota.lease (
    name       text COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL DEFAULT 0,
    timeline   integer NOT NULL DEFAULT 0,
    ttl        float8 NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '-infinity',
    holder     uuid,
    CONSTRAINT lease_name_is_unique PRIMARY KEY (name)
) WITH (fillfactor = 50);

INSERT INTO rota.lease (name) VALUES ('leader');

-- Every change of a cap, and since when it holds; a pause is a cap of 0. A change that a later one
-- overtook before it was in force never is.
CREATE TABLE rota.cap_change (
    id          bigint GENERATED ALWAYS AS IDENTITY,
    queue       text COLLATE "C" NOT NULL,
    cap         integer NOT NULL,
    asked_at    timestamptz NOT NULL,
    in_force_at timestamptz,
    CONSTRAINT cap_change_id_is_unique PRIMARY KEY (id)
);

CREATE INDEX cap_change_queue ON rota.cap_change (queue, id);

INSERT INTO rota.cap_change (queue, cap, asked_at, in_force_at)
SELECT name, CASE WHEN paused THEN 0 ELSE max_workers END, created_at, created_at
FROM rota.queue;

-- What the leader decided, why, and in words.
CREATE TABLE rota.plan (
    id       bigint GENERATED ALWAYS AS IDENTITY,
    at       timestamptz NOT NULL,
    epoch    bigint NOT NULL,
    queue    text COLLATE "C" NOT NULL,
    granted  integer NOT NULL,
    revoked  integer NOT NULL,
    cause    text NOT NULL,
    sentence text NOT NULL,
    CONSTRAINT plan_id_is_unique PRIMARY KEY (id)
);

CREATE INDEX plan_queue ON rota.plan (queue, id);

-- ---------------------------------------------------------------- queues

-- Whether a cap holds now: no more can be running, or nobody may start anything.
CREATE FUNCTION rota.cap_holds(this_queue text, cap bigint) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(sum(held), 0) <= cap OR (max(acting) = 0)
    FROM rota.assignment
    WHERE queue = this_queue
$$;

-- Note since when a queue's latest cap is in force, if it is; whether it is. While a failover settles
-- it is not, whatever the rows say: pods may act on what the lost server told them.
CREATE FUNCTION rota.confirm_cap(this_queue text) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '5s'
AS $$
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
$$;

-- Change a queue's cap, pause or retry policy; NULL leaves as it is, and JSON's null takes the policy
-- away. Gives the change to wait for (NULL where the cap stays what it was) and whether it is in
-- force, as one that raises what is in force is at once; no row: there is no such queue.
CREATE FUNCTION rota.change_queue(this_queue text, workers integer, pause boolean, policy jsonb)
RETURNS TABLE (change bigint, cap integer, in_force boolean)
LANGUAGE plpgsql
SET lock_timeout = '5s'
AS $$
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
$$;

-- ---------------------------------------------------------------- the lease

-- Take the lease if it is free, has run out, or was given on a timeline that is gone; afterwards
-- who holds it, and how long. Someone else who tries at the same time is not waited for.
CREATE FUNCTION rota.take_lease(this_pod uuid, terms float8)
RETURNS TABLE (won boolean, epoch bigint, timeline integer, expires_in float8)
LANGUAGE plpgsql
AS $$
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
$$;

-- Whether this leader may write: lock first, then look at the clock. Held until the commit, so
-- that nobody takes over between this and the writes behind it.
CREATE FUNCTION rota.guard(this_pod uuid, this_epoch bigint, this_timeline integer) RETURNS boolean
LANGUAGE plpgsql
AS $$
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
$$;

-- Renew an unexpired lease, and hear what a leader must know of time: what the server's clock says,
-- since when the server runs, and when the first pod falls silent. No row: the lease is lost.
CREATE FUNCTION rota.renew_lease(this_pod uuid, this_epoch bigint, this_timeline integer, terms float8)
RETURNS TABLE (clock float8, started float8, settling boolean, expiry_in float8)
LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
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
$$;

-- Give the lease up; the next is told and takes over at once.
CREATE FUNCTION rota.resign_lease(this_pod uuid, this_epoch bigint, this_timeline integer) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
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
$$;

-- ---------------------------------------------------------------- the plan

-- Have pods beat now. A notice carries no target: those travel only in the answer to a beat.
CREATE FUNCTION rota.nudge(pods uuid[]) RETURNS void
LANGUAGE sql
AS $$
    SELECT rota.notice(
        'beat',
        CASE WHEN cardinality(pods) > 400 THEN '*'
             ELSE (SELECT string_agg(left(pod::text, 13), ',') FROM unnest(pods) AS told (pod))
        END)
    WHERE cardinality(pods) > 0
$$;

-- Write one queue's plan, as far as it may be written now: revoke before grant, whoever wrote it.
-- Raises are capped at what is held and the room that is left under the cap. While more is held
-- than the cap allows targets only fall; once that is acknowledged and busy slots still hold
-- too many, they fall to 0 until enough have been given back.
-- `also` names pods that earlier queues of the same plan changed and that are told with this one.
-- Gives the pods changed; no row: refused, the lease is lost.
CREATE FUNCTION rota.plan_queue(
    this_pod uuid, this_epoch bigint, this_timeline integer,
    this_queue text, pods uuid[], wanted integer[], cause text, sentence text, also uuid[], tell boolean
)
RETURNS TABLE (changed uuid[], granted integer, revoked integer)
LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
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
$$;

-- ---------------------------------------------------------------- last chances

-- A job that will be dead when it loses its pod once more runs alone on its pod: so the killer
-- among those that died together dies alone, and its neighbours live.
ALTER TABLE rota.job ADD COLUMN alone boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN rota.job.alone IS 'On its last chance: claimed only by a pod that runs nothing else';

CREATE INDEX job_alone ON rota.job (queue, kind, id) WHERE state = 'ready' AND alone;

-- As in 0001, but for what has to be claimed alone.
CREATE OR REPLACE FUNCTION rota.claim_spells(
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
$$;

-- As in 0001, but for what has to be claimed alone.
CREATE OR REPLACE FUNCTION rota.claim_jobs(
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
$$;

-- As in 0001; a job with one chance left is marked.
CREATE OR REPLACE FUNCTION rota.rescue_jobs(most integer, most_rescues integer, given_back uuid[] DEFAULT '{}')
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
$$;

-- The job that this pod should run alone next. Of the pods that could, each job has its own
-- favourite, so that not all of them fall idle for one job.
CREATE FUNCTION rota.lone_job(this_pod rota.pod, OUT job bigint, OUT queue text)
LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
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
$$;

-- Claim the one job that this pod will run alone.
CREATE FUNCTION rota.claim_alone(
    this_pod uuid, this_incarnation integer, this_batch bigint, this_queue text, this_job bigint
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
SET enable_seqscan = off
AS $$
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
$$;

-- ---------------------------------------------------------------- pods

DROP FUNCTION rota.register_pod(uuid, text, text[], text[], integer, text, text, float8, integer);
DROP FUNCTION rota.beat(uuid, integer, float8);
DROP FUNCTION rota.drain_pod(uuid, integer);
DROP FUNCTION rota.expire_pods(integer);

-- Begin a boot of a pod, in place of the incarnation it names (0: none known). An earlier one that
-- has not expired is retired only by a boot on its own machine, which holds the lock it would need;
-- else one must wait. Gives the new incarnation, or how long to wait; neither: another boot came
-- in between, and `standing` says which.
CREATE FUNCTION rota.register_pod(
    this_pod        uuid,
    replaces        integer,
    this_machine    text,
    this_name       text,
    this_queues     text[],
    this_kinds      text[],
    this_capacity   integer,
    this_capacities jsonb,
    this_zone       text,
    this_version    text,
    this_ttl        float8,
    most_rescues    integer
)
RETURNS TABLE (booted integer, wait_in float8, standing integer)
LANGUAGE plpgsql
SET lock_timeout = '5s'
AS $$
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
$$;

-- The share a pod without an assignment may take of a queue, until a leader plans it: a fair part
-- of the cap, out of what is free. The caller holds the queue's row and the pod's.
--
-- The pods are counted by looking at all of them; under a beat's setting that would look so dear
-- that servers before 18 compile it first, for 40 ms.
CREATE FUNCTION rota.take_share(this_pod rota.pod, this_queue text) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = on
AS $$
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
$$;

-- A pod's one periodic round trip: renew the row, say what is used, hear what is new.
--
-- The pod says which answer it heard last, on which timeline; what each of its queues acts on and
-- uses (queues left out: nothing); for which queues without an assignment it would take a share; and
-- the digest of the settings it knows. What it holds is lowered only if it had heard the latest
-- answer: else a target on its way to it might be acted on after it was given to others.
--
-- No row back: the pod has expired. A row without a state: a later boot has retired it.
CREATE FUNCTION rota.beat(
    this_pod         uuid,
    this_incarnation integer,
    heard            bigint,
    heard_on         integer,
    busy             text[],
    acts             integer[],
    uses             integer[],
    sharing          text[],
    knows            text
)
RETURNS TABLE (
    state rota.pod_state, answer bigint, timeline integer, targeted text[], targets integer[],
    cancels bigint[], ready text[], lone bigint, lone_queue text, settings text, digest text, leader uuid,
    lease_in float8
)
LANGUAGE plpgsql
SET lock_timeout = '5s'
SET enable_seqscan = off
AS $$
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
$$;

-- The pod claims nothing new from here on; asked by itself, or by an operator (no incarnation).
CREATE FUNCTION rota.drain_pod(this_pod uuid, this_incarnation integer) RETURNS boolean
LANGUAGE plpgsql
AS $$
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
$$;

-- Leave for good, unless jobs still run here: then the row must expire, and they are rescued.
CREATE OR REPLACE FUNCTION rota.leave_pod(this_pod uuid, this_incarnation integer) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
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
$$;

-- The leader removes pods whose time has run out, and rescues every job that has no pod. Nobody
-- expires and nothing is rescued while a failover settles. No row: refused, the lease is lost.
CREATE FUNCTION rota.expire_pods(this_pod uuid, this_epoch bigint, this_timeline integer, most_rescues integer)
RETURNS TABLE (expired uuid[], rescued bigint)
LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
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
$$;

-- Remove pods whose time has run out, and rescue every job that has no pod.
CREATE FUNCTION rota.sweep_pods(most_rescues integer, OUT expired uuid[], OUT rescued bigint)
LANGUAGE plpgsql
AS $$
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
$$;

-- The leader makes scheduled jobs ready that are due. No row: refused, the lease is lost.
CREATE FUNCTION rota.promote_jobs(this_pod uuid, this_epoch bigint, this_timeline integer, most integer)
RETURNS TABLE (moved bigint, next_in float8)
LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
BEGIN
    IF rota.guard(this_pod, this_epoch, this_timeline) THEN
        RETURN QUERY SELECT due.moved, due.next_in FROM rota.ready_due_jobs(most) AS due;
    END IF;
END
$$;
