-- name: probe_notices
-- A notice to ourselves, to see whether notices arrive at all.
--   $1 token
SELECT rota.notice('probe', $1::text);

-- name: still_there
SELECT true;
