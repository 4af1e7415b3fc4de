"""A received request becomes the one that is sent, and the response that came the one that goes on."""

from collections.abc import Callable
from typing import Any

import pytest

from neighbours import FRESH, House
from univocal.engine.flight import origin_request
from univocal.forward.upstream import Forwarding, Upstream
from univocal.http.errors import RefusedError
from univocal.http.messages import Fields, Response, values
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.origin.balance import Balance
from univocal.origin.server import OriginServer


class Server(OriginServer):
    """An origin server that keeps what it is sent, and answers at once."""

    def __init__(self, response: Response) -> None:
        super().__init__("http://server.example/mapped")
        self.response = response
        self.sent: list[tuple[bytes, bytes, Fields, Any]] = []

    def ask(
        self, request: OriginRequest, answer: Answer, timeouts: Any = None, moved: Any = None
    ) -> UnderWay:
        self.sent.append((request.method, request.target, request.fields, request.content))
        answer.interim(103, [(b"connection", b"close"), (b"link", b"<a>")])
        answer.start(self.response)
        answer.write(b"content")
        answer.finish()
        return Nothing()

    async def aclose(self) -> None: ...


class Nothing:
    came = True

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def cancel(self) -> None: ...


class Heard:
    """An answer that keeps what it is told."""

    def __init__(self) -> None:
        self.interims: list[tuple[int, Fields]] = []
        self.response = Response(0, [])
        self.content = b""
        self.ends: list[Exception | None] = []

    def interim(self, status: int, fields: Fields) -> None:
        self.interims.append((status, fields))

    def start(self, response: Response) -> None:
        self.response = response

    def write(self, chunk: bytes) -> bool:
        self.content += chunk
        return True

    def finish(self) -> None:
        self.ends.append(None)

    def fail(self, error: Exception) -> None:
        self.ends.append(error)


Forward = Callable[..., tuple[Server, Heard]]


@pytest.fixture
def forward() -> Forward:
    def send(
        method: bytes = b"GET",
        *fields: tuple[bytes, bytes],
        host: bytes = b"",
        told: Fields = FRESH,
        content: Any = None,
    ) -> tuple[Server, Heard]:
        server, heard = Server(Response(200, told)), Heard()
        admission = House().admit(b"/a", method, *fields)
        forwarding = Forwarding({"": Upstream(Balance.alone(server), host)})  # type: ignore[arg-type]
        request = origin_request(admission, admission.request.fields, content)
        forwarding.ask(request, heard)
        return server, heard

    return send


@pytest.mark.parametrize(("host", "sent"), [(b"", b"en.example"), (b"origin.example", b"origin.example")])
def test_the_target_is_mapped_and_the_host_configured(forward: Forward, host: bytes, sent: bytes) -> None:
    server, _ = forward(host=host)
    ((method, target, fields, _),) = server.sent
    assert (method, target, values(fields, b"host")) == (b"GET", b"/mapped/a", [sent])
    assert values(fields, b"x-forwarded-for") == [b"127.0.0.1"]


def test_what_is_for_this_hop_goes_no_further(forward: Forward) -> None:
    _, heard = forward(told=[*FRESH, (b"connection", b"a"), (b"a", b"b")])
    assert heard.interims == [(103, [(b"link", b"<a>"), (b"via", b"1.1 univocal")])]
    assert not values(heard.response.fields, b"connection")
    assert not values(heard.response.fields, b"a")
    assert len(values(heard.response.fields, b"date")) == 1
    assert (heard.content, heard.ends) == (b"content", [None])


@pytest.mark.parametrize(
    ("method", "left", "asked"), [(b"OPTIONS", b"0", 0), (b"TRACE", b"0", 0), (b"OPTIONS", b"1", 1)]
)
def test_who_is_the_last_to_be_asked_answers(
    forward: Forward, method: bytes, left: bytes, asked: int
) -> None:
    server, heard = forward(method, (b"max-forwards", left))
    assert len(server.sent) == asked
    assert (heard.response.status, heard.ends) == (200, [None])
    assert bool(values(heard.response.fields, b"allow")) is (not asked)


@pytest.mark.parametrize(("times", "asked"), [(16, 1), (17, 0)])
def test_only_the_excessive_client_is_told_so(forward: Forward, times: int, asked: int) -> None:
    server, heard = forward(b"GET", *[(b"via", b"1.1 univocal")] * times)
    assert len(server.sent) == asked
    refusals = [(error.reason, error.provoked) for error in heard.ends if isinstance(error, RefusedError)]
    # Who waits for the same resource asks by himself.
    assert refusals == ([] if asked else [("origin-unreachable", True)])
