"""Requests reach the application or are refused before (rows 10-14 and 20)."""

import pytest

from examples import LONG
from tests.server.conftest import SPLITS, splits

HOST = b"Host: a.example\r\n"
CHUNKED = HOST + b"Transfer-Encoding: chunked\r\n"


def request(target=b"/", fields=HOST, *, method=b"GET", version=b"HTTP/1.1", body=b""):
    return method + b" " + target + b" " + version + b"\r\n" + fields + b"\r\n" + body


def post(fields, body=b"", **named):
    return request(fields=fields, body=body, method=b"POST", **named)


# target -> path, query_string, Host as an application that reads nothing else sees them
TARGETS = {
    b"/": (b"/", b"", b"a.example"),
    b"/a?b=c&d": (b"/a", b"b=c&d", b"a.example"),
    # octets above 0x7F, which clients of old leave bare
    b"/\xc3\xa9": (b"/\xc3\xa9", b"", b"a.example"),
    b"/\x80/%80/\xff?\x80=x\xff": (b"/\x80/%80/\xff", b"\x80=x\xff", b"a.example"),
    b"/a#\xff": (b"/a", b"", b"a.example"),
    b"http://evil.example/\xc3\xa9?\xff": (b"/\xc3\xa9", b"\xff", b"evil.example"),
    b"/a?": (b"/a", b"", b"a.example"),
    b"/a/../b": (b"/a/../b", b"", b"a.example"),
    b"/%2e/%2E%zz%": (b"/%2e/%2E%zz%", b"", b"a.example"),
    b'/a"<>{}|\\^`[];,b?"<>{}|\\^`/?': (b'/a"<>{}|\\^`[];,b', b'"<>{}|\\^`/?', b"a.example"),
    b"//evil.example/x": (b"//evil.example/x", b"", b"a.example"),
    b"/admin#x.png": (b"/admin", b"", b"a.example"),
    b"/a?b#c": (b"/a", b"b", b"a.example"),
    b"/a#c?d#e": (b"/a", b"", b"a.example"),
    b"http://evil.example/x?y": (b"/x", b"y", b"evil.example"),
    b"HTTPS://evil.example:8443/x": (b"/x", b"", b"evil.example:8443"),
    b"http://good.example": (b"/", b"", b"good.example"),
    b"http://good.example?q": (b"/", b"q", b"good.example"),
    b"http://[2001:db8::1]:80/x#f": (b"/x", b"", b"[2001:db8::1]:80"),
}


@splits
@pytest.mark.parametrize("target", TARGETS)
async def test_the_received_target_and_a_safe_scope(scoped, recorder, target, split):
    client = scoped(recorder)
    await client.feed(*split(request(target)))
    (scope,) = recorder.scopes
    path, query, host = TARGETS[target]
    assert scope["extensions"]["univocal.target"] == {"target": target}
    assert (scope["raw_path"], scope["query_string"]) == (path, query)
    assert [value for name, value in scope["headers"] if name == b"host"] == [host]
    assert client.open


async def test_every_visible_byte_passes_in_path_and_query(scoped, recorder):
    client = scoped(recorder)
    targets = [b"/%c?%c" % (octet, octet) for octet in range(0x21, 0x7F)]
    for target in targets:
        await client.feed(request(target))
    assert recorder.targets == targets


async def test_bytes_above_0x7f_are_utf_8_in_the_path(scoped, recorder):
    client = scoped(recorder, root_path="/root")
    await client.feed(request(b"/\xc3\xa9%c3%a9"), request(b"/\xc3\xa9"), request(b"/\xff"))
    assert [scope["path"] for scope in recorder.scopes] == ["/root/éé", "/root/é", "/root/\ufffd"]


