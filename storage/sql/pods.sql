-- name: read_incarnation
-- Which boot of a pod is registered; a new one names it when it takes its place.
--   $1 pod
SELECT incarnation
FROM rota.pod
WHERE id = $1::uuid;

-- name: register_pod
--   $1 pod  $2 replaces  $3 machine  $4 name  $5 queues  $6 kinds  $7 capacity  $8 capacities
--   $9 zone  $10 version  $11 ttl  $12 most_rescues
SELECT booted, wait_in, standing AS found
FROM rota.register_pod(
    $1::uuid, $2::integer, $3::text, $4::text, $5::text[], $6::text[], $7::integer, $8::jsonb,
    $9::text, $10::text, $11::float8, $12::integer
);

-- name: beat
--   $1 pod  $2 incarnation  $3 heard  $4 heard_on  $5 busy  $6 acts  $7 uses  $8 sharing  $9 knows
SELECT state::text AS state, answer, timeline, targeted, targets, cancels, ready, lone, lone_queue, settings, digest,
       leader, lease_in
FROM rota.beat(
    $1::uuid, $2::integer, $3::bigint, $4::integer, $5::text[], $6::integer[], $7::integer[], $8::text[], $9::text
);

-- name: drain_pod
--   $1 pod  $2 incarnation, or NULL for whichever there is
SELECT rota.drain_pod($1::uuid, $2::integer);

-- name: leave_pod
--   $1 pod  $2 incarnation
SELECT rota.leave_pod($1::uuid, $2::integer);

-- name: expire_pods
--   $1 leader  $2 epoch  $3 timeline  $4 most_rescues
SELECT expired::text[], rescued FROM rota.expire_pods($1::uuid, $2::bigint, $3::integer, $4::integer);

-- name: sweep_pods
-- By hand, without a leader: `rota rescue`.
--   $1 most_rescues
SELECT expired::text[], rescued FROM rota.sweep_pods($1::integer);

-- name: is_settling
-- Whether a failover is so recent that nobody may be expired.
SELECT rota.settling();

-- name: list_pods
SELECT id, incarnation, name, state::text AS state, zone, version, capacity, queues, kinds,
       extract(epoch FROM expires_at - rota.clock())::float8 AS expires_in,
       extract(epoch FROM rota.clock() - registered_at)::float8 AS age,
       (SELECT count(*) FROM rota.job WHERE job.pod = pod.id AND job.state = 'running') AS running,
       EXISTS (
           SELECT
           FROM rota.lease
           WHERE lease.name = 'leader' AND holder = pod.id AND lease.expires_at > rota.clock()
       ) AS leads
FROM rota.pod
ORDER BY registered_at, id;

-- name: missing_timeouts
-- Timeouts that the role does not have.
SELECT name
FROM unnest(ARRAY['statement_timeout', 'idle_in_transaction_session_timeout']) AS wanted (name)
WHERE current_setting(name) = '0';
