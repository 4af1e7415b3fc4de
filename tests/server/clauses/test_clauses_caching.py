"""Clauses of caching (RFC 9111, RFC 9110 §13 to §15) by octets, for docs/conformance.md."""

import pytest

from support import named

FRESH = "Cache-Control: max-age=60"
TAG = 'ETag: "a"'


# Storing


async def test_an_update_adds_no_field_that_is_not_stored(proxy):
    here = proxy()
    await here.store("Cache-Control: max-age=1", TAG)
    here.wait(2)
    validation = await here.ask()
    news = [FRESH, TAG, "X-Own: 1", "X-Hop: 1", "Connection: x-hop", "Proxy-Authenticate: Basic"]
    await here.answer(validation, *news, 'Cache-Control: private="x-own"', status="304 Not Modified")
    hit = await here.ask()
    assert hit.forwarded is None
    assert hit.answer.field(b"x-own") is hit.answer.field(b"x-hop") is None
    assert hit.answer.field(b"proxy-authenticate") is None
    assert hit.answer.field(b"etag") == b'"a"'


@pytest.mark.parametrize(
    ("line", "stored"), named(("no-store", "Cache-Control: no-store", False), ("nothing", "X: y", True))
)
async def test_a_client_forbids_to_store(proxy, line, stored):
    here = proxy()
    await here.store(FRESH, asked=[line])
    assert ((await here.ask()).forwarded is None) is stored


@pytest.mark.parametrize(("method", "stored"), named(("TRACE", "TRACE", False), ("GET", "GET", True)))
async def test_methods_whose_answers_are_not_stored(proxy, method, stored):
    here = proxy()
    await here.answer(await here.ask(method=method), FRESH)
    assert ((await here.ask(method=method)).forwarded is None) is stored


@pytest.mark.parametrize(
    ("status", "cache_control", "stored"),
    named(("299", "299 Odd", FRESH, True), ("599", "599 Odd", "Cache-Control: no-store", False)),
)
async def test_a_status_that_is_not_known_is_of_its_class(proxy, status, cache_control, stored):
    here = proxy()
    miss = await here.store(cache_control, status=status)
    assert miss.answer.status == int(status[:3])
    assert ((await here.ask()).forwarded is None) is stored


@pytest.mark.parametrize("line", named(("no-transform", "no-transform"), ("nothing", "public")))
async def test_content_is_passed_on_octet_for_octet(proxy, line):
    here = proxy()
    content = bytes(range(256))
    coded = [f"Cache-Control: max-age=60, {line}", "Content-Encoding: gzip", "Content-Type: image/png"]
    miss = await here.store(*coded, content=content)
    for each in (miss, await here.ask()):
        assert each.answer.content == content
        assert each.answer.field(b"content-encoding") == b"gzip"
        assert each.answer.field(b"content-type") == b"image/png"


@pytest.mark.parametrize("place", named(("a field", True), ("a trailer", False)))
async def test_trailers_are_no_fields_of_what_is_stored(proxy, place):
    here = proxy()
    miss = await here.ask()
    line = b"X-Own: 1\r\n"
    head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nTrailer: X-Own\r\n"
    octets = head + line * place + b"\r\n3\r\nabc\r\n0\r\n" + line * (not place) + b"\r\n"
    await here.reply(miss, octets)
    hit = await here.ask()
    assert hit.forwarded is None
    for each in (miss.answer, hit.answer):
        assert each.content == b"abc"
        assert each.field(b"x-own") == (b"1" if place else None)


# Selecting


@pytest.mark.parametrize(
    ("second", "reused"), named(("absent from the second", [], False), ("absent from both", None, True))
)
async def test_a_nominated_field_is_absent_from_both_or_from_neither(proxy, second, reused):
    here = proxy()
    await here.store(FRESH, "Vary: Foo", asked=["Foo: 1"] if second is not None else [])
    assert ((await here.ask()).forwarded is None) is reused


