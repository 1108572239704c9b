"""Log lines hold what a record holds, name the job they speak of, and end up where they should;
the SDK is set up when asked for, and only then."""

from __future__ import annotations

import importlib.metadata
import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider

from rota import export
from rota.errors import BadSettings
from rota.export import exporters_asked, setup_telemetry
from rota.logs import (
    ConsoleFormatter,
    JsonFormatter,
    Ration,
    current_run,
    job_logger,
    setup_logging,
    write,
)
from rota.settings import LogSettings

USER = logging.getLogger("shop.mail")
Format = Literal["auto", "json", "console"]


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def lines(self) -> list[str]:
        return self.getvalue().splitlines()

    def line(self) -> dict[str, Any]:
        (line,) = self.lines()
        told: dict[str, Any] = json.loads(line)
        return told


@dataclass(frozen=True)
class Running:
    id: int = 17
    kind: str = "send"
    attempt: int = 2
    claim: int = 3
    waited: float = 0.0
    ran: float = 0.0
    outcome: str = "done"
    reason: str | None = None
    queue: str = "emails"


class HandMovedClock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    named = [root, *map(logging.getLogger, ("asyncio", "urllib3"))]
    levels, handlers = [one.level for one in named], list(root.handlers)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    yield
    root.handlers[:] = handlers
    for one, level in zip(named, levels, strict=True):
        one.setLevel(level)


@pytest.fixture
def stream() -> Stream:
    """Where JSON lines of every level go."""
    stream = Stream()
    setup_logging(LogSettings(format="json", level="debug"), stream)
    return stream


def record(message: str = "hello", **extra: Any) -> logging.LogRecord:
    return USER.makeRecord(USER.name, logging.INFO, "mail.py", 1, message, (), None, extra=extra)


def as_json(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    told: dict[str, Any] = json.loads(line)
    return told


def test_a_json_line_says_when_how_loud_who_and_what() -> None:
    one = record("sent")
    one.created = 1767605400.25
    assert as_json(one) == {
        "ts": "2026-01-05T09:30:00.250000Z",
        "level": "info",
        "logger": "shop.mail",
        "message": "sent",
    }


def test_a_json_line_holds_the_event_and_its_facts(stream: Stream) -> None:
    write(USER, logging.INFO, "Pods %(pods)s", "PodsExpired", {"pods": ("a", "b"), "name": "x"})
    told = stream.line()
    assert told.pop("ts")
    assert told == {
        "level": "info",
        "logger": "shop.mail",
        "message": "Pods a, b",
        "event": "PodsExpired",
        "pods": ["a", "b"],
        "name": "x",
    }


def test_an_empty_list_is_told_as_none(stream: Stream) -> None:
    write(USER, logging.INFO, "Serves %(queues)s", "PodRegistered", {"queues": []})
    assert stream.line()["message"] == "Serves none"


def test_an_event_without_facts_is_told(stream: Stream) -> None:
    write(USER, logging.INFO, "All quiet", "Quiet", {})
    assert (stream.line()["message"], stream.line()["event"]) == ("All quiet", "Quiet")


def test_the_extra_of_a_call_stands_in_the_line() -> None:
    assert as_json(record(order=7, path="/a"))["order"] == 7


def test_an_extra_named_like_a_part_of_the_line_is_kept_beside_it() -> None:
    told = as_json(record("sent", level=9, ts="then"))
    assert (told["level"], told["level_"], told["ts_"]) == ("info", 9, "then")


def test_an_exception_and_a_stack_stay_on_the_line(stream: Stream) -> None:
    try:
        raise ValueError("no\nsuch address")
    except ValueError:
        USER.exception("failed", stack_info=True)
    told = stream.line()
    assert "ValueError: no\nsuch address" in told["exception"]
    assert "test_an_exception_and_a_stack" in told["stack"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({1, 2}, "{1, 2}", id="set"),
        pytest.param(2**70, str(2**70), id="number beyond 64 bits"),
        pytest.param("\ud800", "\\ud800", id="lone surrogate"),
        pytest.param({7: "a"}, {"7": "a"}, id="keys that are no text"),
        pytest.param(float("nan"), None, id="not a number"),
    ],
)
def test_what_json_cannot_hold_is_said_in_words(value: object, expected: object) -> None:
    told = as_json(record("sent", odd=value, order=7))
    assert (told["odd"], told["order"], told["message"]) == (expected, 7, "sent")


