"""Requests and responses over HTTP/2: what the origin server gets, and what the client gets of its answer."""

import pytest

from examples import cases, examples
from http2_client import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET,
    HEADERS,
    HOST,
    NO_ERROR,
    POST,
    block,
    changed,
    data,
    frame,
    headers,
    window_update,
)
from tests.pages import Page
from univocal.http.messages import Response
from univocal.judge.runtime import Limits
from univocal.server.clients import ReadLimits

HOUR = (b"cache-control", b"max-age=3600")


def named(fields, name):
    return [value for key, value in fields if key == name]


@cases("path, target", (b"/a?", b"/a?"), (b"/a", b"/a"), (b"//b;c", b"//b;c"), (b"/a b", b"/a%20b"))
async def test_the_target_is_canonical_and_otherwise_exact(client, path, target):
    assert (await client.ask(1, path=path))[0] == 200
    assert client.server.origin.asked[0].target == target


async def test_the_origin_server_gets_the_fields(client):
    await client.ask(1, [(b"cookie", b"a=b"), (b"x", b"1"), (b"cookie", b"c=d"), (b"te", b"trailers")])
    (asked,) = client.server.origin.asked
    assert named(asked.fields, b"host") == [HOST]
    assert named(asked.fields, b"cookie") == [b"a=b; c=d"]
    assert named(asked.fields, b"x") == [b"1"]
    assert client.server.outcomes[0].received.version == b"2"


async def test_a_connection_with_many_streams_is_no_ones_own(client):
    await client.ask(1, [(b"authorization", b"NTLM a")])
    (asked,) = client.server.origin.asked
    assert (asked.bond, named(asked.fields, b"authorization")) == (None, [b"NTLM a"])


# Content of requests


def pieces(client, content, at):
    """A request whose frames are split at a place, its end in a frame of its own."""
    yield headers(1, [*POST, (b"content-length", b"%d" % len(content))], ends=False)
    yield from (data(1, piece) for piece in (content[:at], content[at:]) if piece)
    client.server.origin.asked[0].answer()
    yield b""


@pytest.mark.parametrize("at", range(8))
@cases("end", data(1, ends=True), frame(DATA, 9, 1, b"\x09" + bytes(9)), headers(1, [(b"x", b"y")]))
async def test_a_whole_request_is_not_reset_for_its_end(connect, at, end):
    client = connect(holds=True)
    for piece in pieces(client, b"content", at):
        await client.send(piece)
    assert client.response(1)[::2] == (200, b"answer")
    await client.send(end)
    assert client.resets(1) == []
    assert client.granted() >= 0
    client.server.origin.holds = False
    assert (await client.ask(3))[0] == 200
    assert client.error is None


async def test_requests_that_never_end_are_bounded(client):
    for number in range(1, 601, 2):
        client.server.origin.pages[b"/"] = Page(is_early=True)
        await client.send(headers(number, [*POST, (b"content-length", b"0")], ends=False))
        assert client.head(number)[0] == 200
    reset = [number for number in range(1, 601, 2) if client.resets(number)]
    assert reset == list(range(1, 401, 2))  # the last hundred may still end
    assert client.error is None


async def test_content_that_is_too_large_is_refused(connect):
    client = connect(runtime_limits=Limits(max_body=5))
    await client.send(headers(1, POST, ends=False), data(1, b"too much"))
    assert (client.head(1)[0], client.resets(1)) == (413, [NO_ERROR])
    assert (await client.ask(3))[0] == 200


