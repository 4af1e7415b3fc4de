"""Caching and purging as both ends of the wire see it."""

import asyncio
import contextlib
import json

import pytest

from univocal import CacheMiddleware, MemoryStore, ReverseProxy
from univocal.origin.transport import OriginTransport

FRESH = "Cache-Control: max-age=60"


def handling(answer):
    return {part for part in answer["cache-status"].split("; ")[1:] if not part.startswith("key=")}


# Hits


async def test_a_hit_does_not_reach_the_origin(front, origin, clock):
    proxy = await front()
    first = await proxy.ask("/wiki/A(b)")
    clock.now += 7
    second = await proxy.ask("/wiki/A%28b%29")
    assert (second.status, second.content, second["age"]) == (200, first.content, "7")
    assert handling(second) == {"hit", "ttl=53"}
    assert len(origin.requests) == 1


async def test_a_hit_has_each_single_writer_field_once(front, origin):
    proxy = await front()
    await proxy.ask("/a")
    names = [name for name, _ in (await proxy.ask("/a")).fields]
    for name in (b"date", b"content-length", b"age", b"via", b"cache-status", b"connection"):
        assert names.count(name) == 1, name
    assert b"server" not in names


async def test_requests_on_one_connection_are_answered_in_order(front, origin):
    proxy = await front()
    wanted = [b"/a", b"/b", b"/%61", b"/c"]
    data = b"".join(b"GET %b HTTP/1.1\r\nHost: en.example\r\n\r\n" % target for target in wanted)
    answers = await proxy.talk(data, *["GET"] * 4)
    assert [answer.content for answer in answers] == [b"answer 1", b"answer 2", b"answer 1", b"answer 3"]


async def test_connections_to_the_origin_are_used_again(front, origin):
    proxy = await front()
    for number in range(5):
        await proxy.ask(f"/{number}")
    assert len(origin.requests) == 5
    assert origin.connections == 1


# Purges


@pytest.mark.parametrize(
    "spelling",
    [
        "/wiki/A/B(c)",
        "/wiki/A%2fB%28c%29",
        "/%77iki/x/../A/B(c%29",
        "http://en.example/wiki/A/B(c)",
        "https://EN.example/wiki/A%2FB(c)",
    ],
)
async def test_a_purge_by_any_spelling(front, origin, spelling):
    proxy = await front()
    await proxy.ask("/wiki/A/B%28c)")
    answer = await proxy.ask(spelling, method="PURGE")
    assert answer.status == 200
    assert json.loads(answer.content)["purged"] == 1
    assert "hit" not in handling(await proxy.ask("/wiki/A/B(c)"))
    assert [request.start.split(b" ")[0] for request in origin.requests] == [b"GET", b"GET"]


# Framing of what comes back


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n", b"abcdefg"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
        (b"Content-Length: 7\r\n\r\nabcdefg", b"abcdefg"),
        (b"Content-Length: 0\r\n\r\n", b""),
    ],
)
async def test_a_response_of_any_framing_is_stored_whole(front, origin, raw, content):
    proxy = await front()
    origin.answer = lambda request: b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n" + raw
    first, second = await proxy.ask("/a"), await proxy.ask("/a")
    assert (first.content, first.complete) == (second.content, second.complete) == (content, True)
    assert handling(second) == {"hit", "ttl=60"}
    assert second["content-length"] == str(len(content))


async def test_a_response_that_ends_with_its_connection_is_passed_on(front, origin):
    proxy = await front()
    origin.closing = True
    origin.answer = lambda request: b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nabcdefg"
    answer = await proxy.ask("/a")
    assert (answer.status, answer.content, answer.complete) == (200, b"abcdefg", True)


@pytest.mark.parametrize(
    "raw",
    [
        b"Content-Length: 10\r\n\r\nabcdefg",
        b"Content-Length: 10\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nab",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    ],
)
async def test_an_incomplete_response_is_neither_whole_nor_stored(front, origin, raw):
    proxy = await front()
    origin.closing = True
    origin.answer = lambda request: b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n" + raw
    with contextlib.suppress(asyncio.IncompleteReadError):  # nothing at all: not whole either
        answer = await proxy.ask("/a")
        assert answer.status == 502 or not answer.complete
    with contextlib.suppress(asyncio.IncompleteReadError):
        await proxy.ask("/a")
    assert len(origin.requests) >= 2
    assert proxy.app.store.stats.responses == 0


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "origin-bad-response"),
        (b"nonsense\r\n\r\n", "origin-bad-response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "origin-bad-response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "origin-bad-response"),
    ],
)
async def test_a_response_that_is_none_is_a_502(serve, origin, clock, raw, reason):
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}", OriginTransport())
    front = await serve(CacheMiddleware(proxy, "rfc3986", clock=clock))
    origin.answer = lambda request: raw
    origin.closing = True
    answer = await front.ask("/a")
    assert (answer.status, json.loads(answer.content)["reason"]) == (502, reason)
    await proxy.aclose()


