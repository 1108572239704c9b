"""Events to logs, metrics and spans. All names live here: levels, messages, metrics, spans, attributes.

`Telemetry.tell` takes every event. What it says is in one table, `TELLINGS`; docs/telemetry.md shows
the same and a test keeps it true. Job ids go on spans and logs, never on metrics.

Only the API of OpenTelemetry is used, and nothing is asked of it where nobody has set up an SDK: that
is looked at once, when a Telemetry is made. Where lines go and how an SDK is set up is in logs.py.

A trace runs through the job row: the enqueue span's context is stored there as a W3C traceparent, and
each run's span is its child.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from dataclasses import dataclass
from typing import NamedTuple

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from rota import events
from rota.clock import Clock
from rota.events import Event, JobsEnded, Run
from rota.export import is_real, setup_telemetry
from rota.logs import (
    JOB_LOG,
    LOG,
    Ration,
    current_run,
    facts_of,
    job_logger,
    setup_logging,
    write,
)

__all__ = ["Telemetry", "current_run", "current_trace", "job_logger", "setup_logging", "setup_telemetry"]

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


class Metric(NamedTuple):
    """A metric, its unit, the attributes it is split by, and what it measures."""

    name: str
    unit: str
    by: tuple[str, ...]
    what: str


ENQUEUED = Metric("rota.jobs.enqueued", "{job}", (), "Jobs that this process enqueued")
SKIPPED = Metric("rota.jobs.skipped", "{job}", (), "Jobs not enqueued because a twin waits or runs")
CLAIMED = Metric("rota.jobs.claimed", "{job}", ("queue",), "Jobs taken into slots")
ENDED = Metric("rota.jobs.ended", "{job}", ("queue", "kind", "outcome"), "Runs whose outcome is written")
LOST = Metric("rota.jobs.lost", "{job}", ("queue",), "Runs that were no longer this pod's when they ended")
OVERDUE = Metric("rota.jobs.overdue", "{job}", ("queue", "kind"), "Handlers that did not stop when told to")
REFUSED = Metric("rota.jobs.refused", "{job}", ("queue",), "Outcomes whose data Postgres refused")
SETTLED = Metric(
    "rota.jobs.settled", "{job}", (), "Jobs released because the answer to their claim never came"
)
RESCUED = Metric("rota.jobs.rescued", "{job}", (), "Jobs taken back from pods that fell silent")
EXPIRED = Metric("rota.pods.expired", "{pod}", (), "Pods that fell silent, as found by this one")
GRANTED = Metric("rota.slots.granted", "{slot}", ("queue",), "Slots that this pod, leading, gave to pods")
REVOKED = Metric("rota.slots.revoked", "{slot}", ("queue",), "Slots that this pod, leading, took from pods")
HOOKS = Metric("rota.hooks.failed", "{failure}", ("hook",), "State-change hooks that raised")
OUTAGES = Metric("rota.database.lost", "{outage}", (), "Times a loop of this pod lost the database")
WAIT = Metric("rota.job.wait", "s", ("queue", "kind"), "From when a job was due until it was claimed")
RUN = Metric("rota.job.run", "s", ("queue", "kind", "outcome"), "From the handler's start to its end")

COUNTERS = (
    *(ENQUEUED, SKIPPED, CLAIMED, ENDED, LOST, OVERDUE, REFUSED, SETTLED, RESCUED),
    *(EXPIRED, GRANTED, REVOKED, HOOKS, OUTAGES),
)
HISTOGRAMS = (WAIT, RUN)
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds, from a handler that only counts to one that works for an hour."""


@dataclass(frozen=True, slots=True)
class Telling:
    """How an event is told: as which line, and counted where.

    A count names the field that says how many (a number, or the things themselves); "" is one.
    Where the boolean field `flag` is false, `otherwise` is said instead.
    """

    level: int
    message: str
    counts: tuple[tuple[Metric, str], ...] = ()
    flag: str = ""
    otherwise: tuple[int, str] = (DEBUG, "")


