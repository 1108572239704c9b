"""The only code that talks to Postgres."""