def test_a_message_with_a_lone_surrogate_is_not_lost() -> None:
    assert as_json(record("caf\udce9"))["message"] == "caf\\udce9"


def test_a_value_that_cannot_be_said_does_not_cost_the_line() -> None:
    loop: list[object] = []
    loop.append(loop)
    told = as_json(record("sent", odd=Unspeakable(), loop=loop))
    assert "Unspeakable object" in told["odd"]
    assert told["loop"] == "[[...]]"
    assert "Unspeakable object" in ConsoleFormatter(colour=False).format(record("sent", odd=Unspeakable()))


def test_a_console_line_is_short() -> None:
    told = ConsoleFormatter(colour=False).format(record("sent", order=7))
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d\d\d info    shop\.mail: sent order=7", told)


def test_a_console_line_does_not_repeat_the_facts_its_message_holds() -> None:
    stream = Stream()
    setup_logging(LogSettings(format="console"), stream)
    write(USER, logging.INFO, "Claimed %(jobs)d", "JobsClaimed", {"jobs": 4})
    assert stream.lines()[0].endswith("shop.mail: Claimed 4")


def test_nothing_in_a_message_can_pass_for_another_entry_or_speak_to_the_terminal() -> None:
    told = ConsoleFormatter(colour=False).format(record("sent\n12:00:00 error rota: \x1b[2Jforged\rx"))
    first, second = told.split("\n")
    assert first.endswith("shop.mail: sent")
    assert second == "    12:00:00 error rota: \\x1b[2Jforged\\rx"


def test_an_exception_follows_its_console_line() -> None:
    stream = Stream()
    setup_logging(LogSettings(format="console"), stream)
    try:
        raise ValueError("no such address")
    except ValueError:
        USER.exception("failed")
    assert stream.lines()[0].endswith("failed")
    assert stream.lines()[-1] == "    ValueError: no such address"


@pytest.mark.parametrize(
    ("chosen", "terminal", "json_lines"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("json", True, True),
        ("console", False, False),
    ],
)
def test_auto_is_console_on_a_terminal_and_json_elsewhere(
    chosen: Format, terminal: bool, json_lines: bool
) -> None:
    stream = Stream(terminal=terminal)
    setup_logging(LogSettings(format=chosen), stream)
    USER.info("sent")
    assert stream.getvalue().startswith("{") is json_lines


@pytest.mark.parametrize(("terminal", "no_colour"), [(True, False), (True, True), (False, False)])
def test_colour_is_for_terminals_that_want_it(
    terminal: bool, no_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Stream(terminal=terminal)
    setup_logging(LogSettings(format="console"), stream)
    USER.warning("late")
    assert ("\x1b[33m" in stream.getvalue()) is (terminal and not no_colour)


def test_a_second_set_up_replaces_the_first() -> None:
    first, second = Stream(), Stream()
    setup_logging(LogSettings(), first)
    setup_logging(LogSettings(), second)
    USER.info("sent")
    assert (len(first.lines()), len(second.lines())) == (0, 1)


def test_handlers_of_others_are_left_alone() -> None:
    others = logging.NullHandler()
    logging.getLogger().addHandler(others)
    setup_logging(LogSettings(), Stream())
    assert others in logging.getLogger().handlers


def test_by_default_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(LogSettings(format="console"))
    USER.info("sent")
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("sent")) == ("", 1)


def test_the_level_holds_for_users_loggers_too() -> None:
    stream = Stream()
    setup_logging(LogSettings(format="console", level="warning"), stream)
    USER.info("sent")
    USER.warning("late")
    assert [line.split(" ")[1] for line in stream.lines()] == ["warning"]


def test_debugging_does_not_make_libraries_talk_about_themselves(stream: Stream) -> None:
    logging.getLogger("asyncio").debug("Using selector")
    USER.debug("mine")
    assert stream.line()["message"] == "mine"


def test_a_job_logger_names_the_job_and_keeps_the_extra_of_the_call(stream: Stream) -> None:
    job_logger(Running(), "emails").info("sent to %s", "a@b.c", extra={"order": 7})
    told = stream.line()
    assert (told["logger"], told["message"], told["order"]) == ("rota.job", "sent to a@b.c", 7)
    assert [told[name] for name in ("job", "kind", "queue", "attempt")] == [17, "send", "emails", 2]


