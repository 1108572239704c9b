-- name: declare_queues
-- Create queues with the defaults that code gives; what operators set since is never overwritten.
--   $1 names  $2 max_workers  $3 retries
INSERT INTO rota.queue (name, max_workers, retry)
SELECT name, max_workers, retry
FROM unnest($1::text[], $2::integer[], $3::jsonb[]) AS declared (name, max_workers, retry)
ORDER BY name
ON CONFLICT (name) DO NOTHING;

-- name: list_queues
SELECT name, max_workers, paused, retry, cool_until > rota.clock() AS cooling
FROM rota.queue
ORDER BY name;
