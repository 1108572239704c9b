"""How a run ends, and what that means for its job. Pure: a fact goes in, an Ending comes out.

A handler returns (`done`, with the value as result) or raises. What it may raise, or
return, to say more:

    Release(delay)           back to waiting, attempt not counted
    Throttled(retry_after)   the same, and the whole queue cools down
    Failed(reason)           a failure without a traceback; retried by policy
    Dead(reason)             dead at once
    Cancelled(reason)        cancelled

Any other exception is a failure: retried by the kind's policy, else the queue's, else
exponentially, and dead when its attempts are used up.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from .backoff import DEFAULT, LONGEST, Retry, spread

COOL_DOWN = 60.0
"""Seconds a throttled queue rests when the upstream gave no hint."""

_LONGEST_MESSAGE = 2_000
_LONGEST_TRACE = 8_000


class Outcome(Exception):
    """Base of what a handler may raise or return to say how the run ended."""


class Release(Outcome):
    """Hand the job back; the attempt is not counted."""

    def __init__(self, delay: float = 0.0) -> None:
        super().__init__(delay)
        self.delay = delay


class Throttled(Outcome):
    """An upstream asked for patience: the job goes back uncounted and its queue cools down."""

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class Failed(Outcome):
    """The run failed for a known reason; retried by policy."""


class Dead(Outcome):
    """The job can never succeed."""


class Cancelled(Outcome):
    """The job is no longer wanted."""


class TimedOut(Exception):
    """The handler was stopped at its timeout."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides over a failed run."""

    attempt: int
    max_attempts: int
    retry: Retry
    fatal: tuple[type[BaseException], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the job: the words of rota.finalize_jobs."""

    outcome: str
    delay: float = 0.0
    error: dict[str, Any] | None = None

    @property
    def reason(self) -> str | None:
        return self.error["message"] if self.error else None


RELEASED = Verdict("release")


def judge(raised: BaseException, policy: Policy, chance: float) -> Verdict:
    """What a run that did not simply return means for its job."""
    match raised:
        case Release():
            return Verdict("release", _sane(raised.delay))
        case Throttled():
            return Verdict("throttle", _sane(raised.retry_after, COOL_DOWN))
        case Cancelled():
            return Verdict("cancelled", error=_told(raised))
        case Dead():
            return Verdict("dead", error=_told(raised))
    if isinstance(raised, policy.fatal) or not policy.retry.retries or policy.attempt >= policy.max_attempts:
        return Verdict("dead", error=_told(raised))
    told = _told(raised)
    try:
        delay = policy.retry.delay(policy.attempt)
    except Exception as error:
        # A policy of the user's own: its failure is told, and must not cost the job its retry.
        delay, told["retry_policy"] = DEFAULT.delay(policy.attempt), f"failed: {_words(error)}"
    return Verdict("retry", spread(_sane(delay), chance), told)


def _told(raised: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {
        "type": type(raised).__qualname__,
        "message": _words(raised),
    }
    if not isinstance(raised, (Outcome, TimedOut)) and raised.__traceback__ is not None:
        told["traceback"] = _clean("".join(traceback.format_exception(raised)))[-_LONGEST_TRACE:]
    return told


def _words(raised: BaseException) -> str:
    kind = type(raised).__qualname__
    try:
        words = str(raised) or kind
    except Exception:
        words = f"{kind}, which fails to say more"
    return _clean(words[:_LONGEST_MESSAGE])


def _clean(text: str) -> str:
    """Text that Postgres takes: no NUL, no lone surrogate."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\N{SYMBOL FOR NULL}")


def _sane(delay: Any, otherwise: float = 0.0) -> float:
    """A number of the user's own, kept within reason; what is no number at all is `otherwise`."""
    try:
        number = float(delay)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return min(max(number, 0.0), LONGEST) if number == number else otherwise
