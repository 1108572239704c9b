-- name: take_lease
--   $1 pod  $2 terms
SELECT won, epoch, timeline, expires_in FROM rota.take_lease($1::uuid, $2::float8);

-- name: renew_lease
--   $1 pod  $2 epoch  $3 timeline  $4 terms
SELECT clock, started, settling, expiry_in
FROM rota.renew_lease($1::uuid, $2::bigint, $3::integer, $4::float8);

-- name: resign_lease
--   $1 pod  $2 epoch  $3 timeline
SELECT rota.resign_lease($1::uuid, $2::bigint, $3::integer);
