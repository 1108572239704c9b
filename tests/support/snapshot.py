"""The migrated schema as text, the same from PostgreSQL 14 to 18: `storage/schema.sql`.

`python -m tests.support.snapshot` writes it anew. pg_dump's text changes with its version, so the
catalog is read instead.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncpg

SNAPSHOT = Path(__file__).resolve().parents[2] / "storage" / "schema.sql"
HEAD = """\
-- The schema as all migrations leave it, to read and to compare; nothing executes this file.
-- Written by `python -m tests.support.snapshot`; a test says when it is not true.
"""

TYPES = """
    SELECT format(
        'CREATE TYPE rota.%I AS ENUM (%s);',
        type.typname,
        string_agg(quote_literal(label.enumlabel), ', ' ORDER BY label.enumsortorder)
    )
    FROM pg_type AS type
    JOIN pg_enum AS label ON label.enumtypid = type.oid
    WHERE type.typnamespace = 'rota'::regnamespace
    GROUP BY type.typname
    ORDER BY type.typname COLLATE "C"
"""
# An identity's sequence comes with its column.
SEQUENCES = """
    SELECT format('CREATE SEQUENCE rota.%I AS %s;', class.relname, format_type(sequence.seqtypid, NULL))
    FROM pg_sequence AS sequence
    JOIN pg_class AS class ON class.oid = sequence.seqrelid
    WHERE class.relnamespace = 'rota'::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = class.oid AND deptype = 'i')
    ORDER BY class.relname COLLATE "C"
"""
# Not-null constraints (contype n) are rows of the catalog only since PostgreSQL 18.
TABLES = """
    SELECT format(E'CREATE TABLE rota.%I (\n%s\n)%s;', class.relname, (
        SELECT string_agg('    ' || part, E',\n' ORDER BY kind, place, name COLLATE "C")
        FROM (
            SELECT 0 AS kind, attnum AS place, '' AS name, concat_ws(
                ' ',
                quote_ident(attname),
                format_type(atttypid, atttypmod),
                (SELECT 'COLLATE ' || quote_ident(collname) FROM pg_collation
                 WHERE oid = attcollation AND collname <> 'default'),
                CASE WHEN attnotnull THEN 'NOT NULL' END,
                CASE attidentity WHEN 'a' THEN 'GENERATED ALWAYS AS IDENTITY' END,
                (SELECT 'DEFAULT ' || pg_get_expr(adbin, adrelid) FROM pg_attrdef
                 WHERE adrelid = attrelid AND adnum = attnum)
            ) AS part
            FROM pg_attribute
            WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped
            UNION ALL
            SELECT 1, 0, conname, format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid))
            FROM pg_constraint
            WHERE conrelid = class.oid AND contype <> 'n'
        ) AS parts
    ), (SELECT format(E' WITH (\n    %s\n)', string_agg(option, E',\n    ' ORDER BY option COLLATE "C"))
        FROM unnest(class.reloptions) AS option HAVING count(*) > 0))
    FROM pg_class AS class
    WHERE class.relnamespace = 'rota'::regnamespace AND class.relkind = 'r'
    ORDER BY class.relname COLLATE "C"
"""
INDEXES = """
    SELECT pg_get_indexdef(class.oid) || ';'
    FROM pg_class AS class
    WHERE class.relnamespace = 'rota'::regnamespace
      AND class.relkind = 'i'
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = class.oid)
    ORDER BY class.relname COLLATE "C"
"""
FUNCTIONS = """
    SELECT pg_get_functiondef(oid) || ';'
    FROM pg_proc
    WHERE pronamespace = 'rota'::regnamespace
    ORDER BY proname COLLATE "C", pg_get_function_identity_arguments(oid) COLLATE "C"
"""
VIEWS = """
    SELECT format(E'CREATE VIEW rota.%I AS\n%s', relname, pg_get_viewdef(oid, 0))
    FROM pg_class
    WHERE relnamespace = 'rota'::regnamespace AND relkind = 'v'
    ORDER BY relname COLLATE "C"
"""
COMMENTS = """
    SELECT format(E'COMMENT ON COLUMN rota.%I.%I IS\n    %L;', class.relname, attname, description)
    FROM pg_description
    JOIN pg_class AS class ON class.oid = objoid AND classoid = 'pg_class'::regclass
    JOIN pg_attribute ON attrelid = class.oid AND attnum = objsubid
    WHERE class.relnamespace = 'rota'::regnamespace
    ORDER BY class.relname COLLATE "C", attnum
"""
TRIGGERS = """
    SELECT pg_get_triggerdef(trigger.oid) || ';'
    FROM pg_trigger AS trigger
    JOIN pg_class AS class ON class.oid = tgrelid
    WHERE class.relnamespace = 'rota'::regnamespace AND NOT tgisinternal
    ORDER BY class.relname COLLATE "C", tgname COLLATE "C"
"""


async def read_schema(connection: asyncpg.Connection) -> str:
    """Everything in the schema rota, as SQL."""
    parts = [HEAD]
    async with connection.transaction():
        # With nothing on the path, every name is printed with its schema.
        await connection.execute("SET LOCAL search_path = ''")
        for query in (TYPES, SEQUENCES, TABLES, INDEXES, TRIGGERS, FUNCTIONS, COMMENTS):
            parts += [row[0] for row in await connection.fetch(query)]
        parts += [_plain(row[0]) for row in await connection.fetch(VIEWS)]
    return "\n\n".join(_tidy(part) for part in parts) + "\n"


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _plain(view: str) -> str:
    """Without the table's name before a column, which PostgreSQL 16 began to leave out."""
    return re.sub(r"(?<![\w.])(?!rota\.)\w+\.(?=\w)", "", view)


async def _write() -> None:
    from tests.support.postgres import Databases, test_server  # noqa: PLC0415

    with test_server() as server, Databases(server) as databases, databases.migrated() as dsn:
        connection = await asyncpg.connect(dsn)
        SNAPSHOT.write_text(await read_schema(connection), encoding="utf-8")
        await connection.close()


if __name__ == "__main__":
    asyncio.run(_write())
    print(f"wrote {SNAPSHOT}")
