"""How long a failed job waits before it is tried again. Pure: chance comes in as a number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from rota.errors import BadOption

JITTER = 0.25
"""A delay is spread by a quarter either way, so that jobs that failed together do not return together."""

LONGEST = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Retry(ABC):
    """A retry policy; `delay` is what attempt number n (from 1) waits before n + 1."""

    policy: ClassVar[str]
    retries: ClassVar[bool] = True

    @abstractmethod
    def delay(self, attempt: int) -> float: ...

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)) or not 0 <= value <= LONGEST:
                raise BadOption(
                    f"{field.name} of {type(self).__name__} is {value!r}; "
                    "it must be between 0 and a year in seconds."
                )

    def to_json(self) -> dict[str, Any]:
        return {"policy": self.policy, **asdict(self)}


@dataclass(frozen=True, slots=True)
class NoRetry(Retry):
    """The first failure is the last."""

    policy: ClassVar[str] = "none"
    retries: ClassVar[bool] = False

    def delay(self, attempt: int) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class Fixed(Retry):
    """The same wait every time."""

    policy: ClassVar[str] = "fixed"
    wait: float = 60.0

    def delay(self, attempt: int) -> float:
        return self.wait


@dataclass(frozen=True, slots=True)
class Linear(Retry):
    """One step more every time."""

    policy: ClassVar[str] = "linear"
    step: float = 30.0
    longest: float = 900.0

    def delay(self, attempt: int) -> float:
        return min(self.step * attempt, self.longest)


@dataclass(frozen=True, slots=True)
class Exponential(Retry):
    """`base × factor^(attempt − 1)`, at most `longest`."""

    policy: ClassVar[str] = "exponential"
    base: float = 1.0
    factor: float = 2.0
    longest: float = 900.0

    def delay(self, attempt: int) -> float:
        try:
            return min(self.base * self.factor ** (attempt - 1), self.longest)
        except OverflowError:
            return self.longest if self.base else 0.0


POLICIES: dict[str, type[Retry]] = {kind.policy: kind for kind in (NoRetry, Fixed, Linear, Exponential)}
DEFAULT = Exponential()


def policy_from_json(told: Any) -> Retry | None:
    """The policy a queue's row names, or None where it names none."""
    if told is None:
        return None
    named = dict(told) if isinstance(told, dict) else {}
    name = named.pop("policy", told)
    kind = POLICIES.get(name) if isinstance(told, dict) and isinstance(name, str) else None
    if kind is None:
        raise BadOption(f"{name!r} is no retry policy; take one of {', '.join(POLICIES)}.")
    try:
        return kind(**named)
    except TypeError:
        known = ", ".join(field.name for field in fields(kind)) or "nothing"
        raise BadOption(f"Retry policy {kind.policy} takes {known}, not {', '.join(named)}.") from None


def spread(delay: float, chance: float) -> float:
    """The delay with its jitter; `chance` is between 0 and 1."""
    return delay * (1 - JITTER + 2 * JITTER * chance)
