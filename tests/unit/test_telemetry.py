"""Events become logs, metrics and spans; what docs/telemetry.md says about them is true."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import context, metrics, trace
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rota import events
from rota.clock import SystemClock
from rota.events import Event, JobsEnded
from rota.logs import JsonFormatter
from rota.telemetry import (
    BUCKETS,
    COUNTERS,
    FAILED_LINES,
    HISTOGRAMS,
    TELLINGS,
    Metric,
    Telemetry,
    current_trace,
    run_level,
)

REPOSITORY = Path(__file__).resolve().parents[2]
POD = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
ENQUEUE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True)
class Ended:
    id: int = 17
    kind: str = "send"
    attempt: int = 2
    claim: int = 3
    waited: float = 0.2
    ran: float = 0.04
    outcome: str = "done"
    reason: str | None = None


class HandMovedClock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


FAILED = Ended(outcome="retry", reason="ValueError: no such address")
DEAD = Ended(outcome="dead", reason="ValueError: no such address")

SAMPLES: tuple[Event, ...] = (
    events.JobsEnqueued(jobs=3, skipped=1),
    events.JobsClaimed(queue="emails", jobs=4),
    events.JobsEnded(queue="emails", runs=[Ended(), DEAD]),
    events.JobsLost(queue="emails", jobs=[5, 6]),
    events.JobOverdue(queue="emails", kind="send", job=17, why="timeout"),
    events.JobAlone(queue="emails", job=17),
    events.OutcomeRefused(queue="emails", job=17, reason="invalid byte"),
    events.BatchesSettled(released=7),
    events.HookFailed(hook="on_dead", reason="KeyError: 'x'"),
    events.KindUnknown(queue="emails", kind="sned"),
    events.RetryRefused(queue="emails", reason="no such policy"),
    events.PodRegistered(pod=POD, incarnation=1, name="rota-8057", queues=["emails", "reports"]),
    events.PodWaits(seconds=7.5),
    events.PodFenced(silent=7.1),
    events.PodExits(reason="the loop did not turn"),
    events.PodDraining(running=3, grace=25.0),
    events.PodLeft(clean=True, released=1),
    events.PodsExpired(pods=[POD], rescued=8),
    events.LeaseTaken(epoch=4),
    events.LeaseGone(epoch=4, reason="retired"),
    events.NobodyLeads(seconds=15.0),
    events.RoleUnbounded(timeouts=["statement_timeout"]),
    events.ClocksParted(reason="the server was restarted", seconds=10.0),
    events.QueuePlanned(
        queue="emails", granted=3, revoked=1, sentence="emails: 3 slots more, because it can."
    ),
    events.SlotsChanged(queue="emails", slots=5),
    events.DatabaseLost(doing="claiming", reason="connection refused", again_in=0.5),
    events.DatabaseFound(doing="claiming"),
    events.ListenProbed(works=True, reason=""),
    events.SchemaMigrated(schema="rota", versions=[1, 2]),
)


@pytest.fixture
def clock() -> HandMovedClock:
    return HandMovedClock()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged since it was last asked for, as `level logger: message`."""
    caplog.set_level(logging.INFO, "rota")

    def taken() -> list[str]:
        told = [f"{one.levelname.lower()} {one.name}: {one.getMessage()}" for one in caplog.records]
        caplog.clear()
        return told

    yield taken
    assert [one for one in caplog.records if one.name.startswith("opentelemetry")] == []


@pytest.fixture
def untold(clock: HandMovedClock) -> Telemetry:
    """Telemetry where nobody has set up an SDK."""
    return Telemetry(
        clock,
        tracer_provider=trace.NoOpTracerProvider(),
        meter_provider=metrics.NoOpMeterProvider(),
    )


