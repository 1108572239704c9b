"""Rota runs background jobs on a fleet of Python processes over one PostgreSQL."""

from rota.errors import (
    AppClosed,
    BadInput,
    BadName,
    BadOption,
    BadPayload,
    BadSettings,
    CapOvertaken,
    HandlerConflict,
    HandOverTimeout,
    JobFailed,
    JobNotFound,
    QueueExists,
    QueueNotFound,
    ResultTimeout,
    RotaError,
)
from rota.runtime.app import App
from rota.runtime.backoff import Exponential, Fixed, Linear, NoRetry, Retry
from rota.runtime.context import Context
from rota.runtime.handlers import Handler
from rota.runtime.hooks import Change
from rota.runtime.job import Inserted, Job, Skipped
from rota.runtime.outcome import Cancelled, Dead, Failed, Outcome, Release, Throttled
from rota.runtime.routing import by_prefix, to_queue
from rota.settings import Settings
from rota.storage.rows import Request
from rota.words import JobState

__all__ = [
    "App",
    "AppClosed",
    "BadInput",
    "BadName",
    "BadOption",
    "BadPayload",
    "BadSettings",
    "Cancelled",
    "CapOvertaken",
    "Change",
    "Context",
    "Dead",
    "Exponential",
    "Failed",
    "Fixed",
    "HandOverTimeout",
    "Handler",
    "HandlerConflict",
    "Inserted",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JobState",
    "Linear",
    "NoRetry",
    "Outcome",
    "QueueExists",
    "QueueNotFound",
    "Release",
    "Request",
    "ResultTimeout",
    "Retry",
    "RotaError",
    "Settings",
    "Skipped",
    "Throttled",
    "by_prefix",
    "to_queue",
]
