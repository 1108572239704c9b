"""The only code that talks to Postgres.

`pool` opens connections and runs named queries, which `queries` reads from `sql/`; `failures`
tells asyncpg's errors in Rota's words. One file per table above that: `jobs`, `queues`, `pods`;
`notices` listens; `migrate` brings the schema up. What moves a job through its life are the
functions in `migrations/`. `embedded` and its neighbours run a Postgres of our own.
"""