class Measured:
    """Telemetry with metrics, and what they say."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tell = Telemetry(HandMovedClock(), meter_provider=self.provider).tell

    def points(self) -> dict[str, list[NumberDataPoint | HistogramDataPoint]]:
        data = self._reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)  # type: ignore[arg-type]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def counts(self, name: str) -> dict[tuple[object, ...], float]:
        return {
            tuple((point.attributes or {}).values()): point.value
            for point in self.points().get(name, [])
            if isinstance(point, NumberDataPoint)
        }

    def histogram(self, name: str) -> HistogramDataPoint:
        (point,) = self.points()[name]
        assert isinstance(point, HistogramDataPoint)
        return point


@pytest.fixture
def measured() -> Measured:
    return Measured()


class Traced:
    """Telemetry with spans, and those that ended."""

    def __init__(self, provider: TracerProvider) -> None:
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(HandMovedClock(), tracer_provider=provider)
        self.tracer = provider.get_tracer("user")

    def run(self, trace: str | None, outcome: str = "done", reason: str | None = None) -> None:
        span = self.telemetry.start_run(trace, "emails", "send", 17, 2, 3)
        self.telemetry.end_run(span, outcome, reason)

    def enqueue(self) -> str | None:
        with self.telemetry.enqueue_span("emails", "send") as enqueue:
            enqueue.created(17)
        return enqueue.trace

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def span(self, name: str = "run send") -> ReadableSpan:
        return self.spans()[name]


@pytest.fixture
def traced() -> Traced:
    return Traced(TracerProvider(shutdown_on_exit=False))


def every_event() -> set[type[Event]]:
    named = (value for value in vars(events).values() if isinstance(value, type))
    return {kind for kind in named if issubclass(kind, Event) and kind is not Event}


def traceparent(span: trace.Span) -> str:
    """As OpenTelemetry's own propagator writes it."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    return carrier["traceparent"]


def test_every_event_has_a_telling() -> None:
    assert set(TELLINGS) == every_event()


