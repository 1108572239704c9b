"""What a handler sees of its run, and what the runtime keeps about it: one object per job."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rota.errors import BadOption
from rota.telemetry import job_logger

from ..storage.rows import Ending
from .outcome import Cancelled, Verdict

if TYPE_CHECKING:
    from .claimer import Claimer


class Context:
    """One run of one job.

    `claim` rises with every claim of the job: pass it to external systems to fence off
    writes of a run that has lost its job.
    """

    __slots__ = (
        "_claimer",
        "_entered",
        "_extra",
        "_stop",
        "_task",
        "attempt",
        "batch",
        "claim",
        "ended",
        "id",
        "kind",
        "max_attempts",
        "priority",
        "result",
        "sent_before",
        "slot",
        "started",
        "verdict",
        "waited",
    )

    def __init__(
        self,
        claimer: Claimer,
        batch: int,
        slot: int,
        started: float,
        id: int,
        claim: int,
        attempt: int,
        max_attempts: int,
        priority: int,
        waited: float,
        kind: str,
        extra: str | None,
    ) -> None:
        self._claimer = claimer
        self._task: asyncio.Task[None] | None = None
        self._entered = False
        self._stop: str | None = None
        self._extra = extra
        self.batch = batch
        self.slot = slot
        self.started = started
        self.id = id
        self.claim = claim
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.priority = priority
        self.waited = waited
        self.kind = kind
        self.verdict: Verdict | None = None
        self.result: str | None = None
        self.sent_before = False
        self.ended = started

    def __repr__(self) -> str:
        return f"<Context {self.kind} job={self.id} attempt={self.attempt} claim={self.claim}>"

    @property
    def outcome(self) -> str:
        """How it ended, in the words of rota.finalize_jobs."""
        return "done" if self.verdict is None else self.verdict.outcome

    @property
    def reason(self) -> str | None:
        """What went wrong, where something did."""
        return None if self.verdict is None else self.verdict.reason

    def ending(self) -> Ending:
        """How it ended, for the database; not for a plain `done`."""
        verdict = self.verdict
        assert verdict is not None
        return Ending(self.id, self.claim, verdict.outcome, verdict.delay, verdict.error)

    @property
    def queue(self) -> str:
        return self._claimer.queue

    @property
    def app(self) -> Any:
        """The App this handler belongs to."""
        return self._claimer.app

    @property
    def pod(self) -> UUID:
        return self._claimer.membership.pod

    @property
    def incarnation(self) -> int:
        """The boot of the pod that runs this."""
        return self._claimer.membership.incarnation

    @property
    def worker(self) -> str:
        """`{queue}-{slot}-{pod}`, as shown in logs."""
        return f"{self.queue}-{self.slot}-{self._claimer.membership.name}"

    @property
    def note(self) -> str | None:
        """Why it was enqueued, in the words of whoever did."""
        note: str | None = self._more().get("note")
        return note

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._more().get("tags") or ())

    @property
    def dedupe(self) -> str | None:
        key: str | None = self._more().get("dedupe")
        return key

    @property
    def trace(self) -> str | None:
        """The W3C traceparent of the enqueue."""
        trace: str | None = self._more().get("trace")
        return trace

    @property
    def timeout(self) -> float | None:
        """Seconds this run may take, of the job or else of its kind."""
        timeout: float | None = self._more().get("timeout")
        return timeout if timeout is not None else self._claimer.app.handlers[self.kind].timeout

    @property
    def remaining(self) -> float | None:
        """Seconds left before the timeout; None when there is none."""
        timeout = self.timeout
        return None if timeout is None else max(0.0, timeout - (self._claimer.now() - self.started))

    @property
    def ran(self) -> float:
        """Seconds from the handler's start to its end."""
        return self.ended - self.started

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that says which job, attempt and queue it speaks of."""
        return job_logger(self, self.queue)

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop; a handler on a thread should look now and then."""
        return self._stop is not None

    def raise_if_cancelled(self) -> None:
        """End here if this run was asked to stop."""
        if self._stop is not None:
            raise Cancelled(f"stopped: {self._stop}")

    def progress(self, done: float, note: str | None = None, **more: Any) -> None:
        """Say how far it is, from 0 to 1; written soon, at most about once a second."""
        if not 0 <= done <= 1:
            raise BadOption(f"progress is {done!r}; it must be between 0 and 1.")
        told = {"done": done, **({"note": note} if note else {}), **more}
        self._claimer.tell_progress(self, orjson.dumps(told).decode())

    def _more(self) -> dict[str, Any]:
        if self._extra is None:
            return {}
        more: dict[str, Any] = orjson.loads(self._extra)
        return more