async def test_an_absent_origin_is_a_502_or_stale(front, origin, clock):
    proxy = await front()
    await proxy.ask("/a")
    clock.now += 100
    await origin.stop()
    assert json.loads((await proxy.ask("/b")).content)["reason"] == "origin-unreachable"
    stale = await proxy.ask("/a")
    assert (stale.status, stale.content, stale["age"]) == (200, b"answer 1", "100")
    assert "detail=disconnected" in handling(stale)


async def test_an_origin_that_says_nothing_is_a_504(front, origin):
    proxy = await front(read_timeout=0.05)
    origin.gate = asyncio.Event()
    answer = await proxy.ask("/a")
    assert (answer.status, json.loads(answer.content)["reason"]) == (504, "origin-timeout")


# Validation, methods, variants


async def test_a_client_that_has_it_already_gets_a_304(front, origin, reply):
    proxy = await front()
    origin.answer = lambda request: reply(b"content", FRESH, 'ETag: "v1"', "Content-Type: text/plain")
    for _ in range(2):
        answer = await proxy.ask("/a", 'If-None-Match: "v1"')
        assert (answer.status, answer.content, answer["etag"]) == (304, b"", '"v1"')
        assert answer["content-length"] == ""
        assert (await proxy.ask("/a")).content == b"content"
    assert len(origin.requests) == 1
    assert "if-none-match" not in dict(origin.requests[0].fields)


async def test_a_stale_response_is_validated_with_its_entity_tag(front, origin, reply, clock):
    proxy = await front()
    origin.answer = lambda request: reply(b"content", FRESH, 'ETag: "v1"')
    await proxy.ask("/a")
    clock.now += 100
    origin.answer = lambda request: b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\nX-New: yes\r\n\r\n'
    answer = await proxy.ask("/a")
    assert (answer.status, answer.content, answer["x-new"]) == (200, b"content", "yes")
    assert origin.requests[1]["if-none-match"] == '"v1"'
    assert handling(answer) == {"fwd=stale", "fwd-status=304"}


async def test_a_head_request_stays_head_and_has_no_content(front, origin, reply):
    proxy = await front()
    origin.answer = lambda request: (
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nCache-Control: max-age=60\r\n\r\n"
        if request.start.startswith(b"HEAD")
        else reply(b"content", FRESH)
    )
    answer = await proxy.ask("/a", method="HEAD")
    assert (answer.status, answer["content-length"]) == (200, "7")
    assert origin.requests[0].start == b"HEAD /a HTTP/1.1"
    assert (await proxy.ask("/a")).content == b"content"
    hit = await proxy.ask("/a", method="HEAD")
    assert (handling(hit), hit["content-length"]) == ({"hit", "ttl=60"}, "7")


async def test_a_head_leaves_nothing_on_the_connection(front, origin, reply):
    proxy = await front()
    await proxy.ask("/a")
    data = b"HEAD /a HTTP/1.1\r\nHost: en.example\r\n\r\nGET /a HTTP/1.1\r\nHost: en.example\r\n\r\n"
    head, get = await proxy.talk(data, "HEAD", "GET")
    assert (head.content, get.content) == (b"", b"answer 1")


async def test_a_range_is_cut_from_what_is_stored(front, origin, reply):
    proxy = await front()
    origin.answer = lambda request: reply(b"0123456789", FRESH)
    await proxy.ask("/a")
    answer = await proxy.ask("/a", "Range: bytes=2-4")
    assert (answer.status, answer.content, answer["content-range"]) == (206, b"234", "bytes 2-4/10")


@pytest.mark.parametrize(
    ("framing", "sent", "received"),
    [
        (["Content-Length: 5"], b"a=%28", b"a=%28"),
        (["Transfer-Encoding: chunked"], b"2\r\na=\r\n3\r\n%28\r\n0\r\n\r\n", b"a=%28"),
    ],
)
async def test_content_reaches_the_origin_octet_for_octet(front, origin, framing, sent, received):
    proxy = await front()
    await proxy.ask("/a", *framing, method="POST", body=sent)
    (request,) = origin.requests
    assert (request.content, request.complete) == (received, True)
    (length,) = [f"{name.decode()}: {value.decode()}" for name, value in request.fields if name in LENGTHS]
    assert length == framing[0].lower()


