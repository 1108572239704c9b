"""Every knob, its default and its reason.

Read once, at the edge, from ROTA_<SECTION>_<FIELD> (ROTA_DATABASE_URL, ROTA_POD_CAPACITY);
each part is handed only its own section. All times are seconds.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rota.errors import BadName, BadSettings

EMBEDDED = "embedded"
"""The database URL that asks for the embedded Postgres."""

_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,128}")
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class DatabaseSettings:
    """Where Postgres is and how it is talked to."""

    url: str | None = Field(
        default=None,
        repr=False,
        description="DSN, or `embedded`; no default, so that a missing secret is noticed",
    )
    direct_url: str | None = Field(
        default=None, repr=False, description="DSN past a transaction pooler, for LISTEN; default: the url"
    )
    password_file: str | None = Field(
        default=None,
        description="a file that holds the password, read at each connect, so that it can be rotated",
    )
    schema: str = Field(default="rota", description="where Rota's tables are; two Rotas can share a database")
    pool_size: int = Field(
        default=4,
        ge=1,
        le=100,
        description="connections for jobs; two lanes do nearly all, the rest is for calls",
    )
    statement_cache: int = Field(
        default=100,
        ge=0,
        description="prepared statements kept per connection; 0 behind PgBouncer before 1.21",
    )
    connect_timeout: float = Field(
        default=10.0, gt=0, description="a host that drops packets must not hang a start"
    )
    command_timeout: float = Field(
        default=30.0, gt=0, description="a statement that no one answers is given up, its outcome unknown"
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class PodSettings:
    """This replica."""

    prefix: str = Field(default="rota", description="first part of the pod's name")
    version: str = Field(default="", description="second part of the name, left out when empty; your release")
    id: str = Field(default="", description="last part of the name; default: four hex digits of the pod id")
    uid: str = Field(
        default="", description="the Kubernetes pod UID (downward API); empty: a random identity"
    )
    container: str = Field(
        default="", description="the container's name, part of the identity beside the uid"
    )
    zone: str = Field(default="", description="where it runs, to spread and to show")
    capacity: int = Field(default=256, ge=1, le=100_000, description="slots in all, whatever queues ask for")
    capacities: dict[str, int] = Field(
        default_factory=dict, description='slots of single queues, as JSON: {"reports": 2}'
    )
    lanes: int = Field(
        default=2, ge=1, le=16, description="claims under way at once per queue; two saturate Postgres"
    )
    processes: int = Field(
        default=0, ge=0, le=256, description="children for process=True handlers; 0: one per core"
    )
    grace: float = Field(
        default=25.0, ge=0, description="a drain waits so long for running jobs; fits Kubernetes' 30 s"
    )
    beat: float = Field(default=2.0, gt=0, description="how often the pod says that it lives")
    ttl: float = Field(default=10.0, gt=0, description="a pod silent for so long has lost its jobs")
    fence: Literal["auto", "cancel", "exit"] = Field(
        default="auto",
        description=(
            "what a pod does that cannot reach the database: cancel its handlers, or end when they do not; "
            "auto: exit under Kubernetes and where sync handlers are registered"
        ),
    )
    poll: float = Field(
        default=0.5, gt=0, description="how often to look for work where LISTEN does not work"
    )

    @model_validator(mode="after")
    def _a_ttl_spans_three_beats(self) -> Self:
        if self.ttl < 3 * self.beat:
            raise ValueError(
                f"the pod TTL ({self.ttl:g} s) must be at least three beats ({self.beat:g} s each)"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class LeaseSettings:
    """The leader's lease."""

    ttl: float = Field(default=5.0, gt=0, description="a leader silent for so long has lost the lease")
    renew: float = Field(default=1.5, gt=0, description="how often the leader renews it")
    plan: float = Field(
        default=5.0, gt=0, description="how often the leader looks at all slots, whatever it is told"
    )

    @model_validator(mode="after")
    def _a_ttl_spans_three_renewals(self) -> Self:
        if self.ttl < 3 * self.renew:
            raise ValueError(
                f"the lease TTL ({self.ttl:g} s) must be at least three renewals ({self.renew:g} s each)"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class JobSettings:
    """What holds for every job unless its kind or the job itself says otherwise."""

    queue: str = Field(default="default", description="the queue of kinds that name none")
    max_workers: int = Field(default=10, ge=0, le=2**31 - 1, description="cap of a queue that no one has set")
    max_attempts: int = Field(default=5, ge=1, le=32_000, description="runs before a failing job is dead")
    timeout: float | None = Field(
        default=None, gt=0, description="no default: only the author knows how long is long"
    )
    max_payload: int = Field(
        default=1024 * 1024,
        ge=2,
        description="bytes of JSON; larger things belong into a store, their key into a job",
    )
    max_rescues: int = Field(
        default=3, ge=1, description="a job that lost its pod so often is dead, not tried again"
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class LogSettings:
    """How facts are told."""

    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, JSON elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="single jobs are debug"
    )


class Settings(BaseSettings):
    """All of it; frozen, and refused as a whole when any part is wrong."""

    model_config = SettingsConfigDict(
        env_prefix="ROTA_", env_nested_delimiter="_", env_nested_max_split=1, frozen=True, extra="forbid"
    )

    app: str = Field(default="", description="module:attribute of the App, for the command line")
    queues: Annotated[tuple[str, ...], NoDecode] = Field(default=(), description="queues this pod serves")
    lead: bool = Field(default=True, description="whether this pod may lead; one that may must be up")
    database: DatabaseSettings = DatabaseSettings()
    pod: PodSettings = PodSettings()
    lease: LeaseSettings = LeaseSettings()
    job: JobSettings = JobSettings()
    log: LogSettings = LogSettings()

    @field_validator("queues", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        names = value.split(",") if isinstance(value, str) else value
        if isinstance(names, (list, tuple)):
            names = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
        return names

    @classmethod
    def load(cls, **given: Any) -> Settings:
        """Settings from the environment and these values, or BadSettings in one sentence."""
        try:
            return cls(**given)
        except ValidationError as error:
            raise BadSettings(_sentence(error)) from None

    def with_database(self, **changes: Any) -> Settings:
        """The same settings with another database section."""
        return self.model_copy(update={"database": replace(self.database, **changes)})

    @classmethod
    def for_tests(cls) -> Settings:
        """Quick beats and a short drain, so that a test of a crash does not take ten seconds."""
        return cls.load(
            pod=PodSettings(beat=0.5, ttl=3.0, grace=2.0, poll=0.05, fence="cancel"),
            lease=LeaseSettings(ttl=1.5, renew=0.5, plan=0.5),
        )


def under_kubernetes() -> bool:
    """Whether this process runs in a Kubernetes pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def check_name(what: str, name: object) -> str:
    """A queue's or kind's name, or BadName: the same rule as rota.check_name in SQL."""
    if not isinstance(name, str) or not _PLAIN.fullmatch(name) or name != name.strip():
        raise BadName(
            f"The {what} name {name!r} cannot be used; take 1 to 128 characters without "
            "control characters or space at the ends."
        )
    return name


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    where = "ROTA_" + "_".join(str(part) for part in first["loc"]).upper()
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{where} is not a setting of Rota; look for a typing error or unset it."
    return f"{where} cannot be used: {what[:1].lower()}{what[1:]}."
