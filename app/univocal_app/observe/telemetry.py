"""OpenTelemetry (extra `univocal[otel]`): a span for each exchange and each request to an origin server.

The traceparent that an origin server gets names the span of the request to it (W3C Trace Context §3.2). If a
client sends none, a trace begins here. Nothing imports this module while `server.otel` is false.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from univocal.engine.outcome import Outcome
from univocal.http.errors import Failure
from univocal.http.messages import Fields, Received, first
from univocal.http.roles import OriginRequest, Watch
from univocal_app.observe.families import FAMILIES
from univocal_app.observe.figures import Figures
from univocal_app.observe.handled import cache_word

MOST: Final = 10_000  # exchanges under way that are remembered with their spans
PATIENCE: Final = 3.0  # seconds in which what is left is sent at the end

_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"})
_TRACE: Final = frozenset({b"traceparent", b"tracestate"})
_propagator: Final = TraceContextTextMapPropagator()


class Telemetry:
    """A listener that makes spans of outcomes, and watches requests to origin servers.

    `figures` counts these as well; with `tells`, the counts of all processes are exported as metrics, too.
    Names are those of OpenTelemetry's semantic conventions for HTTP; the rest begin with "univocal.".
    """

    def __init__(
        self, spans: TracerProvider, meters: MeterProvider, figures: Figures, *, tells: bool = True
    ) -> None:
        self._providers = spans, meters
        self._figures = figures
        self.tracer = spans.get_tracer("univocal")
        meter = meters.get_meter("univocal")
        self._seconds = meter.create_histogram(
            "http.server.request.duration", "s", "Seconds from a request's head to its response's last byte"
        )
        self.origin_seconds = meter.create_histogram(
            "http.client.request.duration", "s", "Seconds from a request to the head of its response"
        )
        # The spans of exchanges that were forwarded; an outcome ends its own.
        self._forwarded: OrderedDict[int, tuple[Received, Span]] = OrderedDict()
        if tells:
            _tell(meter, figures)

    def __call__(self, outcome: Outcome) -> None:
        received, times, name = outcome.received, outcome.times, _name(outcome.received.method)
        _, span = self._forwarded.pop(id(received), (None, None))
        if span is None:
            context, begun = (
                _context(outcome.noted.trace, outcome.noted.trace_state),
                _nanoseconds(times.start),
            )
            span = self.tracer.start_span(name, context, SpanKind.SERVER, start_time=begun)
        if span.is_recording():
            span.set_attributes(_attributes(outcome))
            if outcome.status >= 500 or not outcome.status:
                span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(times.start + times.total))
        cache = cache_word(outcome.handling) or "none"
        self._seconds.record(
            times.total,
            {"http.request.method": name, "http.response.status_code": outcome.status,
             "univocal.site": outcome.site, "univocal.cache": cache},
        )  # fmt: skip

    def watch(self, request: OriginRequest) -> Watch:
        """Watch a request to origin servers, whose spans are below that of its exchange."""
        received, fields = request.received, request.fields
        context = _context(first(fields, b"traceparent"), first(fields, b"tracestate"))
        if not request.is_unread:
            span = self._span_of(received, context)
            context = set_span_in_context(span, context)
        return _Watch(self, self._figures.watch(request), context, _name(request.method))

    def _span_of(self, received: Received, context: Context) -> Span:
        """The span of the exchange that this request began."""
        known = self._forwarded.get(id(received))
        if known is not None:
            return known[1]
        span = self.tracer.start_span(_name(received.method), context, SpanKind.SERVER)
        self._forwarded[id(received)] = received, span  # which keeps the identity from being another's
        if len(self._forwarded) > MOST:
            self._forwarded.popitem(last=False)[1][1].end()
        return span

    def close(self) -> None:
        """Send what is left, within some seconds."""
        limit = time.monotonic() + PATIENCE
        threads = [threading.Thread(target=each.shutdown, daemon=True) for each in self._providers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))


def exported(figures: Figures, *, tells: bool) -> Telemetry:
    """Telemetry as the environment says: the SDK reads OTEL_EXPORTER_OTLP_ENDPOINT and its like."""
    instance = {"service.instance.id": str(os.getpid())}
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "univocal"}
    resource = Resource.create(named | instance)
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _wanted("TRACES"):
        spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if _wanted("METRICS") else []
    return Telemetry(spans, MeterProvider(readers, resource, shutdown_on_exit=False), figures, tells=tells)


def _wanted(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "none"


class _Watch:
    """A request on its way to origin servers: a span for each that is asked, until its response's head."""

    __slots__ = ("_attributes", "_begun", "_context", "_counted", "_method", "_span", "_telemetry")

    def __init__(self, telemetry: Telemetry, counted: Watch, context: Context, method: str) -> None:
        self._telemetry, self._counted, self._context, self._method = telemetry, counted, context, method
        self._span: Span | None = None
        self._begun = 0.0

    def sending(self, origin: str, fields: Fields) -> Fields:
        fields = self._counted.sending(origin, fields)
        self._begun = time.perf_counter()
        self._attributes = {"http.request.method": self._method, "url.full": origin}
        tracer = self._telemetry.tracer
        self._span = tracer.start_span(self._method, self._context, SpanKind.CLIENT, self._attributes)
        return _traced(fields, self._span)

    def answered(self, origin: str, status: int) -> None:
        self._counted.answered(origin, status)
        span = self._span
        if span is None:
            return
        if status:
            span.set_attribute("http.response.status_code", status)
            attributes: dict[str, AttributeValue] = {**self._attributes, "http.response.status_code": status}
            self._telemetry.origin_seconds.record(time.perf_counter() - self._begun, attributes)
        if not status or status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._span = None

    def failed(self, failure: Failure) -> None:
        self._counted.failed(failure)
        if self._span is not None:
            self._span.set_attributes({"error.type": failure.reason, "univocal.error": failure.error})