@pytest.mark.parametrize(
    ("order", "expected"),
    named(("the newest has none", ["x", None], b"1"), ("the newest has one", [None, "x"], b"1")),
)
async def test_the_newest_response_is_selected_with_vary_or_without(proxy, order, expected):
    here = proxy()
    for number, vary in enumerate(order):
        lines = [FRESH, *([f"Vary: {vary}"] if vary else [])]
        asking = await here.ask("Cache-Control: no-cache", "X: 1")
        await here.answer(asking, *lines, content=b"%d" % number)
    assert (await here.ask("X: 1")).answer.content == expected


# Freshness


@pytest.mark.parametrize(("age", "reused"), named(("60", 60, False), ("59.9", 59.9, True)))
async def test_at_the_end_of_its_lifetime_a_response_is_stale(proxy, age, reused):
    here = proxy()
    await here.store(FRESH)
    here.wait(age)
    assert ((await here.ask()).forwarded is None) is reused


@pytest.mark.parametrize(
    ("line", "reused"), named(("max-age=5", "Cache-Control: max-age=5", False), ("nothing", "X: y", True))
)
async def test_no_heuristics_beside_an_explicit_time(proxy, date, line, reused):
    here = proxy(heuristic=True)
    await here.store(line, f"Last-Modified: {date(-1_000_000)}")
    here.wait(10)
    assert ((await here.ask()).forwarded is None) is reused


@pytest.mark.parametrize(("expires", "reused"), named(("0", None, False), ("in an hour", 3600, True)))
async def test_an_expires_that_is_no_date_is_past(proxy, date, expires, reused):
    here = proxy(heuristic=True)
    value = "0" if expires is None else date(expires)
    await here.store(f"Expires: {value}", f"Last-Modified: {date(-1_000_000)}", TAG)
    assert ((await here.ask()).forwarded is None) is reused


@pytest.mark.parametrize(("age", "reused"), named(("stale", 61, False), ("fresh", 59, True)))
async def test_must_revalidate_is_for_what_is_stale(proxy, age, reused):
    here = proxy()
    await here.store("Cache-Control: max-age=60, must-revalidate")
    here.wait(age)
    assert ((await here.ask("Cache-Control: max-stale")).forwarded is None) is reused


@pytest.mark.parametrize(
    ("asked", "age", "reused"),
    named(
        ("max-stale=10 at 69", "max-stale=10", 69, True),
        ("max-stale=10 at 71", "max-stale=10", 71, False),
        ("min-fresh=50 at 9", "min-fresh=50", 9, True),
        ("min-fresh=50 at 11", "min-fresh=50", 11, False),
        ("no-cache at 0", "no-cache", 0, False),
        ("nothing at 0", "", 0, True),
    ),
)
async def test_a_client_accepts_what_is_stale(proxy, asked, age, reused):
    here = proxy()
    await here.store(FRESH)
    here.wait(age)
    assert ((await here.ask(f"Cache-Control: {asked}")).forwarded is None) is reused


@pytest.mark.parametrize(
    ("lines", "reused"),
    named(
        ("alone", ["Pragma: no-cache"], False),
        ("beside max-age", ["Pragma: no-cache", "Cache-Control: max-age=60"], True),
    ),
)
async def test_pragma_counts_without_cache_control(proxy, lines, reused):
    here = proxy()
    await here.store(FRESH)
    assert ((await here.ask(*lines)).forwarded is None) is reused


# What passes through


@pytest.mark.parametrize(("hit", "age"), named(("a miss", False, None), ("a hit", True, b"7")))
async def test_only_what_was_stored_has_an_age(proxy, hit, age):
    here = proxy()
    asking = await here.store(FRESH)
    if hit:
        here.wait(7)
        asking = await here.ask()
    assert asking.answer.field(b"age") == age