def test_within_a_run_every_line_names_the_job(stream: Stream) -> None:
    token = current_run.set(Running())
    try:
        USER.info("sent")
    finally:
        current_run.reset(token)
    USER.info("idle")
    inside, outside = map(json.loads, stream.lines())
    assert [inside[name] for name in ("job", "kind", "queue", "attempt")] == [17, "send", "emails", 2]
    assert "job" not in outside


def test_within_a_run_an_event_about_another_job_keeps_its_own_facts(stream: Stream) -> None:
    token = current_run.set(Running())
    try:
        write(USER, logging.INFO, "Job %(job)d", "JobOverdue", {"job": 5})
        job_logger(Running(id=6), "emails").info("told")
    finally:
        current_run.reset(token)
    assert [json.loads(line)["job"] for line in stream.lines()] == [5, 6]


def test_a_line_within_a_span_can_be_found_from_the_trace(stream: Stream) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("shop")
    with tracer.start_as_current_span("call") as span:
        USER.info("sent")
    told, ids = stream.line(), span.get_span_context()
    assert (int(told["trace_id"], 16), int(told["span_id"], 16)) == (ids.trace_id, ids.span_id)
    assert (len(told["trace_id"]), len(told["span_id"])) == (32, 16)


def test_a_ration_refuses_what_goes_beyond_and_counts_it_by_key() -> None:
    clock = HandMovedClock()
    ration = Ration(clock, lines=2)
    assert [ration.take(("emails", 30)) for _ in range(4)] == [0, 0, 1, 2]
    assert ration.take(("reports", 30)) == 0
    clock.now += 0.99
    assert ration.settle() == []
    clock.now += 0.01
    assert ration.settle() == [("emails", 30, 2)]
    assert ration.settle() == []
    assert ration.take(("emails", 30)) == 0


