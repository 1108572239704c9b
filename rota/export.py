"""The OpenTelemetry SDK, set up when the standard OTEL_* variables ask for it.

Only the command line does this; the library uses the API and leaves the choice to its host.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any
from uuid import uuid4

from opentelemetry import metrics, trace

from rota.errors import BadSettings
from rota.logs import LOG, setup_logging
from rota.settings import LogSettings

_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

_PACKAGES = {
    "otlp_proto_http": "rota[otlp]",
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "prometheus": "opentelemetry-exporter-prometheus",
}
"""What brings the exporters that people ask for."""

_FLUSH = 5.0
"""Seconds; a drain's grace and this fit into Kubernetes' 30."""


def setup_telemetry(settings: LogSettings, *, instance: str = "") -> Callable[[], None]:
    """Set up logs, and the OpenTelemetry SDK if asked for; returns what flushes and stops it.

    `instance` tells this process from its twins (a pod's name); by default it is random.
    A provider that someone else has set up already is left as it is.
    """
    setup_logging(settings)
    traces, meters = (exporters_asked(signal, os.environ) for signal in ("traces", "metrics"))
    traces = [] if is_real(trace.get_tracer_provider()) else traces
    meters = [] if is_real(metrics.get_meter_provider()) else meters
    stops = _setup_sdk(traces, meters, instance) if traces or meters else []
    return lambda: _stop_all(stops)


def is_real(part: object) -> bool:
    """Whether a provider, tracer or meter is more than the API's own stand-in."""
    return not type(part).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def exporters_asked(signal: str, environ: Mapping[str, str]) -> list[str]:
    """The exporters that the OTEL_* variables ask for, by their entry points' names."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    named = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    if not named and _otlp(signal, "ENDPOINT", environ):
        named = "otlp"
    names = [name.strip().lower() for name in named.split(",")]
    return [
        _otlp_by_protocol(signal, environ) if name == "otlp" else name
        for name in names
        if name not in ("", "none")
    ]


def _otlp(signal: str, what: str, environ: Mapping[str, str]) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}") or environ.get(
        f"OTEL_EXPORTER_OTLP_{what}", ""
    )


def _otlp_by_protocol(signal: str, environ: Mapping[str, str]) -> str:
    protocol = _otlp(signal, "PROTOCOL", environ).strip() or "http/protobuf"
    if protocol not in _PROTOCOLS:
        raise BadSettings(
            f"OTEL_EXPORTER_OTLP_PROTOCOL cannot be {protocol!r}; take one of {', '.join(_PROTOCOLS)}."
        )
    return _PROTOCOLS[protocol]


def _setup_sdk(traces: list[str], meters: list[str], instance: str) -> list[Callable[[], object]]:
    # Imported here: whoever does not ask for the SDK does not wait for it.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    spans = [BatchSpanProcessor(_exporter("traces", name)) for name in traces]
    outlets = [_exporter("metrics", name) for name in meters]
    readers = [
        one if isinstance(one, MetricReader) else PeriodicExportingMetricReader(one) for one in outlets
    ]
    resource = Resource.create()
    resource = resource.merge(Resource(_identity(resource.attributes, instance)))
    stops: list[Callable[[], object]] = []
    if spans:
        tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for processor in spans:
            tracer_provider.add_span_processor(processor)
        trace.set_tracer_provider(tracer_provider)
        stops.append(tracer_provider.shutdown)
    if readers:
        meter_provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meter_provider)
        stops.append(meter_provider.shutdown)
    return stops


def _exporter(signal: str, name: str) -> Any:
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        try:
            return found.load()()
        except ImportError:
            break
        except Exception as error:
            raise BadSettings(
                f"Export of {signal} by {name} cannot start; look at OTEL_*: {error}."
            ) from error
    raise BadSettings(
        f"Export of {signal} by {name} is asked for (OTEL_*) and is not installed; "
        f"install {_PACKAGES.get(name, 'its exporter')}, or set OTEL_{signal.upper()}_EXPORTER=none."
    )


def _identity(known: Mapping[str, Any], instance: str) -> dict[str, str]:
    """Names where the variables give none: twins without them would overwrite each other's metrics."""
    service = str(known.get("service.name", "unknown_service"))
    twin = known.get("service.instance.id")
    # Newer SDKs make one up, so that having one does not say that someone chose it.
    if instance and "service.instance.id=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        twin = instance
    return {
        "service.name": "rota" if service.startswith("unknown_service") else service,
        "service.instance.id": str(twin or uuid4()),
    }


def _stop_all(stops: list[Callable[[], object]]) -> None:
    """Flush all at once, and no longer than a pod that is told to go can wait."""
    flush = threading.Thread(target=_flush, args=(stops.copy(),), daemon=True)
    stops.clear()
    flush.start()
    flush.join(_FLUSH)
    if flush.is_alive():
        LOG.warning("Telemetry was not taken within %g s; the rest of it is dropped", _FLUSH)


def _flush(stops: list[Callable[[], object]]) -> None:
    # A thread for each: a collector that is deaf for traces must not cost the metrics.
    flushes = [threading.Thread(target=_stop, args=(stop,), daemon=True) for stop in stops]
    for flush in flushes:
        flush.start()
    for flush in flushes:
        flush.join()


def _stop(stop: Callable[[], object]) -> None:
    try:
        stop()
    except Exception as error:
        LOG.warning("The end of telemetry could not be exported: %s", error)