@pytest.mark.parametrize("back", named(("to the client", True), ("to the origin server", False)))
async def test_cache_control_passes_through_both_ways(proxy, back):
    here = proxy()
    value = 'max-age=7, odd, odder="a, b"'
    asking = await here.store(f"Cache-Control: {value}", asked=[f"Cache-Control: {value}"])
    assert (asking.answer if back else asking.forwarded).field(b"cache-control") == value.encode()


@pytest.mark.parametrize("theirs", named(("from the origin server", True), ("of something stale", False)))
async def test_warnings_are_passed_on_and_none_is_made(proxy, theirs):
    here = proxy()
    warning = '199 - "odd"'
    await here.store(FRESH, *([f"Warning: {warning}"] if theirs else []))
    here.wait(70)
    stale = await here.ask("Cache-Control: max-stale")
    assert stale.forwarded is None
    assert stale.answer.field(b"warning") == (warning.encode() if theirs else None)


@pytest.mark.parametrize("status", named(("302", "302 Found"), ("200", "200 OK")))
async def test_redirects_are_not_followed(proxy, status):
    here = proxy()
    asking = await here.store("Location: /b", status=status, content=b"")
    assert asking.answer.status == int(status[:3])
    assert asking.answer.field(b"location") == b"/b"
    assert len(here.world.served) == 1


@pytest.mark.parametrize("content", named(("without content", b""), ("with content", b"odd")))
async def test_a_205_is_passed_on_as_it_came(proxy, content):
    here = proxy()
    asking = await here.store(status="205 Reset Content", content=content)
    assert (asking.answer.status, asking.answer.content) == (205, content)


# Conditions


@pytest.mark.parametrize(
    ("lines", "status"),
    named(
        ("both, one holds", ['If-None-Match: "b"', "If-Modified-Since: {then}"], 200),
        ("the date alone", ["If-Modified-Since: {then}"], 304),
        ("an older date", ["If-Modified-Since: {before}"], 200),
        ("no date", ["If-Modified-Since: yesterday"], 200),
    ),
)
async def test_if_none_match_comes_before_if_modified_since(proxy, date, lines, status):
    here = proxy()
    await here.store(FRESH, TAG, f"Last-Modified: {date(-100)}")
    asked = [line.format(then=date(-100), before=date(-101)) for line in lines]
    assert (await here.ask(*asked)).answer.status == status


@pytest.mark.parametrize(
    ("tag", "status"), named(("a condition that holds", '"b"', 206), ("one that does not", '"a"', 304))
)
async def test_conditions_come_before_ranges(proxy, tag, status):
    here = proxy()
    await here.store(FRESH, TAG)
    asking = await here.ask(f"If-None-Match: {tag}", "Range: bytes=0-1")
    assert asking.answer.status == status


@pytest.mark.parametrize(
    ("variant", "renewed"), named(("the same variant", "X: 1", True), ("another variant", "X: 2", False))
)
async def test_a_304_updates_the_response_that_was_asked_about(proxy, variant, renewed):
    here = proxy()
    for asked in ("X: 1", "X: 2"):
        await here.store(FRESH, TAG, "Vary: X", asked=[asked])
    here.wait(70)
    validation = await here.ask("X: 1")
    await here.answer(validation, FRESH, TAG, "Vary: X", status="304 Not Modified")
    assert validation.answer.status == 200
    assert ((await here.ask(variant)).forwarded is None) is renewed


@pytest.mark.parametrize(
    ("lifetime", "asks"),
    named(("a shorter lifetime", "max-age=1", True), ("the same lifetime", "max-age=60", False)),
)
async def test_a_304_with_authorization_shortens_a_lifetime_for_all(proxy, lifetime, asks):
    here = proxy()
    await here.store("Cache-Control: public, max-age=60", TAG)
    validation = await here.ask("Authorization: Basic YTpi", "Cache-Control: no-cache")
    await here.answer(validation, f"Cache-Control: {lifetime}", TAG, status="304 Not Modified")
    assert validation.answer.status == 200
    assert ((await here.ask()).forwarded is not None) is asks