TELLINGS: Mapping[type[Event], Telling] = {
    events.JobsEnqueued: Telling(
        DEBUG, "Enqueued %(jobs)d, skipped %(skipped)d", ((ENQUEUED, "jobs"), (SKIPPED, "skipped"))
    ),
    events.JobsClaimed: Telling(DEBUG, "Claimed %(jobs)d from %(queue)s", ((CLAIMED, "jobs"),)),
    events.JobsEnded: Telling(
        DEBUG, "Job %(job)d (%(kind)s in %(queue)s) %(outcome)s, attempt %(attempt)d, %(ran).3f s"
    ),
    events.JobsLost: Telling(
        WARNING,
        "Jobs %(jobs)s of %(queue)s ended here but are no longer this pod's; their outcomes are dropped",
        ((LOST, "jobs"),),
    ),
    events.JobOverdue: Telling(
        WARNING,
        "Job %(job)d (%(kind)s in %(queue)s) was told to stop (%(why)s) and still runs; it keeps its slot",
        ((OVERDUE, ""),),
    ),
    events.JobAlone: Telling(
        WARNING, "Job %(job)d in %(queue)s keeps losing its pod; this one runs it alone, for the last time"
    ),
    events.OutcomeRefused: Telling(
        ERROR, "Postgres refused the outcome of job %(job)d of %(queue)s: %(reason)s", ((REFUSED, ""),)
    ),
    events.BatchesSettled: Telling(
        WARNING,
        "Claims that were never answered are given up; released %(released)d",
        ((SETTLED, "released"),),
    ),
    events.HookFailed: Telling(ERROR, "The hook %(hook)s failed: %(reason)s", ((HOOKS, ""),)),
    events.KindUnknown: Telling(
        WARNING, "In %(queue)s jobs of the kind %(kind)s are ready, and no live pod can run them"
    ),
    events.RetryRefused: Telling(
        WARNING, "The retry policy of %(queue)s cannot be used, the one before stays: %(reason)s"
    ),
    events.PodRegistered: Telling(
        INFO, "Pod %(name)s (%(pod)s, incarnation %(incarnation)d) serves %(queues)s"
    ),
    events.PodWaits: Telling(
        WARNING,
        "An earlier boot of this pod may live on another machine; waiting %(seconds).1f s for its end",
    ),
    events.PodFenced: Telling(
        ERROR, "No beat was answered for %(silent).1f s: stopping all jobs, since others may be given them"
    ),
    events.PodExits: Telling(ERROR, "This process ends: %(reason)s"),
    events.PodDraining: Telling(
        INFO, "Draining: no new jobs, up to %(grace)g s for the %(running)d that run"
    ),
    events.PodLeft: Telling(
        INFO,
        "This pod has left; released %(released)d",
        flag="clean",
        otherwise=(
            WARNING,
            "This pod leaves while handlers will not stop; its row will expire; released %(released)d",
        ),
    ),
    events.PodsExpired: Telling(
        WARNING,
        "Pods fell silent: %(pods)s; rescued %(rescued)d of their jobs",
        ((EXPIRED, "pods"), (RESCUED, "rescued")),
    ),
    events.LeaseTaken: Telling(INFO, "This pod leads, in epoch %(epoch)d"),
    events.LeaseGone: Telling(INFO, "This pod leads no more, epoch %(epoch)d: %(reason)s"),
    events.NobodyLeads: Telling(
        WARNING,
        "No pod has led for %(seconds).0f s; start one without ROTA_LEAD=false, or slots do not move",
    ),
    events.RoleUnbounded: Telling(
        INFO,
        "The database role has no %(timeouts)s; with them a stopped client cannot hold up the others",
    ),
    events.ClocksParted: Telling(WARNING, "No pod is expired for %(seconds)g s, because %(reason)s"),
    events.QueuePlanned: Telling(INFO, "%(sentence)s", ((GRANTED, "granted"), (REVOKED, "revoked"))),
    events.SlotsChanged: Telling(DEBUG, "This pod has %(slots)d slots of %(queue)s"),
    events.DatabaseLost: Telling(
        WARNING,
        "The database does not answer while %(doing)s, trying again in %(again_in).1f s: %(reason)s",
        ((OUTAGES, ""),),
    ),
    events.DatabaseFound: Telling(INFO, "The database answers again while %(doing)s"),
    events.ListenProbed: Telling(
        INFO,
        "Notices reach this pod",
        flag="works",
        otherwise=(WARNING, "Notices do not reach this pod, so it polls: %(reason)s"),
    ),
    events.SchemaMigrated: Telling(INFO, "Migrated schema %(schema)s: %(versions)s"),
}

