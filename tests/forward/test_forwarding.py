"""A received request becomes the one that is sent, and the response that came the one that goes on."""

import pytest

from examples import cases
from neighbours import FRESH, PlayedAnswer, Proxy
from univocal.engine.flight import origin_request
from univocal.forward.upstream import Upstream
from univocal.http.errors import RefusedError
from univocal.http.messages import Response, values
from univocal.origin.servers import Balance, OriginServer


class Server(OriginServer):
    """An origin server that keeps what it is sent, and answers at once."""

    def __init__(self, response):
        super().__init__("http://server.example/mapped")
        self.response = response
        self.sent = []

    def ask(self, request, answer, timeouts=None, moved=None):
        self.sent.append((request.method, request.target, request.fields, request.content))
        answer.interim(103, [(b"connection", b"close"), (b"link", b"<a>")])
        answer.start(self.response)
        answer.write(b"content")
        answer.finish()
        return Nothing()

    async def aclose(self): ...


class Nothing:
    came = True

    def pause(self): ...
    def resume(self): ...
    def cancel(self): ...


@pytest.fixture
def forward():
    def send(method=b"GET", *fields, host=b"", told=FRESH, content=None):
        server, heard = Server(Response(200, told)), PlayedAnswer()
        admission = Proxy().admit(b"/a", method, *fields)
        upstream = Upstream(Balance.alone(server), host)
        request = origin_request(admission, admission.request.fields, content)
        upstream.ask(request, heard)
        return server, heard

    return send


@pytest.mark.parametrize(("host", "sent"), [(b"", b"en.example"), (b"origin.example", b"origin.example")])
def test_the_target_is_mapped_and_the_host_configured(forward, host, sent):
    server, _ = forward(host=host)
    ((method, target, fields, _),) = server.sent
    assert (method, target, values(fields, b"host")) == (b"GET", b"/mapped/a", [sent])
    assert values(fields, b"x-forwarded-for") == [b"127.0.0.1"]


def test_hop_by_hop_fields_of_responses_are_not_forwarded(forward):
    _, heard = forward(told=[*FRESH, (b"connection", b"a"), (b"a", b"b")])
    assert heard.interims == [(103, [(b"link", b"<a>"), (b"via", b"1.1 univocal")])]
    assert not values(heard.head[1], b"connection")
    assert not values(heard.head[1], b"a")
    assert len(values(heard.head[1], b"date")) == 1
    assert (heard.content, heard.ends) == (b"content", [None])


@cases("method, left, asked", (b"OPTIONS", b"0", 0), (b"TRACE", b"0", 0), (b"OPTIONS", b"1", 1))
def test_options_and_trace_with_max_forwards_zero_are_answered_here(forward, method, left, asked):
    server, heard = forward(method, (b"max-forwards", left))
    assert len(server.sent) == asked
    assert (heard.head[0], heard.ends) == (200, [None])
    assert bool(values(heard.head[1], b"allow")) is (not asked)


@pytest.mark.parametrize(("times", "asked"), [(16, 1), (17, 0)])
def test_only_the_excessive_client_is_told_so(forward, times, asked):
    server, heard = forward(b"GET", *[(b"via", b"1.1 univocal")] * times)
    assert len(server.sent) == asked
    refusals = [(error.reason, error.provoked) for error in heard.ends if isinstance(error, RefusedError)]
    # A client that waits for the same resource asks for itself.
    assert refusals == ([] if asked else [("origin-unreachable", True)])
