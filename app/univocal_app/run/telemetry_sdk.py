"""OpenTelemetry as the environment says: its SDK reads OTEL_EXPORTER_OTLP_ENDPOINT and its like."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import Configuration
from univocal_app.observe.metrics import Metrics
from univocal_app.processes.commons import Commons

if TYPE_CHECKING:
    from univocal_app.observe.telemetry import Telemetry


def check_telemetry(configuration: Configuration, source: str) -> None:
    """Raise ConfigurationError if OpenTelemetry is asked for and not installed."""
    needed = "opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"
    if configuration.server.otel and not all(map(_is_there, needed)):
        allowed = "false, or true after pip install 'univocal[otel]'"
        raise ConfigurationError(source, "server.otel", True, allowed)


def telemetry_of(
    configuration: Configuration, source: str, metrics: Metrics, commons: Commons | None = None
) -> Telemetry | None:
    """The sender of spans and metrics, if that is asked for. Of several processes one sends what all count.

    Raises ConfigurationError.
    """
    check_telemetry(configuration, source)
    if not configuration.server.otel:
        return None
    # Imported here, since it takes a while and is an extra.
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from univocal_app.observe.telemetry import Telemetry  # noqa: PLC0415

    instance = {"service.instance.id": str(os.getpid())}
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "univocal"}
    resource = Resource.create(named | instance)
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _wanted("TRACES"):
        spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if _wanted("METRICS") else []
    meters = MeterProvider(readers, resource, shutdown_on_exit=False)
    return Telemetry(spans, meters, metrics, tells=commons is None or commons.leads)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what is around it
        return False


def _wanted(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "none"
