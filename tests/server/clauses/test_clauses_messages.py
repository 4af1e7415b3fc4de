"""Clauses of RFC 9112 by octets, for docs/conformance.md."""

import pytest

from fuzz.exchanges.messages import responses
from support import named

HEAD = b"GET /a HTTP/1.1\r\nHost: en.example\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: en.example\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


def refused(asking, status=400):
    """It went no further, was answered with this status, and the connection ends."""
    assert asking.forwarded is None
    assert asking.answer.status == status
    assert asking.answer.field(b"connection") == b"close"
    return True


# Requests


@pytest.mark.parametrize(
    ("octets", "passes"),
    named(
        ("CRLF", HEAD + b"X: y\r\n\r\n", True),
        ("a bare CR", HEAD + b"X: y\rz\r\n\r\n", False),
        ("a blank before the first field", b"GET /a HTTP/1.1\r\n Host: en.example\r\n\r\n", False),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\r\n\r\n", False),
        ("a blank in the target", b"GET /a b HTTP/1.1\r\nHost: en.example\r\n\r\n", False),
        ("a blank before a colon", HEAD + b"X : y\r\n\r\n", False),
        ("a folded line", HEAD + b"X: y\r\n z\r\n\r\n", False),
    ),
)
async def test_lines_of_a_request(proxy, octets, passes):
    asking = await proxy().octets(octets)
    if passes:
        assert asking.forwarded.field(b"x") == b"y"
    else:
        assert refused(asking)


@pytest.mark.parametrize(
    ("version", "passes"),
    named(("HTTP/1.1", b"HTTP/1.1", True), ("HTTP/1.2", b"HTTP/1.2", True), ("HTTP/2.0", b"HTTP/2.0", False)),
)
async def test_versions_of_a_request(proxy, version, passes):
    asking = await proxy().octets(b"GET /a " + version + b"\r\nHost: en.example\r\n\r\n")
    assert asking.forwarded is not None if passes else refused(asking)


async def test_a_target_of_eight_thousand_octets_is_taken(proxy):
    target = "/" + "a" * 7999
    assert (await proxy().ask(target=target)).forwarded.target == target.encode()


@pytest.mark.parametrize(
    ("hosts", "passes"),
    named(
        ("one", b"Host: en.example\r\n", True),
        ("none", b"", False),
        ("two", b"Host: en.example\r\nHost: en.example\r\n", False),
        ("no host", b"Host: en.example/a\r\n", False),
    ),
)
async def test_hosts_of_a_request(proxy, hosts, passes):
    asking = await proxy().octets(b"GET /a HTTP/1.1\r\n" + hosts + b"\r\n")
    if passes:
        assert asking.forwarded.every(b"host") == [b"en.example"]
    else:
        assert asking.forwarded is None
        assert asking.answer.status == 400


@pytest.mark.parametrize(
    ("method", "target", "sent"),
    named(
        ("origin", "GET", "/a?b", b"/a?b"),
        ("absolute", "GET", "http://en.example/a?b", b"/a?b"),
        ("absolute, without a path", "GET", "http://en.example?b", b"/?b"),
        ("authority", "GET", "en.example:80", None),
        ("asterisk of a GET", "GET", "*", None),
        ("asterisk of OPTIONS", "OPTIONS", "*", b"*"),
    ),
)
async def test_targets_of_a_request(proxy, method, target, sent):
    asking = await proxy().ask(method=method, target=target)
    if sent is None:
        assert asking.forwarded is None
        assert asking.answer.status == 400
    else:
        assert asking.forwarded.target == sent


@pytest.mark.parametrize(
    ("target", "host"),
    named(("absolute", b"http://other.example/a", b"other.example"), ("origin", b"/a", b"en.example")),
)
async def test_the_host_of_an_absolute_target_counts(proxy, target, host):
    asking = await proxy().octets(b"GET " + target + b" HTTP/1.1\r\nHost: en.example\r\n\r\n")
    assert asking.forwarded.every(b"host") == [host]


