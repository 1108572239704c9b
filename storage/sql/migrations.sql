-- name: find_schema
-- A DBA may have made it; CREATE SCHEMA IF NOT EXISTS would still ask for rights on the database.
--   $1 schema
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_namespace
    WHERE nspname = $1::text
);

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS rota;

-- name: create_migration_table
CREATE TABLE IF NOT EXISTS rota.migration (
    version    integer NOT NULL,
    name       text NOT NULL,
    serves     integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT migration_version_is_unique PRIMARY KEY (version)
);

-- name: find_migration_table
SELECT to_regclass('rota.migration') IS NOT NULL;

-- name: lock_migrations
-- In place of an advisory lock, which a transaction-mode pooler would give to two at once.
LOCK TABLE rota.migration IN EXCLUSIVE MODE;

-- name: read_version
SELECT version, serves
FROM rota.migration
ORDER BY version DESC
LIMIT 1;

-- name: record_migration
--   $1 version  $2 name  $3 serves
INSERT INTO rota.migration (version, name, serves)
VALUES ($1::integer, $2::text, $3::integer);
