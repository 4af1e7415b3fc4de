"""What one client's request does to the others that ask for the same: nothing."""

import asyncio

import pytest

from univocal import MemoryStore, Rules, Runtime
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits

OPEN = [(b"cache-control", b"max-age=60")]
WITH_COOKIE = ("cookie", "session=leader")


def head_of(scope):
    return dict(scope["headers"])


async def together(application, *asked):
    """Start requests in this order, hold the first one's answer until all wait, and give what they get."""
    application.gate = asyncio.Event()
    before = application.count
    tasks = [asyncio.ensure_future(asked[0])]
    await application.reached(before + 1)
    tasks += [asyncio.ensure_future(each) for each in asked[1:]]
    for _ in range(30):
        await asyncio.sleep(0)
    application.gate.set()
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    "news", [[(b"cache-control", b"private, max-age=60")], [(b"cache-control", b"max-age=60")], []]
)
async def test_a_304_s_cookie_is_for_who_asked(cached, application, clock, news):
    def script(scope):
        if b"if-none-match" in head_of(scope):
            return 304, [(b"set-cookie", b"session=LEADER"), *news], b""
        return 200, [(b"cache-control", b"max-age=1"), (b"etag", b'"a"')], b"page"

    application.script = script
    ask = cached()
    await ask("/a")
    clock.now += 5
    _, follower = await together(application, ask("/a", fields=[WITH_COOKIE]), ask("/a"))
    assert follower.body == b"page"
    leaders = [scope for scope in application.scopes if WITH_COOKIE[1].encode() in head_of(scope).values()]
    assert len(leaders) == 1
    assert "collapsed" not in follower.handling or follower["set-cookie"] == ""


async def test_fields_that_must_not_be_stored_are_not_shared(cached, application):
    application.fields = [
        (b"cache-control", b'max-age=60, private="x-user, set-cookie"'),
        (b"x-user", b"leader"),
        (b"set-cookie", b"session=LEADER"),
    ]
    ask = cached(rules=None)
    leader, follower = await together(application, ask("/a"), ask("/a"))
    assert leader["x-user"] == "leader"
    if "collapsed" in follower.handling:
        assert (follower["x-user"], follower["set-cookie"]) == ("", "")


async def test_interim_responses_are_for_who_asked(cached):
    gate = asyncio.Event()
    reached = asyncio.Event()

    async def application(scope, receive, send):
        fields = [(b"link", b"</leader.css>")]
        await send({"type": "http.response.informational", "status": 103, "headers": fields})
        reached.set()
        await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"page"})

    ask = cached(app=application)
    leader = asyncio.ensure_future(ask("/a"))
    await reached.wait()
    follower = asyncio.ensure_future(ask("/a"))
    for _ in range(30):
        await asyncio.sleep(0)
    gate.set()
    assert [status for status, _ in (await leader).interims] == [103]
    assert (await follower).interims == []


async def test_a_part_that_cannot_be_completed_is_asked_for_whole(cached, application):
    body = bytes(range(256)) * 8192  # 2 MiB, twice what is stored at most

    def script(scope):
        told = head_of(scope).get(b"range", b"").decode().removeprefix("bytes=")
        fields = [*OPEN, (b"etag", b'"big"')]
        if not told:
            return 200, fields, body
        first, _, last = told.partition("-")
        start, end = int(first), int(last or len(body) - 1)
        piece = body[start : end + 1]
        return 206, [*fields, (b"content-range", b"bytes %d-%d/%d" % (start, end, len(body)))], piece

    application.script = script
    ask = cached(store=MemoryStore(max_bytes=8 << 20, max_object_bytes=1 << 20))
    assert (await ask("/big", fields=[("range", "bytes=0-9")])).status == 206
    for _ in range(2):
        async with asyncio.timeout(5):
            answer = await ask("/big")
        assert (answer.status, answer.body == body, answer.complete) == (200, True, True)


@pytest.mark.parametrize("length", [False, True])
async def test_who_does_not_read_holds_nobody_else_back(cached, client_of, length):
    pieces, piece = 160, b"x" * 65536  # 10 MiB
    fields = [*OPEN, (b"content-length", b"%d" % (pieces * len(piece)))] if length else OPEN

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    ask = cached(app=application, store=MemoryStore(max_bytes=8 << 20, max_object_bytes=1 << 20))
    stuck = asyncio.Event()
    inner = ask.app

    async def unread(scope, receive, send):
        async def blocked(message):
            await stuck.wait()

        await inner(scope, receive, blocked)

    sleeper = asyncio.ensure_future(client_of(unread)("/a"))
    for _ in range(5):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        answer = await ask("/a")
    assert (len(answer.body), answer.complete) == (pieces * len(piece), True)
    sleeper.cancel()
    stuck.set()
    await asyncio.gather(sleeper, return_exceptions=True)