def _context(parent: bytes | None, state: bytes | None) -> Context:
    """The context of a trace that somebody else began; an empty one without one that is valid."""
    carrier = {}
    if parent is not None:
        carrier["traceparent"] = parent.strip(b" \t").decode("latin-1")
    if state is not None:
        carrier["tracestate"] = state.decode("latin-1")
    return _propagator.extract(carrier, Context())


def _traced(fields: Fields, span: Span) -> Fields:
    """The fields with the trace context of a span in place of any other."""
    carrier = dict[str, str]()
    _propagator.inject(carrier, set_span_in_context(span, Context()))
    kept = [field for field in fields if field[0] not in _TRACE]
    return kept + [(name.encode(), value.encode("latin-1", "replace")) for name, value in carrier.items()]


def _attributes(outcome: Outcome) -> dict[str, AttributeValue]:
    received, canonical, handling = outcome.received, outcome.canonical, outcome.handling
    path, _, query = received.target.partition(b"?")
    attributes: dict[str, AttributeValue | None] = {
        "http.request.method": _name(received.method),
        "http.response.status_code": outcome.status or None,
        "http.response.body.size": outcome.bytes,
        "url.scheme": received.scheme.decode("latin-1"),
        "url.path": path.decode("latin-1"),
        "url.query": query.decode("latin-1") or None,
        "client.address": outcome.client,
        "network.protocol.version": received.version.decode("latin-1"),
        "user_agent.original": outcome.agent and outcome.agent[:512].decode("latin-1"),
        "error.type": outcome.reasons[0] if outcome.reasons and outcome.status >= 400 else None,
        "univocal.site": outcome.site,
        "univocal.url": None if canonical is None else canonical.url.decode("latin-1"),
        "univocal.cache": cache_word(handling) or None,
        "univocal.stored": handling.stored,
        "univocal.collapsed": handling.collapsed,
        "univocal.detail": handling.reported_detail or None,
        "univocal.seconds": outcome.times.total,
        "univocal.request_id": received.request_id.decode("ascii") or None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _name(method: bytes) -> str:
    """The method, if it is one of those that all know: no client chooses the names of spans."""
    return method.decode("ascii") if method in _METHODS else "HTTP"


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _tell(meter: Meter, figures: Figures) -> None:
    """Tell what is counted under names that become those of `/metrics` again where Prometheus gets them."""
    makers: dict[str, Callable[..., object]] = {
        "counter": meter.create_observable_counter, "gauge": meter.create_observable_gauge
    }  # fmt: skip
    for name, family in FAMILIES.items():
        if name.startswith("univocal_") and family.kind in makers:
            observe, told = partial(_observed, figures, name), family.documentation
            makers[family.kind](name.replace("_", ".", 1), [observe], description=told)


def _observed(figures: Figures, name: str, _: CallbackOptions) -> Iterable[Observation]:
    return [Observation(value, labels) for labels, value in figures.numbers(name)]
