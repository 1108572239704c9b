-- name: plan_queue
-- Arrays travel as text: for any other type a new connection first has to ask what it is, and
-- the first plan of a new leader is waited for.
--   $1 leader  $2 epoch  $3 timeline  $4 queue  $5 pods  $6 wanted  $7 cause  $8 sentence  $9 also  $10 tell
SELECT changed::text[], granted, revoked
FROM rota.plan_queue(
    $1::uuid, $2::bigint, $3::integer, $4::text, $5::text[]::uuid[], $6::text[]::integer[], $7::text, $8::text,
    $9::text[]::uuid[], $10::boolean
);

-- name: read_view
-- All that a plan is made from, in one snapshot. Expired pods are in it until a leader removes
-- them, since what they hold still counts; they get nothing new.
SELECT (SELECT json_agg(json_build_array(
                   name, max_workers, paused,
                   (SELECT in_force_at IS NULL
                    FROM rota.cap_change
                    WHERE cap_change.queue = queue.name
                    ORDER BY cap_change.id DESC
                    LIMIT 1)))
        FROM rota.queue) AS queues,
       (SELECT json_agg(json_build_array(
                   id, name, queues, capacity, capacities, state = 'draining', expires_at <= rota.clock(), version)
               ORDER BY registered_at, id)
        FROM rota.pod) AS pods,
       (SELECT json_agg(json_build_array(queue, pod, target, held, acting)) FROM rota.assignment) AS assignments;

-- name: list_assignments
-- Who has the slots: what each pod should have, holds and runs of each queue it serves.
SELECT served.queue, pod.id AS pod, pod.name,
       CASE WHEN expires_at > rota.clock() THEN pod.state::text ELSE 'silent' END AS state,
       coalesce(target, 0) AS target, coalesce(held, 0) AS held, coalesce(acting, 0) AS acting,
       (SELECT count(*)
        FROM rota.job
        WHERE job.pod = pod.id AND job.state = 'running' AND job.queue = served.queue) AS running
FROM rota.pod
CROSS JOIN unnest(pod.queues) AS served (queue)
LEFT JOIN rota.assignment ON assignment.pod = pod.id AND assignment.queue = served.queue
ORDER BY served.queue, registered_at, pod.id;

-- name: list_plans
--   $1 queue, or NULL for all  $2 most
SELECT at, epoch, queue, granted, revoked, cause, sentence
FROM rota.plan
WHERE $1::text IS NULL OR queue = $1::text
ORDER BY id DESC
LIMIT $2::integer;
