-- name: declare_queues
-- Create queues with the defaults that code gives; what operators set since is never overwritten.
--   $1 names  $2 max_workers  $3 retries
WITH made AS (
    INSERT INTO rota.queue (name, max_workers, retry)
    SELECT name, max_workers, retry
    FROM unnest($1::text[], $2::integer[], $3::jsonb[]) AS declared (name, max_workers, retry)
    ORDER BY name
    ON CONFLICT (name) DO NOTHING
    RETURNING name, max_workers, created_at
)
INSERT INTO rota.cap_change (queue, cap, asked_at, in_force_at)
SELECT name, max_workers, created_at, created_at
FROM made;

-- name: list_queues
SELECT name, max_workers, paused, retry, cool_until > rota.clock() AS cooling
FROM rota.queue
ORDER BY name;

-- name: change_queue
--   $1 queue  $2 max_workers, or NULL  $3 paused, or NULL  $4 retry policy, or NULL; JSON's null takes it away
SELECT change, cap, in_force FROM rota.change_queue($1::text, $2::integer, $3::boolean, $4::jsonb);

-- name: confirm_cap
-- For a cap that holds while nobody leads, and so nobody plans.
--   $1 queue
SELECT rota.confirm_cap($1::text);

-- name: read_cap_change
-- Whether a change holds, is noted to be in force, or a later one has taken its place; no row: it is pruned.
--   $1 change
SELECT in_force_at IS NOT NULL AS in_force,
       rota.cap_holds(queue, cap) AS holds,
       extract(epoch FROM coalesce(in_force_at, rota.clock()) - asked_at)::float8 AS took,
       extract(epoch FROM rota.clock() - asked_at)::float8 AS age,
       EXISTS (
           SELECT FROM rota.cap_change AS later WHERE later.queue = cap_change.queue AND later.id > cap_change.id
       ) AS overtaken
FROM rota.cap_change
WHERE id = $1::bigint;

-- name: list_cap_changes
--   $1 queue  $2 most
SELECT id, cap, asked_at, in_force_at
FROM rota.cap_change
WHERE queue = $1::text
ORDER BY id DESC
LIMIT $2::integer;