@pytest.mark.parametrize("pieces", [4, 40, 400])
async def test_an_early_answer_to_an_upload_ends_nothing_else(client, pieces):
    client.server.origin.pages[b"/early"] = Page(is_early=True, content=b"enough")
    client.server.origin.holds = True
    await client.send(headers(1))
    for number in range(3, 203, 2):
        await client.send(headers(number, changed(POST, path=b"/early"), ends=False))
        assert client.response(number)[::2] == (200, b"enough")
        assert client.resets(number) == [NO_ERROR]
        # The content under way when the reset reaches the client, as much as its window let it send.
        await client.send(
            *[data(number, bytes(65535 // pieces)) for _ in range(pieces)], data(number, b"", ends=True)
        )
        assert client.resets(number) == [NO_ERROR]
    assert client.granted() - 199 * 65535 >= 100 * 60_000  # all of it was given back
    client.server.origin.holds = False
    client.server.origin.asked[0].answer()
    await client.settle()
    assert client.response(1)[::2] == (200, b"answer")
    assert not client.transport.closed


@cases(
    "more, end",
    ([(b"content-length", b"7")], headers(1, [(b"x-sum", b"1")])),  # content is missing
    ([], headers(1, [(b":path", b"/")])),  # no trailers
    ([(b"content-length", b"7")], data(1, b"seven..", ends=True)),  # all
    ([], data(1, b"too much", ends=True)),  # too large
)
async def test_nothing_follows_what_both_sides_have_ended(connect, caplog, more, end):
    """The response's head was its end, and the origin server has not said yet that no more comes."""
    client = connect(runtime_limits=Limits(max_body=7), holds=True)
    await client.send(headers(1, [*POST, *more], ends=False))
    (asked,) = client.server.origin.asked
    asked._answer.start(Response(204, [(b"cache-control", b"no-store")]))
    await client.send(end)
    assert (client.head(1)[0], client.has_ended(1), client.resets(1)) == (204, True, [])
    if not asked.is_cancelled:
        asked._answer.finish()
    client.server.origin.holds = False
    assert (await client.ask(3))[0] == 200
    assert client.resets(1) == []
    assert not caplog.records


# Responses


async def test_a_response_has_no_field_of_a_connection(client):
    kept = [(b"connection", b"x-hop"), (b"x-hop", b"1"), (b"keep-alive", b"timeout=5"), (b"x", b"kept")]
    client.server.origin.pages[b"/"] = Page(fields=(*kept, (b"cache-control", b"no-store")))
    _, fields, _ = await client.ask(1)
    assert not {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"} & fields.keys()
    assert fields[b"x"] == b"kept"


async def test_a_response_keeps_repeated_fields_in_their_order(client):
    cookies = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    client.server.origin.pages[b"/"] = Page(fields=(*cookies, (b"cache-control", b"no-store")))
    await client.ask(1)
    (head,) = client.of(1, HEADERS)
    assert [field for field in head.payload if field[0] == b"set-cookie"] == cookies


async def test_large_fields_of_a_response_take_several_frames(connect):
    client = connect(page=Page(fields=((b"x", b"y" * 40_000), (b"cache-control", b"no-store"))))
    await client.send(headers(1))
    fields = [field for each in client.of(1) if each.kind in {HEADERS, 9} for field in each.payload]
    assert dict(fields)[b"x"] == b"y" * 40_000
    assert client.content(1) == b"answer"


@pytest.mark.parametrize("size", [0, 65_535, 65_536, 200_000, 400_000])
async def test_a_stored_response_of_any_size_is_whole(connect, size):
    client = connect(page=Page(fields=(HOUR,), content=b"x" * size))
    for stream in (1, 3):
        await client.send(headers(stream), window_update(size + 1, stream), window_update(size + 1))
        await client.settle()
        assert len(client.content(stream)) == size
        assert client.has_ended(stream)
    assert len(client.server.origin.asked) == 1


async def test_thousands_of_requests_take_one_connection(connect):
    client = connect(page=Page(fields=(HOUR,)))
    count = 50 * examples(200)
    for first in range(1, 2 * count, 100):
        client.frames.clear()
        await client.send(*[headers(number) for number in range(first, first + 100, 2)])
        assert sum(client.has_ended(number) for number in range(first, first + 100, 2)) == 50
    assert not client.transport.closed
    assert client.server.state.total_requests == count


# Refusals


@cases(
    "fields, pseudo, status, reason",
    ([], {"path": b"*"}, 400, "bad-target"),
    ([], {"path": b"a"}, 400, "no-leading-slash"),
    ([], {"path": b"https://en.example/"}, 400, "bad-target"),
    ([], {"path": b"/a%00b"}, 400, "control-character"),
    ([], {"path": b"/a#b"}, 400, "fragment"),
    ([], {"authority": b"u@en.example"}, 400, "bad-host"),
    ([], {"authority": b"en.example:99999"}, 400, "bad-host"),
    ([], {"authority": None}, 400, "bad-host"),
    ([(b"host", b"other.example")], {}, 400, "bad-host"),
    ([(b"host", HOST), (b"host", HOST)], {"authority": None}, 400, "bad-host"),
    ([(b"content-length", b"0"), (b"content-length", b"0")], {}, 400, "bad-framing"),
    ([], {"path": b"/" * 8193}, 414, "target-too-long"),
    ([(b"x%d" % number, b"") for number in range(101)], {}, 431, "fields-too-large"),
    ([(b"x", b"y" * 4_000), (b"z", b"y" * 4_100)], {}, 431, "fields-too-large"),
)
async def test_a_request_is_refused_with_a_reason(connect, fields, pseudo, status, reason):
    client = connect(limits=ReadLimits(max_field_bytes=8_000))
    answer = await client.ask(1, fields, **pseudo)
    assert (answer[0], b'"%b"' % reason.encode() in answer[2]) == (status, True)
    assert (client.has_ended(1), client.resets(1)) == (True, [])
    assert client.server.origin.asked == []
    assert (await client.ask(3))[0] == 200


async def test_host_may_repeat_the_authority(client):
    assert (await client.ask(1, [(b"host", b"EN.example")]))[0] == 200
    assert named(client.server.origin.asked[0].fields, b"host") == [HOST]


@cases(
    "fields",
    [(b":method", b"CONNECT"), (b":authority", b"en.example:443")],
    [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *GET[1:]],
)
async def test_connect_is_refused(client, fields):
    await client.send(headers(1, fields))
    assert client.head(1)[0] == 400
    assert b"bad-target" in client.content(1)


async def test_a_host_that_has_another_certificate_is_misdirected(connect):
    client = connect(suits=lambda host: host == HOST)
    assert (await client.ask(1))[0] == 200
    status, _, content = await client.ask(3, authority=b"other.example")
    assert (status, b'"unknown-host"' in content) == (421, True)
    assert (await client.ask(5))[0] == 200


async def test_a_hit_under_another_certificate_is_misdirected(connect, serve):
    server = serve()
    server.origin.pages[b"/"] = Page(fields=(HOUR,))
    await connect(server).ask(1)
    assert (await connect(server, suits=lambda _: False).ask(1))[0] == 421


async def test_a_hit_after_a_reload_is_misdirected(connect, serve):
    server, served = serve(), [HOST]
    server.origin.pages[b"/"] = Page(fields=(HOUR,))
    client = connect(server, suits=lambda host: host in served)
    assert [(await client.ask(stream))[0] for stream in (1, 3)] == [200, 200]
    served.clear()
    server.listener.bounds.change(ReadLimits())
    assert (await client.ask(5))[0] == 421


@pytest.mark.parametrize("size", [70_000, 100_000])
async def test_fields_beyond_what_was_announced_are_refused_with_431(client, size):
    octets = block([*GET, *[(b"x%d" % number, b"y" * 10_000) for number in range(size // 10_000)]])
    frames = [frame(HEADERS, END_STREAM, 1, octets[:16384])]
    pieces = [octets[start : start + 16384] for start in range(16384, len(octets), 16384)]
    frames += [frame(CONTINUATION, 0, 1, piece) for piece in pieces[:-1]]
    frames.append(frame(CONTINUATION, END_HEADERS, 1, pieces[-1]))
    await client.send(*frames)
    assert client.head(1)[0] == 431
    assert (await client.ask(3))[0] == 200
