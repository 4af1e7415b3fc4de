"""OpenTelemetry by the SDK's in-memory exporters: spans, what origin servers are told, metrics."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind

from univocal import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.http.errors import ConfigurationError
from univocal.judge.runtime import RequestIds
from univocal_app.config.tables import validate
from univocal_app.observe import telemetry
from univocal_app.observe.figures import Figures
from univocal_app.observe.telemetry import Telemetry
from univocal_app.run import configured as module
from univocal_app.run.configured import runtime_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Stage:
    """A proxy before a played origin server; `seen` are the fields that this one got."""

    def __init__(self, sampler=None):
        self.seen = []
        self.status, self.control = 200, "max-age=60"
        self.error = None
        self.gate = None
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        spans = TracerProvider(sampler=sampler)
        spans.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.figures = Figures()
        self.telemetry = Telemetry(spans, MeterProvider([self.reader]), self.figures)
        proxy = ReverseProxy("http://127.0.0.1:9000", httpx.MockTransport(self.answer))
        self.app = CacheMiddleware(
            proxy, profile="mediawiki", listeners=[self.telemetry], counters=[self.figures]
        )
        self.app.engine.flights.watch = self.telemetry.watch

    async def answer(self, request):
        self.seen.append(dict(request.headers))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return httpx.Response(self.status, headers={"cache-control": self.control}, content=b"content")

    async def ask(self, target="/wiki/A", method="GET", **fields):
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 50000))
        async with httpx.AsyncClient(transport=transport, base_url="http://en.example") as client:
            return await client.request(method, target, headers=fields)

    def spans(self, kind=SpanKind.SERVER):
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    def told(self, name):
        """The data points of a metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [point for metric in found for point in metric.data.data_points]


@pytest.fixture
def stage():
    return Stage()


def hexadecimal(span):
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


async def test_a_forwarded_request_is_a_span_with_a_child(stage):
    await stage.ask(
        "/wiki/A%28b%29?x=1", traceparent=TRACEPARENT, tracestate="vendor=1", **{"user-agent": "me"}
    )
    (server,), (client,) = stage.spans(), stage.spans(SpanKind.CLIENT)
    assert (hexadecimal(server)[0], f"{server.parent.span_id:016x}") == (TRACE, PARENT)
    assert (hexadecimal(client)[0], client.parent.span_id) == (TRACE, server.context.span_id)
    assert stage.seen[0]["traceparent"] == f"00-{TRACE}-{hexadecimal(client)[1]}-01"
    assert stage.seen[0]["tracestate"] == "vendor=1"
    assert server.name == client.name == "GET"
    expected = {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "url.path": "/wiki/A%28b%29",
        "url.query": "x=1",
        "univocal.url": "http://en.example/wiki/A(b)?x=1",
        "univocal.cache": "uri-miss",
        "user_agent.original": "me",
        "client.address": "127.0.0.1",
    }
    assert {name: server.attributes[name] for name in expected} == expected
    assert client.attributes["http.response.status_code"] == 200
    assert client.attributes["url.full"] == "http://127.0.0.1:9000"


async def test_a_span_has_the_name_that_the_origin_server_got(stage):
    gate = stage.app.gate
    gate.runtime = replace(gate.runtime, request_ids=RequestIds(b"X-Request-Id", ()))
    await stage.ask()
    (server,) = stage.spans()
    assert server.attributes["univocal.request_id"] == stage.seen[0]["x-request-id"]


async def test_unsampled_requests_are_forwarded_as_unsampled():
    quiet = Stage(ALWAYS_OFF)
    await quiet.ask(traceparent=TRACEPARENT)
    assert quiet.exporter.get_finished_spans() == ()
    assert quiet.seen[0]["traceparent"].startswith(f"00-{TRACE}-")
    assert quiet.seen[0]["traceparent"].endswith("-00")


async def test_a_hit_is_a_span_below_its_clients_own(stage):
    await stage.ask()
    # The last one's odd field takes the long way.
    for odd in ({}, {"pragma": "x"}):
        await stage.ask(traceparent=TRACEPARENT, tracestate="vendor=1", **odd)
        hit = stage.spans()[-1]
        assert hit.attributes["univocal.cache"] == "hit"
        assert (hexadecimal(hit)[0], f"{hit.parent.span_id:016x}") == (TRACE, PARENT)
        assert hit.context.trace_state.to_header() == "vendor=1"
    assert 0 <= hit.end_time - hit.start_time < 60e9
    assert len(stage.spans(SpanKind.CLIENT)) == 1


async def test_rejections_and_purges_are_spans_without_client_names(stage):
    await stage.ask("/wiki/%00")
    await stage.ask(method="PURGE")
    await stage.ask(method="BREW")
    refused, purge, brewed = stage.spans()
    assert refused.attributes["error.type"] == "control-character"
    assert (purge.name, brewed.name) == ("HTTP", "HTTP")


async def test_an_origin_server_that_does_not_answer_is_an_error(stage):
    stage.error = httpx.ConnectError("refused")
    assert (await stage.ask()).status_code == 502
    (server,), (client,) = stage.spans(), stage.spans(SpanKind.CLIENT)
    assert (server.status.is_ok, client.status.is_ok) == (False, False)
    assert "error.type" in client.attributes
    assert server.attributes["error.type"] == "origin-unreachable"


async def test_each_waiting_request_has_a_span(stage):
    stage.gate = asyncio.Event()
    asked = [asyncio.create_task(stage.ask()) for _ in range(3)]
    while not stage.seen:  # noqa: ASYNC110 - another task does it
        await asyncio.sleep(0)
    stage.gate.set()
    await asyncio.gather(*asked)
    assert len(stage.spans(SpanKind.CLIENT)) == 1
    assert len(stage.spans()) == 3
    assert len({hexadecimal(span) for span in stage.spans()}) == 3


async def test_nothing_is_remembered_of_exchanges_that_are_over(stage):
    for number in range(20):
        await stage.ask(f"/wiki/{number}")
    stage.error = httpx.ConnectError("refused")
    await stage.ask("/wiki/none")
    assert len(stage.telemetry._forwarded) == 0


def test_remembered_spans_are_bounded(stage, monkeypatch):
    monkeypatch.setattr(telemetry, "MOST", 10)
    for _ in range(15):
        stage.telemetry._span_of(SimpleNamespace(method=b"GET"), Context())
    assert len(stage.telemetry._forwarded) == 10


async def test_metrics_are_those_that_prometheus_gets_and_two_histograms(stage):
    for target in ("/wiki/A", "/wiki/A", "/wiki/%00"):
        await stage.ask(target)
    stage.app.engine.audience.settle()
    stage.figures.look()
    requests = {
        (point.attributes["cache"], point.attributes["status"]): point.value
        for point in stage.told("univocal.requests")
    }
    assert requests == {("uri-miss", "2xx"): 1, ("hit", "2xx"): 1, ("none", "4xx"): 1}
    (sent,) = stage.told("univocal.origin_requests")
    assert (sent.attributes["origin"], sent.value) == ("http://127.0.0.1:9000", 1)
    assert [point.value for point in stage.told("univocal.stored_responses")] == [0]  # of another store
    assert sum(point.count for point in stage.told("http.server.request.duration")) == 3
    assert sum(point.count for point in stage.told("http.client.request.duration")) == 1


# ── univocal serve ──────────────────────────────────────────────────────────────────────────────────────────

SITES = {"sites": [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:1"}]}


def test_without_the_extra_it_is_refused(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'univocal\[otel\]'") as refused:
        runtime_of(validate({**SITES, "server": {"otel": True}}, "test"))
    assert refused.value.key == "server.otel"