@pytest.mark.parametrize(
    ("host", "gone"), named(("another host", "other.example", False), ("the same host", "en.example", True))
)
async def test_another_origin_is_not_invalidated(proxy, host, gone):
    here = proxy()
    for authority in ("en.example", "other.example"):
        await here.store(FRESH, target=f"http://{authority}/b")
    post = await here.ask("Content-Length: 0", method="POST")
    await here.answer(post, f"Location: http://{host}/b", status="201 Created")
    assert ((await here.ask(target=f"http://{host}/b")).forwarded is not None) is gone


# Ranges


@pytest.mark.parametrize(
    ("method", "value", "status", "content_range"),
    named(
        ("one range", "GET", "bytes=2-3", 206, b"bytes 2-3/10"),
        ("the last before the first", "GET", "bytes=3-2", 200, None),
        ("another unit", "GET", "lines=2-3", 200, None),
        ("HEAD", "HEAD", "bytes=2-3", 200, None),
        ("behind the end", "GET", "bytes=10-", 416, b"bytes */10"),
    ),
)
async def test_ranges_that_are_none(proxy, method, value, status, content_range):
    here = proxy()
    await here.store(FRESH)
    answer = (await here.ask(f"Range: {value}", method=method)).answer
    assert (answer.status, answer.field(b"content-range")) == (status, content_range)


@pytest.mark.parametrize(
    ("lines", "status"),
    named(
        ("without Range", ['If-Range: "b"'], 200), ("with Range", ['If-Range: "a"', "Range: bytes=0-1"], 206)
    ),
)
async def test_if_range_counts_with_range_alone(proxy, lines, status):
    here = proxy()
    await here.store(FRESH, TAG)
    answer = (await here.ask(*lines)).answer
    assert (answer.status, len(answer.content)) == (status, 10 if status == 200 else 2)


@pytest.mark.parametrize(
    ("content_range", "stored"),
    named(("another unit", "lines 0-1/5", False), ("bytes", "bytes 0-1/10", True)),
)
async def test_a_part_of_another_unit_is_passed_on(proxy, content_range, stored):
    here = proxy()
    unit = content_range.partition(" ")[0]
    asked = [f"Range: {unit}=0-1"]
    lines = [FRESH, TAG, f"Content-Range: {content_range}"]
    part = await here.store(*lines, asked=asked, status="206 Partial Content", content=b"01")
    assert (part.answer.status, part.answer.content) == (206, b"01")
    assert part.answer.field(b"content-range") == content_range.encode()
    assert ((await here.ask(*asked)).forwarded is None) is stored


@pytest.mark.parametrize(
    ("value", "places"),
    named(
        ("in order", "bytes=0-1,8-9", [b"0-1/10", b"8-9/10"]),
        ("the last first", "bytes=8-9,0-1", [b"8-9/10", b"0-1/10"]),
    ),
)
async def test_parts_come_in_the_order_of_the_request(proxy, value, places):
    here = proxy()
    await here.store(FRESH)
    answer = (await here.ask(f"Range: {value}")).answer
    lines = answer.content.split(b"\r\n")
    told = [line.removeprefix(b"content-range: bytes ") for line in lines if b"content-range" in line]
    assert told == places


@pytest.mark.parametrize(
    ("lines", "status"),
    named(("206", ["Range: bytes=0-1"], 206), ("304", ['If-None-Match: "a"'], 304), ("200", [], 200)),
)
async def test_a_206_and_a_304_have_the_200s_fields(proxy, date, lines, status):
    here = proxy()
    fields = [FRESH, TAG, f"Expires: {date(3600)}", f"Date: {date(0)}", "Content-Location: /c", "Vary: Foo"]
    await here.store(*fields)
    answer = (await here.ask(*lines)).answer
    assert answer.status == status
    for line in fields:
        name, _, value = line.partition(": ")
        assert answer.field(name.lower().encode()) == value.encode(), name
