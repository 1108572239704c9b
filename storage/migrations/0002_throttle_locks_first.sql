-- A throttle cools its queue down, and finalizing it took that queue's row last, after the pod
-- and the jobs: against the order queues, pods, jobs, so that it could meet a plan or a resize
-- in a deadlock. Now the rows of such queues are locked first, by name.
-- serves: 1

-- The queues of runs that were throttled. No lock on the jobs is needed to read them: a job
-- never changes its queue. Whether a batch holds a throttle at all is asked by the callers, in
-- an expression, so that batches without one pay for no further statement.
CREATE FUNCTION rota.lock_throttled_queues(others jsonb) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
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
$$;

-- As in 0001, after the lock; and the clock is read once the lock is there.
CREATE OR REPLACE FUNCTION rota.finalize_jobs(
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
$$;

-- As in 0001, after the lock.
CREATE OR REPLACE FUNCTION rota.work_jobs(
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
$$;