OTLP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, [], []),
        (OTLP, ["otlp_proto_http"], ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector"}, ["otlp_proto_http"], []),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector"}, [], ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp_proto_http"], []),
        ({**OTLP, "OTEL_TRACES_EXPORTER": "none"}, [], ["otlp_proto_http"]),
        ({**OTLP, "OTEL_TRACES_EXPORTER": ""}, ["otlp_proto_http"], ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": " Console , otlp "}, ["console", "otlp_proto_http"], []),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, [], ["prometheus"]),
        ({**OTLP, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"], ["otlp_proto_grpc"]),
        (
            {**OTLP, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"},
            ["otlp_proto_http"],
            ["otlp_proto_grpc"],
        ),
        ({**OTLP, "OTEL_SDK_DISABLED": "True"}, [], []),
        ({**OTLP, "OTEL_SDK_DISABLED": "false"}, ["otlp_proto_http"], ["otlp_proto_http"]),
        ({"OTEL_SERVICE_NAME": "shop"}, [], []),
    ],
)
def test_the_standard_variables_say_what_is_exported(
    environ: dict[str, str], traces: list[str], metrics: list[str]
) -> None:
    assert exporters_asked("traces", environ) == traces
    assert exporters_asked("metrics", environ) == metrics


def test_a_protocol_that_is_unknown_is_named_in_the_error() -> None:
    with pytest.raises(BadSettings, match=r"cannot be 'http/json'; take one of http/protobuf, grpc\."):
        exporters_asked("traces", {**OTLP, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})


@pytest.mark.parametrize(
    ("exporter", "protocol", "advice"),
    [
        ("otlp", "http/protobuf", "install rota[otlp]"),
        ("otlp", "grpc", "install opentelemetry-exporter-otlp-proto-grpc"),
        ("telegraph", "", "install its exporter"),
    ],
)
def test_an_exporter_that_is_not_installed_is_one_plain_sentence(
    exporter: str, protocol: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = importlib.metadata.EntryPoints()
    monkeypatch.setattr(export, "entry_points", lambda **asked: nothing)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", exporter)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with pytest.raises(BadSettings) as raised:
        setup_telemetry(LogSettings())
    (sentence,) = str(raised.value).splitlines()
    assert advice in sentence
    assert "OTEL_TRACES_EXPORTER=none" in sentence


def test_an_exporter_half_installed_counts_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = importlib.metadata.EntryPoint("otlp_proto_http", "rota_has_no_such_module:Exporter", "x")
    monkeypatch.setattr(export, "entry_points", lambda **asked: [broken])
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    with pytest.raises(BadSettings, match=r"install rota\[otlp\]"):
        setup_telemetry(LogSettings())


def test_an_exporter_that_will_not_start_is_one_plain_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn:
        def load(self) -> Any:
            return lambda: int("soon")

    monkeypatch.setattr(export, "entry_points", lambda **asked: [Stubborn()])
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    with pytest.raises(BadSettings, match=r"cannot start; look at OTEL_\*: .*'soon'"):
        setup_telemetry(LogSettings())


def run_python(code: str, **environ: str) -> str:
    """What the code prints, in a process of its own: providers can be set once per process."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**plain, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


TELL = """
from rota.clock import SystemClock
from rota.events import JobsEnqueued
from rota.settings import LogSettings
from rota.telemetry import Telemetry, setup_telemetry

stop = setup_telemetry(LogSettings(), instance="rota-8057")
telemetry = Telemetry(SystemClock())
telemetry.tell(JobsEnqueued(3, 1))
if telemetry.tracing:
    with telemetry.enqueue_span("emails", "send") as enqueue:
        pass
    telemetry.end_run(telemetry.start_run(enqueue.trace, "emails", "send", 17, 1, 1), "done", None)
stop()
stop()
"""


def test_where_nothing_asks_for_it_the_sdk_is_not_even_imported() -> None:
    check = "import sys; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    assert run_python(TELL + check) == "[]\n"


def test_stopping_exports_what_was_told_to_the_console() -> None:
    printed = run_python(TELL, OTEL_TRACES_EXPORTER="console", OTEL_METRICS_EXPORTER="console")
    assert '"name": "enqueue send"' in printed
    assert '"name": "run send"' in printed
    assert len(set(re.findall(r'"trace_id": "(\w+)"', printed))) == 1
    assert '"name": "rota.jobs.enqueued"' in printed
    assert '"service.name": "rota"' in printed
    assert '"service.instance.id": "rota-8057"' in printed


def test_the_variables_name_the_service_and_the_instance() -> None:
    printed = run_python(
        TELL,
        OTEL_TRACES_EXPORTER="console",
        OTEL_SERVICE_NAME="shop",
        OTEL_RESOURCE_ATTRIBUTES="service.instance.id=till-2",
    )
    assert '"service.name": "shop"' in printed
    assert '"service.instance.id": "till-2"' in printed
    assert "rota.jobs.enqueued" not in printed


def test_stopping_flushes_to_otlp() -> None:
    """The exporters' own `export` is replaced, so that nothing leaves the process."""
    stubs = """
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

exported = []

def export_spans(self, spans):
    exported.append(" ".join(span.name for span in spans) + " to " + self._endpoint)
    return SpanExportResult.SUCCESS

def export_metrics(self, data, timeout_millis=0, **more):
    exported.append("metrics to " + self._endpoint)
    return MetricExportResult.SUCCESS

OTLPSpanExporter.export = export_spans
OTLPMetricExporter.export = export_metrics
"""
    code = stubs + TELL + "print(*sorted(exported), sep='\\n')"
    printed = run_python(code, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector.test:4318")
    assert printed.splitlines() == [
        "enqueue send run send to http://collector.test:4318/v1/traces",
        "metrics to http://collector.test:4318/v1/metrics",
    ]


def test_a_provider_that_someone_else_set_up_is_left_as_it_is() -> None:
    theirs = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
mine = TracerProvider()
trace.set_tracer_provider(mine)
"""
    check = "print(trace.get_tracer_provider() is mine, telemetry.tracing)"
    assert run_python(theirs + TELL + check, OTEL_TRACES_EXPORTER="console") == "True True\n"


def test_a_collector_that_does_not_answer_holds_up_neither_the_end_nor_the_other_signal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    never, taken = threading.Event(), threading.Event()
    monkeypatch.setattr(export, "_FLUSH", 0.01)
    export._stop_all([never.wait, taken.set])
    assert caplog.messages == ["Telemetry was not taken within 0.01 s; the rest of it is dropped"]
    assert taken.wait(60)
    never.set()


def test_a_flush_that_fails_is_told_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise TimeoutError("the collector is away")

    export._stop_all([fail])
    assert caplog.messages == ["The end of telemetry could not be exported: the collector is away"]
