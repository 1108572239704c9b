"""The handle of an enqueued job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..storage.rows import JobRow
    from .app import App


class Job:
    """A job that was enqueued, or the one that stood in its way."""

    __slots__ = ("_app", "id")
    __match_args__ = ("id",)
    skipped: bool

    def __init__(self, app: App, id: int) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.id, self.skipped) == (other.id, other.skipped)

    def __hash__(self) -> int:
        return hash(self.id)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and give the result; JobFailed when it ends dead or cancelled."""
        return await self._app.result(self.id, timeout=timeout)

    async def status(self) -> JobRow:
        """The job as it stands; JobNotFound when it was pruned."""
        return await self._app.read_job(self.id)

    async def cancel(self, reason: str | None = None) -> str:
        """`cancelled`, `requested` (it runs and was asked to stop), `ended` or `missing`."""
        return await self._app.jobs.cancel_job(self.id, reason)


class Inserted(Job):
    """A new job."""

    __slots__ = ()
    skipped = False


class Skipped(Job):
    """No new job: this one, with the same dedupe key, is waiting or running."""

    __slots__ = ()
    skipped = True
