-- name: insert_job
-- What rota.enqueue does with a job that has no dedupe key, as one plain statement: in a
-- transaction of its own, calling the function costs about as much as the insert.
-- JSON travels as text: the connection may be the caller's own, with its own codec for json.
--   $1 kind  $2 payload  $3 queue  $4 priority  $5 delay  $6 run_at  $7 max_attempts  $8 timeout
--   $9 note  $10 tags  $11 trace
INSERT INTO rota.job (created_at, scheduled_at, state, timeout, priority, max_attempts,
                      queue, kind, payload, note, tags, trace)
SELECT now, due_at, CASE WHEN due_at > now THEN 'scheduled'::rota.job_state ELSE 'ready' END,
       $8::real, $4::smallint, $7::smallint, $3::text, $1::text, $2::text::json, $9::text, $10::text[], $11::text
FROM (SELECT now, coalesce($6::timestamptz, now + make_interval(secs => $5::float8)) AS due_at
      FROM rota.clock() AS now) AS clock
RETURNING id,
          CASE WHEN rota.enqueue_notice(queue, scheduled_at, created_at) IS NOT NULL
               THEN pg_notify('rota.notice', rota.enqueue_notice(queue, scheduled_at, created_at))
          END;

-- name: enqueue_job
--   $1 kind  $2 payload  $3 queue  $4 priority  $5 delay  $6 run_at  $7 max_attempts  $8 timeout
--   $9 note  $10 tags  $11 trace  $12 dedupe
SELECT id, skipped
FROM rota.enqueue(
    $1::text, $2::text::json, $3::text, $4::integer, make_interval(secs => $5::float8), $6::timestamptz, $7::integer,
    $8::float8, $12::text, $9::text, $10::text[], $11::text
);

-- name: enqueue_jobs
-- Many at once; shapes are what jobs of this call share.
--   $1 queues  $2 kinds  $3 priorities  $4 delays  $5 run_ats  $6 max_attempts  $7 timeouts
--   $8 traces  $9 notes  $10 tags  $11 shapes  $12 payloads  $13 dedupes
SELECT ids, skipped
FROM rota.enqueue_jobs(
    $1::text[], $2::text[], $3::smallint[], $4::float8[], $5::timestamptz[], $6::smallint[], $7::real[],
    $8::text[], $9::text[], $10::text[]::json[], $11::integer[], $12::text[]::json[], $13::text[]
);

-- name: work_jobs
-- Finalize what ended and claim the next jobs, in one round trip.
--   $1 pod  $2 incarnation  $3 batch  $4 queue  $5 most  $6 kinds  $7 from_ranks  $8 from_ids
--   $9 done  $10 claims  $11 results  $12 others
SELECT id, claim, attempt, max_attempts, priority, waited, kind, payload, extra
FROM rota.work_jobs(
    $1::uuid, $2::integer, $3::bigint, $4::text, $5::integer, $6::text[], $7::integer[], $8::bigint[],
    $9::bigint[], $10::integer[], $11::json[], $12::jsonb
);

-- name: finalize_jobs
-- Write how runs of this pod ended; gives the ids of those that were not ours to end.
--   $1 pod  $2 incarnation  $3 done  $4 claims  $5 results  $6 others
SELECT rota.finalize_jobs($1::uuid, $2::integer, $3::bigint[], $4::integer[], $5::json[], $6::jsonb);

-- name: claim_alone
--   $1 pod  $2 incarnation  $3 batch  $4 queue  $5 job
SELECT id, claim, attempt, max_attempts, priority, waited, kind, payload, extra
FROM rota.claim_alone($1::uuid, $2::integer, $3::bigint, $4::text, $5::bigint);

-- name: settle_batches
-- Give up every claim numbered below $3 whose batch is not known here, and release what it took.
--   $1 pod  $2 incarnation  $3 next_batch  $4 known
SELECT rota.settle_batches($1::uuid, $2::integer, $3::bigint, $4::bigint[]);

-- name: promote_jobs
--   $1 leader  $2 epoch  $3 timeline  $4 most
SELECT moved, next_in FROM rota.promote_jobs($1::uuid, $2::bigint, $3::integer, $4::integer);

-- name: write_progress
-- Progress of runs that are still this pod's.
--   $1 pod  $2 incarnation  $3 jobs  $4 claims  $5 progress
SELECT rota.write_progress($1::uuid, $2::integer, $3::bigint[], $4::integer[], $5::json[]);

-- name: cancel_job
--   $1 job  $2 reason
SELECT rota.cancel_job($1::bigint, $2::text);

-- name: retry_job
--   $1 job
SELECT outcome, other FROM rota.retry_job($1::bigint);

-- name: await_job
-- Ask that the end of a job be told; only awaited jobs notify.
--   $1 job
SELECT rota.await_job($1::bigint);

-- name: read_job
--   $1 job
SELECT id, created_at, scheduled_at, claimed_at, ended_at, claim, state, timeout, priority, attempt, max_attempts,
       rescues, cancelling, pod, queue, kind, payload, dedupe, trace, note, tags, progress, errors, result
FROM rota.read_job($1::bigint);

-- name: list_jobs
-- The newest first; a null leaves that condition out.
--   $1 states  $2 queue  $3 kind  $4 tag  $5 before  $6 most
SELECT id, created_at, scheduled_at, claimed_at, ended_at, claim, state, timeout, priority, attempt, max_attempts,
       rescues, cancelling, pod, queue, kind, payload, dedupe, trace, note, tags, progress, errors, result
FROM rota.any_job
WHERE ($1::text[] IS NULL OR state = ANY ($1::text[]::rota.job_state[]))
  AND ($2::text IS NULL OR queue = $2::text)
  AND ($3::text IS NULL OR kind = $3::text)
  AND ($4::text IS NULL OR $4::text = ANY (tags))
  AND ($5::bigint IS NULL OR id < $5::bigint)
ORDER BY id DESC
LIMIT $6::integer;

-- name: count_jobs
-- Waiting and running jobs by queue, kind and state, with the oldest ready one's age in seconds.
SELECT queue, kind, state::text AS state, count(*) AS jobs,
       extract(epoch FROM rota.clock() - min(scheduled_at))::float8 AS oldest
FROM rota.job
GROUP BY queue, kind, state
ORDER BY queue, kind, state;

-- name: list_orphan_kinds
-- Kinds of which jobs are ready in a queue and which no pod can run. Steps from one kind to
-- the next through the claim index, so that its cost grows with kinds and not with jobs.
WITH RECURSIVE waiting AS (
    SELECT queue.name AS queue,
           (SELECT kind FROM rota.job WHERE job.queue = queue.name AND state = 'ready' ORDER BY kind LIMIT 1) AS kind
    FROM rota.queue
    UNION ALL
    SELECT waiting.queue,
           (SELECT job.kind
            FROM rota.job
            WHERE job.queue = waiting.queue AND state = 'ready' AND job.kind > waiting.kind
            ORDER BY job.kind
            LIMIT 1)
    FROM waiting
    WHERE waiting.kind IS NOT NULL
)
SELECT queue, kind
FROM waiting
WHERE kind IS NOT NULL
  AND NOT EXISTS (SELECT FROM rota.pod WHERE waiting.queue = ANY (queues) AND waiting.kind = ANY (kinds));