FAILED_LINES = 20
"""Lines about failed runs per second, queue and level; a storm of failures must not be one of logs."""
ABRIDGED = "More runs fail in %(queue)s than are logged; the rest of this second is counted"
SUPPRESSED = "Suppressed %(suppressed)d lines about failed runs in %(queue)s"
RUN_FACTS = {
    "job": "id",
    **{name: name for name in ("kind", "attempt", "claim", "outcome", "reason", "waited", "ran")},
}
"""What a line about a run says, and where the run has it."""
DONE = "done"
FAILURES = ("retry", "dead")


def run_level(outcome: str, reason: str | None) -> int:
    """How loud the line about a run is."""
    if outcome == "dead":
        return ERROR
    return DEBUG if reason is None else WARNING


class RunSpan(NamedTuple):
    """A run that is being traced."""

    span: Span
    attached: Token[context.Context]


class EnqueueSpan:
    """An enqueue that may be traced; `trace` goes into the job row."""

    __slots__ = ("_span", "trace")

    def __init__(self, trace: str | None, span: Span | None = None) -> None:
        self.trace = trace
        self._span = span

    def created(self, job: int) -> None:
        """The id that the one job got."""
        if self._span is not None:
            self._span.set_attribute("messaging.message.id", str(job))


class Telemetry:
    """Tells what happened. Made when a pod or producer starts, after any SDK is set up."""

    def __init__(
        self,
        clock: Clock,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._ration = Ration(clock, FAILED_LINES)
        self._tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer("rota")
        self.tracing = is_real(self._tracer)
        """Whether spans go anywhere; where not, nothing should ask for them."""
        meter = (meter_provider or metrics.get_meter_provider()).get_meter("rota")
        self._meters = _Meters(meter) if is_real(meter) else None

    def tell(self, event: Event) -> None:
        """Log and count the event."""
        for queue, level, suppressed in self._ration.settle():
            write(JOB_LOG, level, SUPPRESSED, "JobsEnded", {"queue": queue, "suppressed": suppressed})
        if isinstance(event, JobsEnded):
            self._tell_runs(event.queue, event.runs)
            return
        telling = TELLINGS[type(event)]
        if self._meters is not None:
            self._meters.count(event, telling.counts)
        level, message = telling.level, telling.message
        if telling.flag and not getattr(event, telling.flag):
            level, message = telling.otherwise
        if LOG.isEnabledFor(level):
            write(LOG, level, message, type(event).__name__, facts_of(event))

    def _tell_runs(self, queue: str, runs: Sequence[Run]) -> None:
        if self._meters is not None:
            self._meters.count_runs(queue, runs)
        debug = JOB_LOG.isEnabledFor(DEBUG)
        # The loop that every job passes through: a plain `done` costs one comparison.
        for run in runs:
            if debug or run.outcome != DONE:
                self._log_run(queue, run)

    def _log_run(self, queue: str, run: Run) -> None:
        level = run_level(run.outcome, run.reason)
        if not JOB_LOG.isEnabledFor(level):
            return
        refused = 0 if level == DEBUG else self._ration.take((queue, level))
        if refused == 1:
            write(JOB_LOG, level, ABRIDGED, "JobsEnded", {"queue": queue})
        if refused:
            return
        message = TELLINGS[JobsEnded].message
        facts = {"queue": queue, **{name: getattr(run, key) for name, key in RUN_FACTS.items()}}
        if run.reason is not None:
            message += ": %(reason)s"
        write(JOB_LOG, level, message, "JobsEnded", facts)

    @contextmanager
    def enqueue_span(self, queue: str | None, kind: str | None, jobs: int = 1) -> Iterator[EnqueueSpan]:
        """Trace an enqueue. A bulk of several queues or kinds leaves them out."""
        if not self.tracing:
            yield EnqueueSpan(current_trace())
            return
        attributes = _messaging("enqueue", "send", queue, kind)
        if jobs != 1:
            attributes["messaging.batch.message_count"] = jobs
        name = f"enqueue {kind}" if kind else "enqueue"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            yield EnqueueSpan(_traceparent(span.get_span_context()), span)

    def start_run(
        self, trace: str | None, queue: str, kind: str, job: int, attempt: int, claim: int
    ) -> RunSpan:
        """Begin the span of a run and make it current, in the task that will run the handler."""
        parent = context.Context()
        if trace is not None:
            parent = _PROPAGATOR.extract({"traceparent": trace}, parent)
        attributes = _messaging("run", "process", queue, kind)
        attributes["messaging.message.id"] = str(job)
        attributes["rota.attempt"] = attempt
        attributes["rota.claim"] = claim
        span = self._tracer.start_span(f"run {kind}", parent, SpanKind.CONSUMER, attributes)
        return RunSpan(span, context.attach(set_span_in_context(span, parent)))

    def end_run(self, run: RunSpan, outcome: str, reason: str | None) -> None:
        """End the span of a run, in the task that began it."""
        context.detach(run.attached)
        run.span.set_attribute("rota.outcome", outcome)
        if outcome in FAILURES:
            run.span.set_status(StatusCode.ERROR, reason)
        run.span.end()


def current_trace() -> str | None:
    """The W3C traceparent of the span this code runs in, if there is one."""
    return _traceparent(get_current_span().get_span_context())


_PROPAGATOR = TraceContextTextMapPropagator()


def _traceparent(span: SpanContext) -> str | None:
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def _messaging(operation: str, sort: str, queue: str | None, kind: str | None) -> dict[str, AttributeValue]:
    """Attributes by the semantic conventions for messaging, and the kind, which they do not know."""
    named = {"messaging.destination.name": queue, "rota.kind": kind}
    return {
        "messaging.system": "rota",
        "messaging.operation.name": operation,
        "messaging.operation.type": sort,
        **{key: name for key, name in named.items() if name is not None},
    }


class _Meters:
    """The instruments, and what is added to them; made only where an SDK listens."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._counters = {one: meter.create_counter(one.name, one.unit, one.what) for one in COUNTERS}
        self._wait, self._run = (
            meter.create_histogram(one.name, one.unit, one.what, explicit_bucket_boundaries_advisory=BUCKETS)
            for one in HISTOGRAMS
        )

    def count(self, event: Event, counts: Sequence[tuple[Metric, str]]) -> None:
        for metric, field in counts:
            amount = getattr(event, field) if field else 1
            amount = amount if isinstance(amount, int) else len(amount)
            if amount:
                labels = {name: getattr(event, name) for name in metric.by}
                self._counters[metric].add(amount, labels)

    def count_runs(self, queue: str, runs: Sequence[Run]) -> None:
        """Counters once per kind and outcome; histograms have no such short cut."""
        alike: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in runs:
            alike[run.kind, run.outcome].append(run)
        ended, wait, ran = self._counters[ENDED].add, self._wait.record, self._run.record
        for (kind, outcome), group in alike.items():
            brief = {"queue": queue, "kind": kind}
            full = {"queue": queue, "kind": kind, "outcome": outcome}
            ended(len(group), full)
            for run in group:
                # The database's clock may have been set back in between; an SDK warns of negative values.
                wait(max(0.0, run.waited), brief)
                ran(max(0.0, run.ran), full)
