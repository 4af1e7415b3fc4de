"""Whose response it is: what one client's request brought about is nobody else's, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from univocal import CacheMiddleware, Rules

LONG_AGO = ("Content-Type: text/plain", "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT")


def provoked(origin, reply, status):
    """The origin answers a request with a field of 40 kB so, and any other as it should."""

    def answer(request):
        if len(request["x-long"]) > 30_000:
            return reply(b"no", "Cache-Control: public, max-age=300", status=status)
        return reply(b"the page", "Cache-Control: public, max-age=300")

    origin.answer = answer


@pytest.mark.parametrize("status", ["400 Bad Request", "403 Forbidden", "500 Oops", "503 Unavailable"])
async def test_an_error_that_one_client_provokes_is_its_own(origin, front, reply, status):
    provoked(origin, reply, status)
    proxy = await front()
    refused = await proxy.ask("/wiki/A", "X-Long: " + "x" * 40_000)
    assert refused.status == int(status[:3])
    assert "stored" not in refused["cache-status"]
    assert [(await proxy.ask("/wiki/A")).content for _ in range(2)] == [b"the page"] * 2
    assert len(origin.requests) == 2


async def test_with_explicit_errors_the_origins_word_decides(origin, front, reply):
    provoked(origin, reply, "400 Bad Request")
    proxy = await front(rules=Rules(errors="explicit"))
    await proxy.ask("/wiki/A", "X-Long: " + "x" * 40_000)
    assert (await proxy.ask("/wiki/A")).status == 400


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
async def test_that_there_is_no_such_resource_is_stored(origin, front, reply, status):
    origin.answer = lambda request: reply(b"none", "Cache-Control: max-age=60", status=status)
    proxy = await front()
    assert [(await proxy.ask("/wiki/A")).status for _ in range(2)] == [int(status[:3])] * 2
    assert len(origin.requests) == 1


@pytest.mark.parametrize("control", ["max-age=60", "public, max-age=60", "s-maxage=60"])
async def test_no_client_gets_the_cookie_of_another(origin, front, reply, control):
    origin.answer = lambda request: reply(
        b"hello", f"Cache-Control: {control}", f"Set-Cookie: id={len(origin.requests)}"
    )
    proxy = await front()
    assert [(await proxy.ask("/"))["set-cookie"] for _ in range(2)] == ["id=1", "id=2"]


async def test_a_dav_servers_file_is_always_current(origin, front, reply):
    texts = [b"old", b"new"]
    origin.answer = lambda request: reply(texts[len(origin.requests) - 1], *LONG_AGO)
    proxy = await front()
    assert [(await proxy.ask("/notes.txt")).content for _ in texts] == texts


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        ("Accept: text/plain", 1),
        ("Sec-Fetch-Mode: navigate", 1),
        ("Depth: 0", 2),
        ("X-Api-Key: 1", 2),
        ("Cookie: a=b", 2),
        ("Authorization: Basic eA==", 2),
    ],
)
async def test_heuristics_are_for_ordinary_requests(origin, front, reply, line, requests):
    origin.answer = lambda request: reply(b"%d" % len(origin.requests), *LONG_AGO)
    proxy = await front(rules=Rules(heuristic=True))
    await proxy.ask("/notes.txt", line)
    assert (await proxy.ask("/notes.txt")).content == b"%d" % requests


async def keyed(scope, receive, send):
    """An application that has a file for each API key, of one age and one entity-tag, and one error."""
    key = dict(scope["headers"]).get(b"x-api-key", b"")
    if scope["path"] == "/broken" and key != b"one":
        raise LookupError("no such key")
    fields = [(b"last-modified", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"etag", b'"1"')]
    conditional = (b"if-none-match", b'"1"') in scope["headers"]
    await send({"type": "http.response.start", "status": 304 if conditional else 200, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if conditional else b"of " + key})


@pytest.mark.parametrize("rules", [Rules(), Rules(heuristic=True)], ids=["default", "heuristic"])
async def test_mounted_an_api_keys_file_is_for_no_other_visitor(serve, clock, rules):
    server = await serve(CacheMiddleware(keyed, rules=rules, clock=clock))
    answers = [await server.ask("/file", f"X-Api-Key: {key}") for key in ("one", "two")]
    assert [answer.content for answer in answers] == [b"of one", b"of two"]
    await server.ask("/broken", "X-Api-Key: one")
    assert (await server.ask("/broken")).status == 500


async def until(holds):
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def joined(proxy, count):
    """Wait until so many wait for one answer."""
    flights = proxy.app.engine.flights._named
    await until(lambda: sum(len(flight._passengers) for flight in flights.values()) >= count)


async def test_a_waiter_for_a_spoiled_answer_gets_its_own(origin, front, reply):
    provoked(origin, reply, "400 Bad Request")
    proxy, origin.gate = await front(), asyncio.Event()
    leader = asyncio.create_task(proxy.ask("/wiki/A", "X-Long: " + "x" * 40_000))
    await joined(proxy, 1)
    followers = [asyncio.create_task(proxy.ask("/wiki/A")) for _ in range(60)]
    await joined(proxy, 61)
    origin.gate.set()
    assert (await leader).status == 400
    assert {answer.content for answer in await asyncio.gather(*followers)} == {b"the page"}
    assert len(origin.requests) <= 20


async def test_requests_with_authorization_are_under_way_at_the_same_time(origin, front, reply):
    proxy, origin.gate = await front(), asyncio.Event()
    asking = [asyncio.create_task(proxy.ask("/wiki/A", "Authorization: Basic eA==")) for _ in range(4)]
    await until(lambda: len(origin.requests) == 4)
    origin.gate.set()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}


async def test_a_private_answer_to_a_cookie_ends_no_collapsing(origin, front, reply):
    def answer(request):
        private = "session" in request["cookie"]
        return reply(b"%d" % len(origin.requests), f"Cache-Control: {'private' if private else 'max-age=60'}")

    origin.answer, proxy = answer, await front()
    await proxy.ask("/wiki/A", "Cookie: session=1")
    origin.gate = asyncio.Event()
    asking = [asyncio.create_task(proxy.ask("/wiki/A")) for _ in range(20)]
    await joined(proxy, 20)
    origin.gate.set()
    assert {answer.content for answer in await asyncio.gather(*asking)} == {b"2"}


async def test_mounted_keyed_fields_select_and_go_on(origin, front, reply):
    origin.answer = lambda request: reply(request["x-nextjs-data"].encode() or b"page")
    proxy = await front(rules=Rules(ttl=60, key=("header:X-Nextjs-Data",)))
    asked = [await proxy.ask("/", *lines) for lines in ([], ["X-Nextjs-Data: 1"]) * 2]
    assert [answer.content for answer in asked] == [b"page", b"1"] * 2
    assert ["hit" in answer["cache-status"] for answer in asked] == [False, False, True, True]


async def test_requests_of_different_keys_do_not_wait_for_one_another(origin, front, reply):
    origin.answer = lambda request: reply(request["x-device"].encode(), "Cache-Control: max-age=60")
    origin.gate, proxy = asyncio.Event(), await front(rules=Rules(key=("header:X-Device",)))
    asking = [asyncio.create_task(proxy.ask("/", f"X-Device: {name}")) for name in "aabb"]
    await until(lambda: len(origin.requests) == 2)
    origin.gate.set()
    assert [answer.content for answer in await asyncio.gather(*asking)] == [b"a", b"a", b"b", b"b"]
    assert len(origin.requests) == 2


SESSION = "Cookie: _ga=1; session=1"
VISITOR = "X-Request-Id: 1"


@pytest.mark.parametrize(
    ("rules", "line", "shared"),
    [
        ({"keep_cookies": ("session",)}, SESSION, False),
        ({"keep_cookies": ("session",)}, "Cookie: _ga=1", True),
        ({"keep_cookies": ("session",)}, "Authorization: Basic eA==", False),
        ({"keep_cookies": ("lang",), "bypass_cookies": ("session",)}, "Cookie: lang=de", False),
        ({"bypass_cookies": ("session",)}, SESSION, False),
        ({"bypass_cookies": ("session",)}, "Cookie: _ga=1", True),
        ({"bypass_cookies": ("session",)}, "Authorization: Basic eA==", False),
        ({"strip_cookies": ("_ga",)}, "Cookie: _ga=1", True),
        ({"strip_cookies": ("_ga",)}, SESSION, False),
        ({}, SESSION, False),
        ({}, "X-Request-Id: 1", True),
        ({}, "X-Api-Key: 1", False),
        ({"ordinary_fields": ("X-Any",)}, "X-Any: 1", True),
        ({"key": ("header:X-Any",)}, "X-Other: 1", False),
    ],
)
async def test_ttl_shared_responses_answer_no_identified_client(origin, front, reply, rules, line, shared):
    origin.answer = lambda request: reply(b"%d" % len(origin.requests))
    proxy = await front(rules=Rules(ttl=60, **rules))
    await proxy.ask("/")
    again = await proxy.ask("/", line)
    assert ("hit" in again["cache-status"], len(origin.requests)) == (shared, 1 if shared else 2)
    assert (await proxy.ask("/")).content == b"1"


@pytest.mark.parametrize(("line", "shared"), [(SESSION, False), ("Cookie: _ga=1", True)])
@pytest.mark.parametrize(
    "given", [{"ttl_by_status": {200: 60}}, {"heuristic": True}], ids=["status", "guess"]
)
async def test_so_for_every_rule_and_for_the_head_alone(origin, front, reply, given, line, shared):
    origin.answer = lambda request: reply(b"%d" % len(origin.requests), *LONG_AGO)
    proxy = await front(rules=Rules(keep_cookies=("session",), **given))
    await proxy.ask("/")
    again = await proxy.ask("/", line, method="HEAD")
    assert ("hit" in again["cache-status"], len(origin.requests)) == (shared, 1 if shared else 2)
    assert (await proxy.ask("/")).content == b"1"


@pytest.mark.parametrize("control", ["max-age=60", "public", "s-maxage=60"])
async def test_what_its_origin_shares_answers_users_too(origin, front, reply, control):
    origin.answer = lambda request: reply(b"%d" % len(origin.requests), f"Cache-Control: {control}")
    proxy = await front(rules=Rules(ttl=60, keep_cookies=("session",)))
    assert [(await proxy.ask("/", line)).content for line in (VISITOR, SESSION)] == [b"1"] * 2


@pytest.mark.parametrize("first", [VISITOR, SESSION], ids=["visitor", "user"])
async def test_a_session_waiting_for_a_visitors_page_gets_its_own(origin, front, reply, first):
    """And a page that came for a user is no visitor's, though all were waiting for one."""
    origin.answer = lambda request: reply(b"of " + request["cookie"].encode())
    proxy, origin.gate = await front(rules=Rules(ttl=60, keep_cookies=("session",))), asyncio.Event()
    leader = asyncio.create_task(proxy.ask("/", first))
    await joined(proxy, 1)
    lines = [VISITOR, SESSION] * 3
    others = [asyncio.create_task(proxy.ask("/", line)) for line in lines]
    await joined(proxy, 7)
    origin.gate.set()
    pages = {VISITOR: b"of ", SESSION: b"of session=1"}
    assert [answer.content for answer in await asyncio.gather(leader, *others)] == [
        pages[line] for line in (first, *lines)
    ]