LENGTHS = {b"content-length", b"transfer-encoding"}


async def test_a_get_without_content_announces_none_to_the_origin(front, origin):
    await (await front()).ask("/a")
    assert not LENGTHS & {name for name, _ in origin.requests[0].fields}


async def test_a_get_with_content_goes_past_the_cache_with_it(front, origin):
    proxy = await front()
    for _ in range(2):
        answer = await proxy.ask("/a", "Content-Length: 5", body=b"fat=1")
        assert handling(answer) == {"fwd=bypass"}
    assert [request.content for request in origin.requests] == [b"fat=1"] * 2


async def test_interim_responses_are_passed_on(serve, origin, clock, reply):
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}", OriginTransport())
    front = await serve(CacheMiddleware(proxy, "rfc3986", clock=clock))
    hints = b"".join(b"HTTP/1.1 103 Early Hints\r\nLink: </%d.css>\r\n\r\n" % number for number in range(2))
    origin.answer = lambda request: hints + reply(b"content", FRESH)
    *interims, final = await front.talk(b"GET /a HTTP/1.1\r\nHost: en.example\r\n\r\n")
    assert [(each.status, each["link"]) for each in interims] == [(103, "</0.css>"), (103, "</1.css>")]
    assert (final.status, final.content) == (200, b"content")
    (hit,) = await front.talk(b"GET /a HTTP/1.1\r\nHost: en.example\r\n\r\n")
    assert hit.status == 200
    await proxy.aclose()


# Many at once


class Counting:
    """Counts requests on their way in, so that a test knows when all are there."""

    def __init__(self, app):
        self.app, self.count, self.wanted, self.all_there = app, 0, 0, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self.app, name)

    async def __call__(self, scope, receive, send):
        self.count += 1
        if self.count == self.wanted:
            asyncio.get_running_loop().call_soon(self.all_there.set)
        await self.app(scope, receive, send)


async def test_simultaneous_misses_on_many_connections_are_one_request(serve, origin, clock):
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}", OriginTransport())
    counting = Counting(CacheMiddleware(proxy, "mediawiki", clock=clock))
    counting.wanted = 100
    front = await serve(counting)
    origin.gate = asyncio.Event()
    spellings = ["/a(b)", "/a%28b%29", "/%61(b%29", "/./a(b)"]
    asking = [asyncio.create_task(front.ask(spellings[number % 4])) for number in range(100)]
    await counting.all_there.wait()
    origin.gate.set()
    answers = await asyncio.gather(*asking)
    assert {(answer.status, answer.content) for answer in answers} == {(200, b"answer 1")}
    assert len(origin.requests) == 1
    await proxy.aclose()


@pytest.mark.usefixtures("impatient")
async def test_the_origin_request_ends_with_its_only_client(front, origin):
    proxy = await front()
    origin.gate = asyncio.Event()
    leaving = asyncio.Event()
    asking = asyncio.create_task(
        proxy.talk(b"GET /a HTTP/1.1\r\nHost: en.example\r\n\r\n", then_leave=leaving)
    )
    await origin.arrived.wait()
    leaving.set()
    await asking
    async with asyncio.timeout(5):
        await origin.left.wait()
    assert origin.targets == [b"/a"]


@pytest.mark.usefixtures("impatient")
async def test_one_client_leaves_and_the_other_gets_the_answer(serve, origin, clock):
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}", OriginTransport())
    counting = Counting(CacheMiddleware(proxy, "mediawiki", clock=clock))
    counting.wanted = 2
    front = await serve(counting)
    origin.gate, leaving = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(
        front.talk(b"GET /a HTTP/1.1\r\nHost: en.example\r\n\r\n", then_leave=leaving)
    )
    await origin.arrived.wait()
    second = asyncio.create_task(front.ask("/a"))
    await counting.all_there.wait()
    leaving.set()
    await first
    origin.gate.set()
    assert (await second).content == b"answer 1"
    assert len(origin.requests) == 1
    await proxy.aclose()


async def test_what_is_too_large_to_store_passes_whole(serve, origin, clock, reply):
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}", OriginTransport())
    store = MemoryStore(max_bytes=4 << 20, max_object_bytes=1 << 20)
    front = await serve(CacheMiddleware(proxy, "mediawiki", store=store, clock=clock))
    content = bytes(range(256)) * 4096 * 8
    origin.answer = lambda request: reply(content, FRESH)
    answer = await front.ask("/a")
    assert (answer.complete, answer.content == content) == (True, True)
    assert (store.stats.responses, store.stats.reserved) == (0, 0)
    await proxy.aclose()