def test_the_samples_hold_every_event() -> None:
    assert {type(event) for event in SAMPLES} == every_event()


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_is_told_in_words_and_as_json(
    event: Event, untold: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rota")
    untold.tell(event)
    assert caplog.records
    for record in caplog.records:
        assert "%(" not in record.getMessage()
        assert f'"event":"{type(event).__name__}"' in JsonFormatter().format(record)


def test_no_field_of_an_event_is_named_like_a_part_of_a_log_line() -> None:
    parts = {"ts", "level", "logger", "message", "event", "exception", "stack"}
    assert {field.name for kind in every_event() for field in fields(kind)} & parts == set()


@pytest.mark.parametrize("telling", TELLINGS.values(), ids=lambda telling: telling.message)
def test_every_count_can_be_split_by_fields_of_its_event(telling: Any) -> None:
    (event,) = (kind for kind in TELLINGS if TELLINGS[kind] is telling)
    known = {field.name for field in fields(event)}
    assert {name for metric, field in telling.counts for name in (*metric.by, field) if name} <= known


def test_facts_of_the_pod_are_told_in_one_sentence(untold: Telemetry, lines: Callable[[], list[str]]) -> None:
    untold.tell(events.PodRegistered(POD, 2, "rota-8057", ["emails", "reports"]))
    untold.tell(events.PodLeft(clean=True, released=0))
    assert lines() == [
        f"info rota: Pod rota-8057 ({POD}, incarnation 2) serves emails, reports",
        "info rota: This pod has left; released 0",
    ]


def test_what_went_badly_is_a_warning(untold: Telemetry, lines: Callable[[], list[str]]) -> None:
    untold.tell(events.PodLeft(clean=False, released=2))
    untold.tell(events.ListenProbed(works=False, reason="behind a pooler"))
    assert lines() == [
        "warning rota: This pod leaves while handlers will not stop; its row will expire; released 2",
        "warning rota: Notices do not reach this pod, so it polls: behind a pooler",
    ]


def test_a_long_list_is_cut_short_in_the_message(untold: Telemetry, lines: Callable[[], list[str]]) -> None:
    untold.tell(events.JobsLost("emails", range(1, 13)))
    assert "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more" in lines()[0]


@pytest.mark.parametrize(
    ("outcome", "reason", "level"),
    [
        ("done", None, logging.DEBUG),
        ("release", None, logging.DEBUG),
        ("cancelled", None, logging.DEBUG),
        ("retry", "boom", logging.WARNING),
        ("cancelled", "stopped", logging.WARNING),
        ("dead", "boom", logging.ERROR),
        ("dead", None, logging.ERROR),
    ],
)
def test_a_run_is_as_loud_as_what_went_wrong(outcome: str, reason: str | None, level: int) -> None:
    assert run_level(outcome, reason) == level


def test_runs_that_are_done_are_told_only_to_those_who_debug(
    untold: Telemetry, lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    untold.tell(JobsEnded("emails", [Ended(), Ended()]))
    assert lines() == []
    caplog.set_level(logging.DEBUG, "rota.job")
    untold.tell(JobsEnded("emails", [Ended(), Ended(id=18)]))
    assert lines() == [
        "debug rota.job: Job 17 (send in emails) done, attempt 2, 0.040 s",
        "debug rota.job: Job 18 (send in emails) done, attempt 2, 0.040 s",
    ]


def test_a_failed_run_is_a_warning_and_a_dead_job_an_error(
    untold: Telemetry, lines: Callable[[], list[str]]
) -> None:
    untold.tell(JobsEnded("emails", [Ended(), FAILED, DEAD]))
    assert lines() == [
        "warning rota.job: Job 17 (send in emails) retry, attempt 2, 0.040 s: ValueError: no such address",
        "error rota.job: Job 17 (send in emails) dead, attempt 2, 0.040 s: ValueError: no such address",
    ]


def test_the_line_of_a_run_carries_its_facts(untold: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    untold.tell(JobsEnded("emails", [FAILED]))
    assert vars(caplog.records[0])["facts"] == {
        "queue": "emails",
        "job": 17,
        "kind": "send",
        "attempt": 2,
        "claim": 3,
        "outcome": "retry",
        "reason": "ValueError: no such address",
        "waited": 0.2,
        "ran": 0.04,
    }


def test_a_storm_of_failures_is_cut_short_announced_and_counted(
    untold: Telemetry, clock: HandMovedClock, lines: Callable[[], list[str]]
) -> None:
    untold.tell(JobsEnded("emails", [FAILED] * (FAILED_LINES + 5)))
    first = lines()
    assert len(first) == FAILED_LINES + 1
    assert first[-1] == (
        "warning rota.job: More runs fail in emails than are logged; the rest of this second is counted"
    )
    untold.tell(JobsEnded("emails", [FAILED] * 10))
    assert lines() == []
    clock.now += 1.0
    untold.tell(JobsEnded("emails", [Ended()]))
    assert lines() == ["warning rota.job: Suppressed 15 lines about failed runs in emails"]
    untold.tell(JobsEnded("emails", [FAILED]))
    assert len(lines()) == 1


def test_a_storm_in_one_queue_mutes_neither_other_queues_nor_dead_jobs(
    untold: Telemetry, lines: Callable[[], list[str]]
) -> None:
    untold.tell(JobsEnded("emails", [FAILED] * 100))
    lines()
    untold.tell(JobsEnded("reports", [FAILED]))
    untold.tell(JobsEnded("emails", [DEAD]))
    assert [line.split(":")[0] for line in lines()] == ["warning rota.job", "error rota.job"]


def test_without_an_sdk_no_instrument_is_made_and_nothing_is_traced(
    clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*args: object, **kwargs: object) -> None:
        raise AssertionError("an instrument was made for nobody")

    monkeypatch.setattr(metrics.NoOpMeter, "create_counter", unexpected)
    monkeypatch.setattr(metrics.NoOpMeter, "create_histogram", unexpected)
    untold = Telemetry(
        clock, tracer_provider=trace.NoOpTracerProvider(), meter_provider=metrics.NoOpMeterProvider()
    )
    untold.tell(JobsEnded("emails", [Ended()]))
    assert untold.tracing is False


def test_a_process_in_which_nobody_set_up_anything_traces_nothing() -> None:
    code = (
        "import sys; from rota.clock import SystemClock; from rota.telemetry import Telemetry;"
        "told = Telemetry(SystemClock()); assert told.tracing is False;"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_sdk_that_is_disabled_counts_as_none(
    clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    provider = TracerProvider(shutdown_on_exit=False)
    assert Telemetry(clock, tracer_provider=provider).tracing is False


@pytest.mark.parametrize(
    ("event", "metric", "expected"),
    [
        (events.JobsEnqueued(3, 1), "rota.jobs.enqueued", {(): 3}),
        (events.JobsEnqueued(3, 1), "rota.jobs.skipped", {(): 1}),
        (events.JobsEnqueued(3, 0), "rota.jobs.skipped", {}),
        (events.JobsClaimed("emails", 4), "rota.jobs.claimed", {("emails",): 4}),
        (events.JobsLost("emails", [5, 6]), "rota.jobs.lost", {("emails",): 2}),
        (events.JobOverdue("emails", "send", 17, "late"), "rota.jobs.overdue", {("emails", "send"): 1}),
        (events.OutcomeRefused("emails", 17, "no"), "rota.jobs.refused", {("emails",): 1}),
        (events.BatchesSettled(7), "rota.jobs.settled", {(): 7}),
        (events.PodsExpired([POD, POD], 8), "rota.pods.expired", {(): 2}),
        (events.PodsExpired([POD, POD], 8), "rota.jobs.rescued", {(): 8}),
        (events.HookFailed("on_dead", "no"), "rota.hooks.failed", {("on_dead",): 1}),
        (events.DatabaseLost("claiming", "no", 1.0), "rota.database.lost", {(): 1}),
    ],
)
def test_an_event_is_counted(
    event: Event, metric: str, expected: Mapping[tuple[str, ...], int], measured: Measured
) -> None:
    measured.tell(event)
    assert measured.counts(metric) == expected


def test_ended_runs_are_counted_by_queue_kind_and_outcome(measured: Measured) -> None:
    measured.tell(JobsEnded("emails", [Ended(), Ended(), FAILED, Ended(kind="sort")]))
    measured.tell(JobsEnded("reports", [Ended()]))
    assert measured.counts("rota.jobs.ended") == {
        ("emails", "send", "done"): 2,
        ("emails", "send", "retry"): 1,
        ("emails", "sort", "done"): 1,
        ("reports", "send", "done"): 1,
    }


def test_a_batch_adds_once_per_kind_and_outcome(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    adds: list[float] = []
    plain = Counter.add

    def counted(self: Counter, amount: float, *args: Any) -> None:
        adds.append(amount)
        plain(self, amount, *args)

    monkeypatch.setattr(Counter, "add", counted)
    measured.tell(JobsEnded("emails", [Ended(), FAILED] * 128))
    assert adds == [128, 128]


def test_waiting_and_running_are_measured_in_seconds(measured: Measured) -> None:
    measured.tell(JobsEnded("emails", [Ended(waited=0.2, ran=0.04), Ended(waited=3.0, ran=0.02)]))
    wait, run = measured.histogram("rota.job.wait"), measured.histogram("rota.job.run")
    assert [wait.count, run.count] == [2, 2]
    assert [wait.sum, run.sum] == pytest.approx([3.2, 0.06])
    assert tuple(wait.explicit_bounds) == tuple(run.explicit_bounds) == BUCKETS


def test_a_clock_that_was_set_back_is_no_negative_wait(
    measured: Measured, lines: Callable[[], list[str]]
) -> None:
    measured.tell(JobsEnded("emails", [Ended(waited=-2.0)]))
    assert measured.histogram("rota.job.wait").sum == 0.0
    assert lines() == []


def test_two_parts_of_a_process_count_into_one_metric(
    measured: Measured, lines: Callable[[], list[str]]
) -> None:
    measured.tell(events.JobsEnqueued(1, 0))
    Telemetry(HandMovedClock(), meter_provider=measured.provider).tell(events.JobsEnqueued(1, 0))
    assert measured.counts("rota.jobs.enqueued") == {(): 2}
    assert lines() == []


def test_every_metric_comes_from_some_event_and_carries_its_own_attributes_only(
    measured: Measured,
) -> None:
    for event in SAMPLES:
        measured.tell(event)
    found = {
        name: {tuple(point.attributes or ()) for point in points}
        for name, points in measured.points().items()
    }
    assert found == {metric.name: {metric.by} for metric in (*COUNTERS, *HISTOGRAMS)}


def test_no_metric_is_split_by_job() -> None:
    assert {name for metric in (*COUNTERS, *HISTOGRAMS) for name in metric.by} == {
        *("queue", "kind", "outcome", "hook")
    }


def test_enqueue_and_run_are_one_trace(traced: Traced) -> None:
    traced.run(traced.enqueue())
    enqueue, run = traced.span("enqueue send"), traced.span("run send")
    assert run.context.trace_id == enqueue.context.trace_id
    assert run.parent is not None
    assert run.parent.span_id == enqueue.context.span_id
    assert run.parent.is_remote
    assert (enqueue.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)


def test_the_trace_that_goes_into_the_row_is_a_traceparent(traced: Traced) -> None:
    with traced.telemetry.enqueue_span("emails", "send") as enqueue:
        assert enqueue.trace == traceparent(trace.get_current_span())


def test_an_enqueue_belongs_to_the_trace_of_its_caller(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request") as request:
        traced.enqueue()
    parent = traced.span("enqueue send").parent
    assert parent is not None
    assert parent.span_id == request.get_span_context().span_id


def test_spans_speak_the_conventions_for_messaging_and_carry_the_job(traced: Traced) -> None:
    traced.enqueue()
    traced.run(None)
    assert dict(traced.span("enqueue send").attributes or {}) == {
        "messaging.system": "rota",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "emails",
        "messaging.message.id": "17",
        "rota.kind": "send",
    }
    assert dict(traced.span("run send").attributes or {}) == {
        "messaging.system": "rota",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "emails",
        "messaging.message.id": "17",
        "rota.kind": "send",
        "rota.attempt": 2,
        "rota.claim": 3,
        "rota.outcome": "done",
    }


def test_a_mixed_bulk_is_one_span_that_says_how_many(traced: Traced) -> None:
    with traced.telemetry.enqueue_span(None, None, jobs=500):
        pass
    assert dict(traced.span("enqueue").attributes or {}) == {
        "messaging.system": "rota",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 500,
    }


def test_an_enqueue_that_raises_is_an_error_in_the_trace(traced: Traced) -> None:
    with pytest.raises(ValueError, match="refused"), traced.telemetry.enqueue_span("emails", "send"):
        raise ValueError("refused")
    assert traced.span("enqueue send").status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("outcome", ["retry", "dead"])
def test_a_failed_run_is_an_error_in_the_trace(traced: Traced, outcome: str) -> None:
    traced.run(ENQUEUE, outcome, "ValueError: no")
    status = traced.span().status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "ValueError: no")


@pytest.mark.parametrize("outcome", ["done", "cancelled", "release", "throttle"])
def test_a_run_that_did_not_fail_is_no_error_in_the_trace(traced: Traced, outcome: str) -> None:
    traced.run(ENQUEUE, outcome, "stopped: cancel")
    assert traced.span().status.status_code is StatusCode.UNSET


def test_what_a_handler_traces_or_enqueues_is_below_its_run(traced: Traced) -> None:
    run = traced.telemetry.start_run(ENQUEUE, "emails", "send", 17, 1, 1)
    with traced.tracer.start_as_current_span("call"):
        pass
    followup = traced.enqueue()
    traced.telemetry.end_run(run, "done", None)
    for inner in ("call", "enqueue send"):
        parent = traced.span(inner).parent
        assert parent is not None
        assert parent.span_id == run.span.get_span_context().span_id
    assert followup is not None
    assert followup.split("-")[1] == ENQUEUE.split("-")[1]


def test_a_run_leaves_the_context_as_it_found_it(traced: Traced) -> None:
    before = context.get_current()
    traced.run(ENQUEUE)
    assert context.get_current() == before


@pytest.mark.parametrize("stored", [None, "", "garbage", "00-0-0-00", ENQUEUE[:-5]])
def test_a_run_without_a_usable_trace_begins_one_of_its_own(traced: Traced, stored: str | None) -> None:
    with traced.tracer.start_as_current_span("claimer"):
        traced.run(stored)
    assert traced.span().parent is None


def test_a_trace_that_is_not_sampled_stays_so_in_the_run() -> None:
    traced = Traced(TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False))
    stored = traced.enqueue()
    assert stored is not None
    assert int(stored[-2:], 16) & trace.TraceFlags.SAMPLED == 0
    traced.run(stored)
    assert traced.spans() == {}


def test_outside_any_span_there_is_no_trace_to_store(untold: Telemetry) -> None:
    assert current_trace() is None
    with untold.enqueue_span("emails", "send") as enqueue:
        enqueue.created(17)
    assert enqueue.trace is None


def test_a_producer_that_does_not_trace_hands_on_the_trace_it_is_in(
    untold: Telemetry, traced: Traced
) -> None:
    with (
        traced.tracer.start_as_current_span("request") as request,
        untold.enqueue_span("emails", "send") as enqueue,
    ):
        assert enqueue.trace == traceparent(request)


def test_the_systems_clock_serves() -> None:
    Telemetry(SystemClock()).tell(JobsEnded("emails", [replace(FAILED, id=1)]))


def rows_after(heading: str) -> list[str]:
    """The rows of the table below the heading, without its head."""
    text = (REPOSITORY / "docs/telemetry.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def test_the_docs_list_every_metric_as_it_is() -> None:
    def row(sort: str, metric: Metric) -> str:
        by = ", ".join(f"`{name}`" for name in metric.by)
        return f"| `{metric.name}` | {sort} | `{metric.unit}` | {by} | {metric.what} |"

    assert rows_after("Metrics") == [
        *(row("counter", metric) for metric in COUNTERS),
        *(row("histogram", metric) for metric in HISTOGRAMS),
    ]


def test_the_docs_list_every_event_as_it_is_told() -> None:
    def row(event: type[Event]) -> str:
        telling = TELLINGS[event]
        levels = [telling.level, *([telling.otherwise[0]] if telling.flag else [])]
        level = " or ".join(logging.getLevelName(one).lower() for one in levels)
        level = "by outcome" if event is JobsEnded else level
        counted = ", ".join(f"`{metric.name}`" for metric, _ in telling.counts)
        return f"| `{event.__name__}` | {level} | {counted} |"

    told = [row.rpartition(" | ")[0] + " |" for row in rows_after("Events")]
    expected = [row(event) for event in TELLINGS]
    expected[2] = "| `JobsEnded` | by outcome | `rota.jobs.ended`, `rota.job.wait`, `rota.job.run` |"
    assert told == expected
