"""A PgBouncer in transaction mode before the test's Postgres."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import asyncpg

from rota.storage.unprivileged import server_account
from tests.support.tools import need_tool

PATIENCE = 20.0
CONFIG = """
[databases]
{database} = host={host} port={port} dbname={database} user={user}{password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
"""


@asynccontextmanager
async def pooler(dsn: str, directory: Path, *, size: int) -> AsyncIterator[str]:
    """The DSN of a pooler that shares so many connections among all its clients."""
    there, listen = urlsplit(dsn), _free_port()
    with _running(_configure(there, directory, listen, size)) as process:
        pooled = there._replace(netloc=f"{there.username or 'postgres'}@127.0.0.1:{listen}").geturl()
        await _until_it_answers(pooled, process)
        yield pooled


def _configure(there: SplitResult, directory: Path, listen: int, size: int) -> Path:
    config = directory / "pgbouncer.ini"
    config.write_text(
        CONFIG.format(
            database=there.path.removeprefix("/"),
            host=there.hostname,
            port=there.port or 5432,
            user=unquote(there.username or "postgres"),
            password=f" password={unquote(there.password)}" if there.password else "",
            listen=listen,
            size=size,
        )
    )
    return config


@contextmanager
def _running(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(need_tool("pgbouncer")), str(config)]
    if os.geteuid() == 0:  # It refuses to run as root, as Postgres does.
        command[1:1] = ["-u", server_account(config.with_name("none")).name]
    with config.with_name("pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


async def _until_it_answers(dsn: str, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.poll() is None, "PgBouncer has ended; see pgbouncer.log"
            try:
                connection = await asyncpg.connect(dsn, statement_cache_size=0)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                await connection.close()
                return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