async def test_a_clients_requests_are_bounded_at_the_asgi_door_too(cached, application):
    limits = Limits(max_requests_per_client=2)
    ask = cached(runtime=Runtime.everywhere(builtin_profiles()["asgi"], Rules(), limits=limits))
    answers = await together(application, ask("/a"), ask("/b"), ask("/c"))
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert (await ask("/c")).status == 200


async def test_what_slow_clients_still_read_counts(cached, client_of, application):
    store = MemoryStore(max_bytes=4 << 20, max_object_bytes=1 << 20)
    ask = cached(store=store)
    stuck = asyncio.Event()
    inner = ask.app

    async def unread(scope, receive, send):
        async def blocked(message):
            if message["type"] == "http.response.body":
                await stuck.wait()

        await inner(scope, receive, blocked)

    tasks = []
    for number in range(5):
        application.body = b"%d" % number * (900 << 10)
        tasks.append(asyncio.ensure_future(client_of(unread)(f"/{number}")))
        for _ in range(60):
            await asyncio.sleep(0)
    assert 0 < store.stats.lent <= 1 << 20
    assert store.stats.bytes + store.stats.lent <= 4 << 20
    assert store.stats.reserved == 0
    stuck.set()
    await asyncio.gather(*tasks)
    assert store.stats.lent == 0


async def test_one_refresh_at_a_time_whatever_it_brings(cached, application, clock, idle):
    application.fields = [(b"cache-control", b"max-age=1, stale-while-revalidate=600"), (b"etag", b'"a"')]
    ask = cached()
    await ask("/a")
    clock.now += 5
    started = 0
    gate = asyncio.Event()

    async def ill(scope, receive, send):
        nonlocal started
        started += 1
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await gate.wait()
        await send({"type": "http.response.body", "body": b""})

    application.__class__.__call__, kept = lambda self, *each: ill(*each), application.__class__.__call__
    try:
        for _ in range(20):
            assert (await ask("/a")).body == b"answer 1"
            await idle()
    finally:
        gate.set()
        await idle()
        application.__class__.__call__ = kept
    assert started == 1


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        ("POST", [], 200),
        ("POST", [], 405),
        ("GET", [("range", "bytes=99-")], 416),
        ("GET", [("x-odd", "1")], 400),
    ],
)
async def test_collapsing_is_nobody_s_to_switch_off(cached, application, method, fields, status):
    application.script = lambda scope: (status, [], b"")
    ask = cached()
    await ask("/a", method, fields)
    application.script = lambda scope: None
    before = application.count
    await together(application, *(ask("/a") for _ in range(10)))
    assert application.count == before + 1


@pytest.mark.parametrize("status", [304, 400, 416])
@pytest.mark.parametrize("age", [0, 120])
async def test_what_is_stored_is_nobody_s_to_remove(cached, application, clock, status, age):
    stored = [(b"cache-control", b"max-age=60, stale-if-error=600"), (b"etag", b'"a"')]
    application.script = lambda scope: (200, stored, b"page")
    ask = cached()
    await ask("/a")
    clock.now += age
    application.script = lambda scope: (status, [], b"")
    await ask("/a", fields=[("authorization", "Basic eDp5"), ("cache-control", "no-cache")])
    application.script = lambda scope: (503, [], b"ill")
    assert (await ask("/a")).body == b"page"


async def test_known_uncacheable_responses_are_validated_by_clients(cached, application):
    def script(scope):
        unchanged = head_of(scope).get(b"if-none-match") == b'"mine"'
        fields = [(b"cache-control", b"private"), (b"etag", b'"mine"')]
        return (304 if unchanged else 200), fields, b"" if unchanged else b"page"

    application.script = script
    ask = cached()
    await ask("/me")
    again = await ask("/me", fields=[("if-none-match", '"mine"')])
    assert (again.status, again.body) == (304, b"")
    assert (await ask("/me", fields=[("if-none-match", '"other"')])).body == b"page"


async def test_a_416_to_our_range_never_reaches_the_client(cached, application):
    def script(scope):
        told = head_of(scope).get(b"range", b"")
        if told == b"bytes=0-9":
            return 206, [*OPEN, (b"content-range", b"bytes 0-9/20")], b"0123456789"
        if told:
            return 416, [(b"content-range", b"bytes */5")], b""
        return 200, OPEN, b"short"

    application.script = script
    ask = cached()
    await ask("/file", fields=[("range", "bytes=0-9")])
    answer = await ask("/file")
    assert (answer.status, answer.body) == (200, b"short")


async def test_a_304_that_nobody_asked_for_is_an_error(cached, application, clock):
    application.fields = [(b"cache-control", b"max-age=1, must-revalidate"), (b"etag", b'"a"')]
    ask = cached()
    await ask("/a")
    clock.now += 5
    application.script = lambda scope: (304, [(b"etag", b'"b"')], b"")
    refused = await ask("/a")
    assert (refused.status, refused.problem["reason"]) == (502, "origin-bad-response")
    assert application.count == 3
