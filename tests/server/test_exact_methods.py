"""Methods that llhttp does not know, and who hears of requests that no application gets."""

import pytest

from univocal.http.framing import ReadLimits

HOST = b"Host: a.example\r\n"


def message(method, fields=HOST, content=b"", target=b"/a%2fb?c"):
    return method + b" " + target + b" HTTP/1.1\r\n" + fields + b"\r\n" + content


def whole(data):
    return [data]


def octets(data):
    return [data[i : i + 1] for i in range(len(data))]


def fours(data):
    return [data[i : i + 4] for i in range(0, len(data), 4)]


splits = pytest.mark.parametrize("split", [whole, octets, fours])

METHODS = [
    b"BAN",
    b"B",
    b"GETT",
    b"PURGEALL",
    b"FOO_BAR",
    b"VERSION-CONTROL",
    b"A" * 32,
    b"QUERY",
    b"PROPFIND",
]


@splits
@pytest.mark.parametrize("method", METHODS)
async def test_every_method_reaches_the_application(scoped, recorder, split, method):
    client = scoped(recorder)
    for number in range(2):
        await client.feed(*split(message(method)))
        assert len(recorder.scopes) == number + 1
    assert {scope["method"].encode() for scope in recorder.scopes} == {method}
    assert recorder.targets == [b"/a%2fb?c"] * 2
    assert client.open


@splits
@pytest.mark.parametrize("method", [method for method in METHODS if method != b"BAN"])  # that one is a purge
async def test_every_method_reaches_the_origin(wire, recorder, split, method):
    client = wire(recorder)
    await client.feed(*split(message(method, target=b"/a?c")))
    await client.feed(*split(message(method, target=b"/b")))
    assert {scope["method"].encode() for scope in recorder.scopes} == {method}
    assert recorder.targets == [b"/a?c", b"/b"]
    assert client.open


@splits
@pytest.mark.parametrize("fields", [b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_their_content_is_framed_as_any(wire, recorder, split, fields):
    content = b"abc" if b"Length" in fields else b"3\r\nabc\r\n0\r\n\r\n"
    client = wire(recorder)
    await client.feed(*split(message(b"QUERY", HOST + fields, content)))
    await client.feed(*split(message(b"GET")))
    assert [scope["method"] for scope in recorder.scopes] == ["QUERY", "GET"]
    assert recorder.bodies == [b"abc", b""]


async def test_an_upgrade_beside_such_a_method_is_ignored(wire, recorder):
    client = wire(recorder)
    fields = HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n"
    await client.feed(message(b"QUERY", fields, b"abc"), message(b"GET"))
    assert [scope["method"] for scope in recorder.scopes] == ["QUERY", "GET"]
    assert recorder.bodies == [b"abc", b""]


@splits
@pytest.mark.parametrize("method", [b"ban", b"B\xc4N", b"B@N", b"A" * 33, b"-", b"1"])
async def test_what_is_no_method_is_refused(wire, recorder, split, method):
    client = wire(recorder)
    await client.feed(*split(message(method)))
    (answer,) = client.answers()
    assert (answer.status, answer.problem["reason"]) == (400, "bad-framing")
    assert recorder.scopes == []


@splits
async def test_a_pipelined_one_is_answered_in_its_turn(wire, recorder, split):
    client = wire(recorder)
    posted = message(b"POST", HOST + b"Content-Length: 7\r\n", b"BAN / H")
    await client.feed(*split(message(b"GET") + message(b"X-FOO") + posted + message(b"X_BAR")))
    assert [answer.status for answer in client.answers()] == [200] * 4
    assert [scope["method"] for scope in recorder.scopes] == ["GET", "X-FOO", "POST", "X_BAR"]
    assert client.open


@splits
async def test_what_is_no_method_is_refused_behind_others_too(wire, recorder, split):
    client = wire(recorder)
    await client.feed(*split(message(b"GET") + message(b"ban")))
    first, second = client.answers()
    assert (first.status, second.status, second.problem["reason"]) == (200, 400, "bad-framing")
    assert len(recorder.scopes) == 1


async def test_an_endless_method_waits_no_longer_than_a_head(wire, recorder):
    client = wire(recorder, limits=ReadLimits(header_timeout=10))
    await client.feed(b"B")
    client.clock.pass_time(9)
    await client.feed(b"A")
    assert client.open
    client.clock.pass_time(1)
    (answer,) = client.answers()
    assert answer.status == 408


TOLD = {  # what is received: method and target of what is told, its reasons
    message(b"PURGE", HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n"): (
        b"PURGE",
        b"/a%2fb?c",
        "bad-framing",
    ),
    message(b"PURGE", b""): (b"PURGE", b"/a%2fb?c", "bad-host"),
    message(b"BAN", HOST + HOST): (b"BAN", b"/a%2fb?c", "bad-host"),
    message(b"PURGE", target=b"/a\x01"): (b"PURGE", b"", "control-character"),
    message(b"BAN", target=b"/a\x01"): (b"BAN", b"", "control-character"),
    message(b"PURGE", target=b"a"): (b"PURGE", b"", "no-leading-slash"),
    message(b"PURGE", target=b"/" + b"a" * 99): (b"PURGE", b"/" + b"a" * 49, "target-too-long"),
    message(b"PURGE", HOST + b"X: y\r\n" * 9): (b"PURGE", b"/a%2fb?c", "fields-too-large"),
    message(b"ban"): (b"", b"", "bad-framing"),
}


@pytest.mark.parametrize("data", TOLD)
async def test_what_no_application_gets_is_told(wire, recorder, data):
    told = []
    client = wire(
        recorder, limits=ReadLimits(max_target=50, max_fields=5), tell=lambda *said: told.append(said)
    )
    await client.feed(data)
    ((received, reasons),) = told
    method, target, reason = TOLD[data]
    assert (received.method, received.target, reasons[0]) == (method, target, reason)
    assert (received.client, received.scheme) == ("192.0.2.1", b"http")


async def test_a_head_that_is_not_finished_in_time_is_told(wire, recorder):
    told = []
    client = wire(recorder, limits=ReadLimits(header_timeout=10), tell=lambda *said: told.append(said))
    await client.feed(b"PURGE /a HTTP/1.1\r\nHost:")
    client.clock.pass_time(10)
    ((received, reasons),) = told
    assert (received.method, received.target, reasons) == (b"PURGE", b"/a", ("request-timeout",))


async def test_nothing_of_the_request_before_is_told(wire, recorder):
    told = []
    client = wire(recorder, limits=ReadLimits(header_timeout=10), tell=lambda *said: told.append(said))
    await client.feed(message(b"PURGE", target=b"/one"))
    await client.feed(b"BA")
    client.clock.pass_time(10)
    ((received, reasons),) = told
    assert (received.method, received.target, reasons) == (b"", b"", ("request-timeout",))


async def test_what_an_application_gets_is_its_own_to_tell(wire, recorder):
    told = []
    client = wire(recorder, tell=lambda *said: told.append(said))
    await client.feed(message(b"POST", HOST + b"Transfer-Encoding: chunked\r\n"))
    await client.feed(b"x\r\n")
    (answer,) = client.answers()
    assert answer.status == 400
    assert recorder.cut == 1
    assert told == []
