-- name: register_pod
--   $1 pod  $2 name  $3 queues  $4 kinds  $5 capacity  $6 zone  $7 version  $8 ttl  $9 most_rescues
SELECT rota.register_pod(
    $1::uuid, $2::text, $3::text[], $4::text[], $5::integer, $6::text, $7::text, $8::float8, $9::integer
);

-- name: beat
--   $1 pod  $2 incarnation  $3 ttl
SELECT state::text AS state, cancels, ready, queues FROM rota.beat($1::uuid, $2::integer, $3::float8);

-- name: drain_pod
--   $1 pod  $2 incarnation
SELECT rota.drain_pod($1::uuid, $2::integer);

-- name: leave_pod
--   $1 pod  $2 incarnation
SELECT rota.leave_pod($1::uuid, $2::integer);

-- name: expire_pods
--   $1 most_rescues
SELECT expired, rescued FROM rota.expire_pods($1::integer);

-- name: list_pods
SELECT id, incarnation, name, state::text AS state, zone, version, capacity, queues, kinds,
       extract(epoch FROM expires_at - rota.clock())::float8 AS expires_in,
       extract(epoch FROM rota.clock() - registered_at)::float8 AS age,
       (SELECT count(*) FROM rota.job WHERE job.pod = pod.id AND job.state = 'running') AS running
FROM rota.pod
ORDER BY registered_at, id;
