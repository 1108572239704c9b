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
    digest     text,
    CONSTRAINT migration_version_is_unique PRIMARY KEY (version)
);

-- name: find_migration_table
SELECT to_regclass('rota.migration') IS NOT NULL;

-- name: find_digest_column
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_attribute
    WHERE attrelid = to_regclass('rota.migration')
      AND attname = 'digest'
      AND NOT attisdropped
);

-- name: add_digest_column
ALTER TABLE rota.migration ADD COLUMN IF NOT EXISTS digest text;

-- name: lock_migrations
-- In place of an advisory lock, which a transaction-mode pooler would give to two at once.
LOCK TABLE rota.migration IN EXCLUSIVE MODE;

-- name: read_migrations
-- The digest by way of jsonb, because tables of the first version lack the column.
SELECT version, serves, to_jsonb(migration) ->> 'digest' AS digest
FROM rota.migration
ORDER BY version;

-- name: record_migration
--   $1 version  $2 name  $3 serves  $4 digest
INSERT INTO rota.migration (version, name, serves, digest)
VALUES ($1::integer, $2::text, $3::integer, $4::text);