@pytest.mark.parametrize(
    ("target", "sent"),
    named(("without a path", "http://en.example", b"*"), ("with a path", "http://en.example/", b"/")),
)
async def test_options_of_an_absolute_target_without_a_path(proxy, target, sent):
    assert (await proxy().ask(method="OPTIONS", target=target)).forwarded.target == sent


@pytest.mark.parametrize(
    ("scheme", "passes"), named(("https on http", "https", False), ("http on http", "http", True))
)
async def test_the_scheme_is_the_connections(proxy, scheme, passes):
    asking = await proxy().ask(target=f"{scheme}://en.example/a")
    if passes:
        assert asking.forwarded.target == b"/a"
    else:
        assert asking.answer.status == 421


@pytest.mark.parametrize(
    ("coding", "content", "passes"),
    named(
        ("chunked", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n", True),
        ("chunked twice", b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n", False),
        ("another coding", b"Transfer-Encoding: odd, chunked\r\n", b"0\r\n\r\n", False),
        ("chunked, then another", b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n", False),
        ("beside a length", b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"0\r\n\r\n", False),
        ("HTTP/1.0", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", None),
    ),
)
async def test_codings_of_a_request(proxy, coding, content, passes):
    head = POST if passes is not None else POST.replace(b"/1.1", b"/1.0")
    asking = await proxy().octets(head + coding + b"\r\n" + content)
    if passes:
        assert asking.forwarded.content == b"abc"
        assert asking.forwarded.every(b"content-length") == []
    else:
        assert refused(asking)


@pytest.mark.parametrize(
    ("lengths", "content", "expected"),
    named(
        ("one", b"Content-Length: 3\r\n", b"abc", b"abc"),
        ("none", b"", b"", b""),
        ("no number", b"Content-Length: +3\r\n", b"abc", None),
        ("two that differ", b"Content-Length: 3\r\nContent-Length: 4\r\n", b"abc", None),
    ),
)
async def test_lengths_of_a_request(proxy, lengths, content, expected):
    asking = await proxy().octets(POST + lengths + b"\r\n" + content)
    if expected is None:
        assert refused(asking)
    else:
        assert asking.forwarded.content == expected


@pytest.mark.parametrize(
    ("chunks", "passes"),
    named(
        ("two chunks", b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", True),
        ("an extension", b"3;odd=1\r\nabc\r\n0\r\n\r\n", True),
        ("a size that overflows", b"FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n", False),
        ("extensions without end", b"3;" + b"a" * 200_000, False),
        ("no last chunk", b"3\r\nabc\r\n", None),
    ),
)
async def test_chunks_of_a_request(proxy, chunks, passes):
    here = proxy()
    asking = await here.octets(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    if passes:
        assert asking.forwarded.content == b"abc"
        return
    assert asking.forwarded is None  # not the whole of it
    if passes is None:
        await here.pass_time(70)
    assert asking.answer.status in {400, 408, 431}
    assert asking.client.wire.ended or asking.client.wire.closed


@pytest.mark.parametrize(
    ("head", "kept"),
    named(
        ("HTTP/1.1", HEAD + b"\r\n", True),
        ("close", HEAD + b"Connection: close\r\n\r\n", False),
        (
            "HTTP/1.0 with keep-alive",
            b"GET /a HTTP/1.0\r\nHost: en.example\r\nConnection: keep-alive\r\n\r\n",
            False,
        ),
    ),
)
async def test_the_connection_persists_or_not(proxy, head, kept):
    here = proxy()
    asking = await here.octets(head)
    await here.answer(asking)
    assert asking.client.open is kept
    assert asking.answer.field(b"connection") == (None if kept else b"close")


# Responses


@pytest.mark.parametrize(
    ("version", "status"),
    named(("HTTP/1.1", b"1.1", 200), ("HTTP/1.2", b"1.2", 200), ("HTTP/2.0", b"2.0", 502)),
)
async def test_versions_of_a_response(proxy, version, status):
    here = proxy()
    asking = await here.ask()
    await here.reply(asking, b"HTTP/" + version + b" 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert asking.answer.status == status


@pytest.mark.parametrize("status", named(("no phrase", 299), ("a phrase", 200)))
async def test_a_status_line_of_ours_has_its_blank(proxy, status):
    here = proxy()
    asking = await here.ask()
    await here.reply(asking, b"HTTP/1.1 %d Odd\r\nContent-Length: 0\r\n\r\n" % status)
    phrase = b"OK" if status == 200 else b""
    assert asking.got.startswith(b"HTTP/1.1 %d %b\r\n" % (status, phrase))


@pytest.mark.parametrize(
    ("line", "status"),
    named(
        ("CRLF", b"X: y\r\n", 200),
        ("a blank before a colon", b"X : y\r\n", 502),
        ("a folded line", b"X: y\r\n z\r\n", 502),
    ),
)
async def test_lines_of_a_response(proxy, line, status):
    here = proxy()
    asking = await here.ask()
    await here.reply(asking, OK + line + b"Content-Length: 1\r\n\r\nx")
    assert asking.answer.status == status
    assert b"\r\n " not in asking.got


@pytest.mark.parametrize(
    ("octets", "status"), named(("within the limit", 60_000, 200), ("too large", 70_000, 502))
)
async def test_a_head_of_a_response_has_a_limit(proxy, octets, status):
    here = proxy()
    asking = await here.ask()
    await here.reply(asking, OK + b"X: " + b"y" * octets + b"\r\nContent-Length: 0\r\n\r\n")
    assert asking.answer.status == status


@pytest.mark.parametrize(("interims", "status"), named(("32", 32, 200), ("33", 33, 502)))
async def test_interim_responses_have_an_end(proxy, interims, status):
    here = proxy()
    asking = await here.ask()
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n" * interims
    await here.reply(asking, early + OK + b"Content-Length: 0\r\n\r\n")
    assert asking.answer.status == status
    assert asking.answer.interims == (103,) * 32


@pytest.mark.parametrize(
    ("framing", "content", "status", "whole"),
    named(
        ("a length", b"Content-Length: 3\r\n", b"abc", 200, True),
        ("chunked", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n", 200, True),
        ("neither", b"", b"abc", 200, True),
        ("too short", b"Content-Length: 4\r\n", b"abc", 200, False),
        ("no last chunk", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n", 200, False),
        ("both", b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n", 502, True),
        ("no number", b"Content-Length: x\r\n", b"abc", 502, True),
        ("compressed", b"Transfer-Encoding: gzip, chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n", 502, True),
    ),
)
async def test_framing_of_a_response(proxy, framing, content, status, whole):
    here = proxy()
    asking = await here.ask()
    await here.reply(asking, OK + b"Cache-Control: max-age=60\r\n" + framing + b"\r\n" + content, close=True)
    answer = asking.answer
    assert (answer.status, answer.complete) == (status, whole)
    if status == 200:
        assert answer.content == b"abc"
    stored = status == 200 and whole
    assert ((await here.ask()).forwarded is None) is stored
    assert asking.served.wire.closed or framing != b""


@pytest.mark.parametrize(
    ("head", "used"),
    named(
        ("HTTP/1.1 with a coding", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (
            "HTTP/1.0 with a coding",
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            False,
        ),
        ("close", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
    ),
)
async def test_the_connection_of_a_faulty_response_is_not_used_again(proxy, head, used):
    here = proxy()
    first = await here.ask("Cache-Control: no-store")
    await here.reply(first, head)
    second = await here.ask("Cache-Control: no-store")
    assert (second.served.wire is first.served.wire) is used


@pytest.mark.parametrize("old", named(("HTTP/1.0", True), ("HTTP/1.1", False)))
async def test_http_1_0_content_without_length_ends_with_its_connection(proxy, old):
    here = proxy()
    asking = await here.ask(version="1.0" if old else "1.1")
    await here.reply(asking, OK + b"\r\nabc", close=True)
    (answer,), _ = responses(asking.got, [b"GET"], closed=True)
    assert answer.content == b"abc"
    assert answer.every(b"transfer-encoding") == ([] if old else [b"chunked"])
    assert asking.client.open is not old
