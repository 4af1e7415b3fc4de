"""`otel = true`: a running program sends spans and metrics to a collector, by OTLP over HTTP."""

import re
import time
from functools import partial

import pytest

from support import origin_server, response_with


@pytest.fixture
def collector():
    """A collector's address, and what it was sent, by path."""
    posted = []

    def answer(head, content):
        posted.append((head.split(b" ")[1].decode(), content))
        return response_with()

    with origin_server(answer) as url:
        yield url, posted


@pytest.fixture
def serve(start_with, origin):
    site = f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
    return partial(start_with, f'otel = true\naccess_log = "off"\n{site}')


def test_spans_and_metrics_go_to_the_collector(serve, collector, ask, origin):
    url, posted = collector
    program = serve(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_SERVICE_NAME="front")
    ask(program.proxy, "/otel-miss", "en.example")
    assert program.end() == 0  # which sends what is left
    (trace,) = re.findall(
        rb"(?im)^traceparent: 00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\r$", origin.seen[0]
    )
    spans = b"".join(content for path, content in posted if path == "/v1/traces")
    metrics = b"".join(content for path, content in posted if path == "/v1/metrics")
    assert bytes.fromhex(trace.decode()) in spans
    assert b"/otel-miss" in spans
    assert b"front" in spans
    assert b"univocal.requests" in metrics
    assert b"http.server.request.duration" in metrics


def test_without_a_collector_it_serves_and_ends_all_the_same(serve, ask):
    program = serve(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert ask(program.proxy, "/a", "en.example").status == 200
    begun = time.monotonic()
    assert program.end() == 0
    assert time.monotonic() - begun < 15


def test_without_it_the_traceparent_goes_on_as_it_came(plain, ask, origin):
    sent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=1\r\n"
    ask(plain.proxy, "/a", "en.example", fields=sent)
    ask(plain.proxy, "/b", "en.example")
    assert sent.strip().encode() in origin.seen[0]
    assert b"traceparent" not in origin.seen[1]
