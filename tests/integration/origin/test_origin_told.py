"""Why an origin server was not reached: for its operator, in log and metrics, never for a client."""

import json
import ssl

import httpx

from examples import cases
from tests.ports import free_port
from univocal import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.engine.outcome import Outcome
from univocal.http.errors import Failure
from univocal.origin.servers import Timeouts
from univocal_app.observe.log_lines import as_combined, as_json


async def asked(url, read=20.0):
    """A GET by way of a proxy to `url`: the answer, what listeners hear, and what is counted."""
    outcomes, failures = list[Outcome](), list[tuple[str, Failure]]()
    proxy = ReverseProxy(url, timeouts=Timeouts(20, read, 20))

    class Watched:
        def __init__(self, request):
            self.site = request.site

        def sending(self, origin, fields):
            return fields

        def answered(self, origin, status):
            assert origin == url

        def failed(self, failure):
            failures.append((self.site, failure))

    cache = CacheMiddleware(proxy, profile="rfc3986", listeners=[outcomes.append])
    cache.engine.flights.watch = Watched
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(cache)) as client:
            answer = await client.get("http://en.example/a")
    finally:
        await proxy.aclose()
    return answer, outcomes[0], failures


async def test_a_refused_connection_is_told_with_its_address():
    port = free_port()
    answer, outcome, counted = await asked(f"http://localhost:{port}")
    assert answer.status_code == 502
    failure = outcome.failure
    assert failure is not None
    assert (failure.origin, failure.reason) == (f"http://localhost:{port}", "refused")
    assert failure.address in {f"127.0.0.1:{port}", f"[::1]:{port}"}
    assert counted == [("*", failure)]
    line = json.loads(as_json(outcome))["origin"]
    assert (line["url"], line["address"], line["reason"]) == failure[:3]
    assert f'"origin {failure.origin} at {failure.address}: refused: '.encode() in as_combined(outcome)
    said = answer.text + str(answer.headers)
    assert str(port) not in said
    assert "refused" not in said


async def test_a_name_without_an_address_is_unresolved():
    _, outcome, _ = await asked("http://nowhere.invalid")
    assert outcome.failure is not None
    assert (outcome.failure.reason, outcome.failure.address) == ("unresolved", "")


async def closes(peer):
    await peer.head()


async def says_nothing(peer):
    await peer.forever()


async def says_garbage(peer):
    await peer.head()
    await peer.send(b"garbage\r\n\r\n")
    await peer.forever()


async def resets(peer):
    await peer.head()
    peer.reset()


@cases(
    "script, status, reason, said",
    (closes, 502, "closed", "closed the connection too early"),
    (says_nothing, 504, "timeout", "read: "),
    (says_garbage, 502, "malformed", ""),
    (resets, 502, "reset", ""),
)
async def test_the_reason_of_a_failure_is_told(serve, script, status, reason, said):
    port = (await serve(script)).port
    answer, outcome, counted = await asked(f"http://127.0.0.1:{port}", 0.2 if status == 504 else 20.0)
    assert answer.status_code == status
    assert outcome.failure is not None
    assert (outcome.failure.reason, outcome.failure.address) == (reason, f"127.0.0.1:{port}")
    assert said in outcome.failure.error
    assert [failure.reason for _, failure in counted] == [reason]


async def test_an_answer_is_no_failure(serve):
    async def answers(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 503 x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    answer, outcome, counted = await asked(f"http://127.0.0.1:{(await serve(answers)).port}")
    assert (answer.status_code, outcome.failure, counted) == (503, None, [])
    assert json.loads(as_json(outcome))["origin"].keys() == {"url", "address"}


async def test_a_certificate_that_nobody_vouches_for_is_told():
    from univocal.origin.failures import ConnectError, origin_failure

    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    broken = ConnectError("no")
    broken.__cause__ = error
    failure = origin_failure(broken, "https://a", "192.0.2.1:443").failure
    assert failure == Failure("https://a", "192.0.2.1:443", "certificate", "self-signed certificate")
