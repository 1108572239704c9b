"""A child process of the harness: started ready, asked line by line, stopped or killed."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
LONGEST_ANSWER = 2**26


class ChildFailed(Exception):
    """A child did not do what it was asked; the message ends with what it logged."""


class Child:
    """One measured program, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, module: str, log: IO[bytes]) -> None:
        self._process = process
        self._module = module
        self._log = log

    @classmethod
    async def start(cls, python: Path, module: str, options: Mapping[str, Any]) -> Child:
        """Start the program and wait until it is ready."""
        log = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the child)
        process = await asyncio.create_subprocess_exec(
            python, "-m", module, json.dumps(options),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
            cwd=ROOT, env=_environment(), limit=LONGEST_ANSWER,
        )  # fmt: skip
        child = cls(process, module, log)
        try:
            await child._answer()
        except BaseException:
            await child.kill()
            raise
        return child

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Have one command done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        return await self._answer()

    async def stop(self) -> None:
        """Let it leave in good order; kill it if it does not."""
        try:
            await self.ask("stop")
            async with asyncio.timeout(PATIENCE):
                await self._process.wait()
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End it now, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._log.close()

    def check(self) -> None:
        """Raise if it has ended by itself."""
        if self._process.returncode is not None:
            raise self._failed(f"ended with code {self._process.returncode}")

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise self._failed(f"gave no answer in {PATIENCE:g} s") from None
        if not line:
            raise self._failed("ended instead of answering")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer

    def _failed(self, what: str) -> ChildFailed:
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace").splitlines()[-15:]
        return ChildFailed("\n    ".join([f"{self._module}: {what}", *tail]))


async def run_to_end(python: Path, module: str, options: Mapping[str, Any]) -> None:
    """Run a program that answers nothing."""
    process = await asyncio.create_subprocess_exec(
        python, "-m", module, json.dumps(options),
        cwd=ROOT, env=_environment(), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    if process.returncode:
        raise ChildFailed(f"{module}: {errors.decode(errors='replace').strip()}")


def _environment() -> dict[str, str]:
    """Ours, without settings that would make a contender other than it is by default."""
    ours = ("ROTA_", "PGQUEUER_", "OTEL_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT)}