async def test_fields_keep_order_repeats_and_bytes(scoped, recorder):
    client = scoped(recorder)
    await client.feed(
        request(fields=b"X-B: 1\r\n" + HOST + b"x-a:\t 2 \r\nX-B: \xc3\xa9\xff\r\nX-Empty:\r\n")
    )
    assert recorder.scopes[0]["headers"] == [
        (b"x-b", b"1"),
        (b"host", b"a.example"),
        (b"x-a", b"2"),
        (b"x-b", b"\xc3\xa9\xff"),
        (b"x-empty", b""),
    ]


async def test_http_10_needs_no_host(scoped, recorder):
    client = scoped(recorder)
    await client.feed(request(fields=b"", version=b"HTTP/1.0"))
    assert recorder.scopes[0]["http_version"] == "1.0"
    assert not client.open


def coded(coding):
    """Content by this transfer coding."""
    return post(HOST + b"Transfer-Encoding: " + coding + b"\r\n", b"0\r\n\r\n")


def sized(length, content):
    return post(HOST + b"Content-Length: " + length + b"\r\n", content)


# Refused requests by their reasons.
REFUSED = {
    "bad-target": {
        "userinfo": request(b"http://user@evil.example/x"),
        "userinfo with password": request(b"http://a:b@evil.example/x"),
        "two at signs": request(b"http://a@b@evil.example/x"),
        "another scheme": request(b"ftp://evil.example/x"),
        "websocket scheme": request(b"ws://evil.example/x"),
        "fragment for a path": request(b"http://a.example#x"),
        "asterisk with GET": request(b"*"),
        "authority-form": request(b"a.example:443", method=b"CONNECT"),
        "CONNECT to a path": request(b"/", method=b"CONNECT"),
        "raw 0xFF in a scheme": request(b"\xff://evil.example/"),
    },
    "bad-host": {
        "no authority": request(b"http:///x"),
        "no authority at all": request(b"http://"),
        "escaped authority": request(b"http://a%41/x"),
        "port that is none": request(b"http://a.example:65536/x"),
        "absolute-form, two hosts": request(b"http://a.example/", HOST + HOST),
        "absolute-form, no host": request(b"http://a.example/", b""),
        "raw 0xFF in an authority": request(b"http://evil\xff.example/"),
        "a path in Host": request(fields=b"Host: a/admin?x=\r\n"),
        "userinfo in Host": request(fields=b"Host: a@b\r\n"),
        "an escape in Host": request(fields=b"Host: a%41\r\n"),
        "raw UTF-8 in Host": request(fields="Host: é.example\r\n".encode()),
        "a port that is none": request(fields=b"Host: a:b\r\n"),
        "a port too high": request(fields=b"Host: a:65536\r\n"),
        "two Hosts": request(fields=HOST + HOST),
        "two Hosts in HTTP/1.0": request(fields=HOST + HOST, version=b"HTTP/1.0"),
        "no Host": request(fields=b""),
        "empty Host": request(fields=b"Host:\r\n"),
        "endless Host": request(fields=b"Host: " + b"a" * 301 + b"\r\n"),
    },
    "no-leading-slash": {
        "at": request(b"@google.com"),
        "relative": request(b"a/b"),
        "a name alone": request(b"a"),
        "query alone": request(b"?q"),
        "asterisk with more": request(b"*x", method=b"OPTIONS"),
        "raw 0xFF for a slash": request(b"\xffa/b"),
    },
    "bad-framing": {
        "raw 0xFF in a method": request(method=b"G\xff"),
        "raw 0xFF in a version": request(version=b"HTTP/1.\xff"),
        "raw blank": request(b"/a b"),
        "length and coding": post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n"),
        "coding and length": sized(b"5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        "two lengths, equal": post(HOST + b"Content-Length: 3\r\n" * 2, b"abc"),
        "two lengths": sized(b"3\r\nContent-Length: 4", b"abc"),
        "a list of lengths": sized(b"3, 3", b"abc"),
        "length +5": sized(b"+5", b"abcde"),
        "length -5": sized(b"-5", b"abcde"),
        "length 0x5": sized(b"0x5", b"abcde"),
        "length 1_0": sized(b"1_0", b"a" * 10),
        "length 1 0": sized(b"1 0", b"a" * 10),
        "empty length": post(HOST + b"Content-Length:\r\n"),
        "huge length": post(HOST + b"Content-Length: 99999999999999999999999\r\n"),
        "length of nineteen digits": sized(b"1000000000000000000", b"abc"),
        "length of nineteen digits, zeros": sized(b"0000000000000000003", b"abc"),
        "xchunked": coded(b"xchunked"),
        "gzip": coded(b"gzip"),
        "gzip, chunked": coded(b"gzip, chunked"),
        "chunked, gzip": coded(b"chunked, gzip"),
        "chunked, identity": post(CHUNKED + b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n"),
        "identity": post(HOST + b"Transfer-Encoding: identity\r\n"),
        "chunked twice": post(CHUNKED + b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        "chunked with a parameter": coded(b"chunked;a=b"),
        "vertical tab before chunked": coded(b"\x0bchunked"),
        "empty coding": post(HOST + b"Transfer-Encoding:\r\n"),
        "chunked in HTTP/1.0": post(CHUNKED, b"0\r\n\r\n", version=b"HTTP/1.0"),
        "bare CR": request(fields=HOST + b"X: a\rb\r\n"),
        "CR for a line's end": request(fields=HOST + b"X: a\rY: b\r\n"),
        "bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
        "LF for a line's end": request(fields=HOST + b"X: a\nY: b\r\n"),
        "obs-fold": request(fields=HOST + b"X: a\r\n b\r\n"),
        "blank before the first field": request(fields=b" Host: a\r\n"),
        "blank before the colon": request(fields=HOST + b"X : a\r\n"),
        "chunked, blank before the colon": post(HOST + b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
        "NUL in a value": request(fields=HOST + b"X: a\x00b\r\n"),
        "control in a value": request(fields=HOST + b"X: a\x01b\r\n"),
        "NUL in a name": request(fields=HOST + b"X\x00: a\r\n"),
        "no name": request(fields=HOST + b": a\r\n"),
        "no colon": request(fields=HOST + b"Xa\r\n"),
        "HTTP/0.9": b"GET /\r\n\r\n",
        "HTTP/0.9, named": request(version=b"HTTP/0.9"),
        "HTTP/2.0": request(version=b"HTTP/2.0"),
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/3.0": request(version=b"HTTP/3.0"),
        "HTTP/1.12": request(version=b"HTTP/1.12"),
        "RTSP": request(version=b"RTSP/1.0"),
        "RTSP/1.1": post(CHUNKED, b"0\r\n\r\n", version=b"RTSP/1.1"),
        "RTSP's own method": request(method=b"DESCRIBE", version=b"RTSP/1.0"),
        "CR before the request line": b"\r" + request(),
        "CRs behind an empty line": b"\r\n\r\r\n" + request(),
        "lower-case HTTP": request(version=b"http/1.1"),
        "lower-case method": request(method=b"get"),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "a method in small letters": request(method=b"ban"),
        "a method of octets": request(method=b"B\xc4N"),
        "a method with a sign": request(method=b"B@N"),
        "a method of 33 letters": request(method=b"A" * 33),
        "a method that is a sign": request(method=b"-"),
        "a method that is a number": request(method=b"1"),
    },
    "control-character": {
        "raw 0xFF and a control character": request(b"/\xff\x01"),
        "raw NUL": request(b"/a\x00b"),
        "raw 0x01": request(b"/a\x01b"),
        "raw tab": request(b"/a\tb"),
        "raw DEL": request(b"/a\x7fb"),
    },
    "bad-framing bad-host bad-target": {
        "all of them": request(
            b"http://a@b/", HOST + HOST + b"Transfer-Encoding: gzip, chunked\r\n", method=b"POST"
        )
    },
}
REFUSALS = [(name, data, reasons) for reasons, rows in REFUSED.items() for name, data in rows.items()]


async def refusal(client, parts):
    """Status, Connection and reasons of the only answer to these parts; whether the connection is open."""
    await client.feed(*parts)
    (answer,) = client.answers()
    return answer.status, answer.field(b"connection"), answer.problem["reasons"], client.open


@pytest.mark.parametrize(("data", "reasons"), [pytest.param(*each[1:], id=each[0]) for each in REFUSALS])
async def test_refused_with_its_reason(wire, recorder, data, reasons):
    refusals = {split.__name__: await refusal(wire(recorder), split(data)) for split in SPLITS}
    assert refusals == dict.fromkeys(refusals, (400, b"close", reasons.split(), False))
    assert recorder.scopes == []


@splits
async def test_refused_behind_good_requests_in_their_order(wire, recorder, split):
    good = request(b"/1") + post(CHUNKED, b"3\r\nabc\r\n0\r\n\r\n", target=b"/2")
    # In `make test` each comes in one of the ways, by turns.
    for name, data, reasons in REFUSALS if LONG else REFUSALS[SPLITS.index(split) :: len(SPLITS)]:
        recorder.scopes.clear()
        client = wire(recorder)
        await client.feed(*split(good + data))
        first, second, refused = client.answers()
        assert (name, first.body, second.body) == (name, b"/1|", b"/2|abc")
        assert (name, refused.problem["reasons"]) == (name, reasons.split())
        assert (name, recorder.targets) == (name, [b"/1", b"/2"])


@splits
async def test_a_method_of_ones_own_goes_on_behind_others_too(client, recorder, split):
    content = post(HOST + b"Content-Length: 5\r\n", b"X-A /", target=b"/2")
    await client.feed(*split(request(b"/1", method=b"X-FOO") + content + request(b"/3", method=b"X-BAR")))
    assert (recorder.targets, recorder.bodies) == ([b"/1", b"/2", b"/3"], [b"", b"X-A /", b""])


@splits
async def test_trailers_are_no_fields_of_the_head(client, recorder, split):
    trailers = b"Host: evil.example\r\nAuthorization: Basic eA==\r\nX-Forwarded-For: 127.0.0.1\r\n"
    await client.feed(*split(post(CHUNKED, b"1\r\na\r\n0\r\n" + trailers + b"\r\n") + request(b"/next")))
    assert recorder.scopes[0]["headers"] == [(b"host", b"a.example"), (b"transfer-encoding", b"chunked")]
    assert recorder.scopes[1]["headers"] == [(b"host", b"a.example")]
    assert recorder.bodies == [b"a", b""]


@splits
async def test_an_ignored_upgrade_without_content(client, recorder, split):
    upgrade = HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    await client.feed(*split(request(b"/1", upgrade) + request(b"/2", upgrade) + request(b"/3")))
    assert recorder.targets == [b"/1", b"/2", b"/3"]


@splits
async def test_nothing_behind_connection_close_is_a_request(client, recorder, split):
    await client.feed(*split(request(b"/1", HOST + b"Connection: close\r\n") + request(b"/2")))
    assert recorder.targets[:1] == [b"/1"]
    (answer,) = client.answers()
    assert answer.field(b"connection") == b"close"
    assert not client.open


@splits
async def test_empty_lines_before_a_request_are_skipped(client, recorder, split):
    await client.feed(*split(b"\r\n\r\n" + request(b"/1") + b"\r\n" + request(b"/2")))
    assert recorder.targets == [b"/1", b"/2"]


METHODS = [b"B", b"GETT", b"PURGEALL", b"FOO_BAR", b"VERSION-CONTROL", b"A" * 32, b"QUERY", b"PROPFIND"]


@splits
@pytest.mark.parametrize("method", METHODS)
async def test_every_method_reaches_the_origin(client, recorder, split, method):
    """So do methods that llhttp does not know; BAN is a purge."""
    await client.feed(*split(request(b"/a?c", method=method)), *split(request(b"/b", method=method)))
    assert {scope["method"].encode() for scope in recorder.scopes} == {method}
    assert recorder.targets == [b"/a?c", b"/b"]
    assert client.open