@pytest.mark.parametrize("line", [VISITOR, SESSION], ids=["visitor", "user"])
async def test_stale_pages_of_visitors_are_for_visitors(origin, front, reply, clock, line):
    """Neither while it is fetched again nor in place of an error does a user get one."""
    origin.answer = lambda request: reply(b"%d" % len(origin.requests), 'ETag: "1"')
    proxy = await front(rules=Rules(ttl=60, grace=600, keep_cookies=("session",)))
    await proxy.ask("/")
    clock.now += 61
    assert (await proxy.ask("/", line)).content == (b"2" if line == SESSION else b"1")
    await until(lambda: len(origin.requests) == 2)
    clock.now += 3600
    await origin.stop()
    assert (await proxy.ask("/", line)).status == (502 if line == SESSION else 200)


def by_language(origin, reply):
    origin.answer = lambda request: reply(
        request["accept-language"].encode(), "Cache-Control: max-age=600", "Vary: Accept-Language"
    )


async def test_invented_values_do_not_evict_the_used_variant(origin, front, reply):
    by_language(origin, reply)
    proxy = await front()
    for _ in range(2):
        await proxy.ask("/wiki/A", "Accept-Language: de")
    for number in range(100):
        await proxy.ask("/wiki/A", f"Accept-Language: x{number}")
    assert "hit" in (await proxy.ask("/wiki/A", "Accept-Language: de"))["cache-status"]
    assert len(origin.requests) == 101


async def test_a_new_variant_stays_while_others_are_used(origin, front, reply):
    by_language(origin, reply)
    proxy = await front()
    for number in [*range(64), *range(64)]:
        await proxy.ask("/wiki/A", f"Accept-Language: x{number}")
    for tongue in ("de", "fr", "de", "fr"):
        last = await proxy.ask("/wiki/A", f"Accept-Language: {tongue}")
    assert "hit" in last["cache-status"]
    assert len(origin.requests) == 66
