-- name: write_create_database
-- The statement that creates a database, or no row if there is one of that name: its name is no
-- parameter in any dialect, so that Postgres itself does the quoting.
--   $1 database
SELECT format('CREATE DATABASE %I', $1::text)
WHERE NOT EXISTS (
    SELECT
    FROM pg_catalog.pg_database
    WHERE datname = $1::text
);
