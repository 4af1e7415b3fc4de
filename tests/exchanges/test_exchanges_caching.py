"""Responses are stored, reused, validated and purged (RFC 9111), the same on every way in."""

import pytest

from exchanges.table import (
    BODY,
    FRESH,
    TAG,
    WAYS,
    answers,
    asks,
    breaks,
    cut_short,
    every,
    goes,
    got,
    hit,
    leaves,
    miss,
    play,
    problem,
    purge,
    reached,
    row,
    sends,
    stays,
    wait,
    waits_still,
    where,
)

SESSION, VISITOR, BASIC = "Cookie: _ga=1; session=1", "X-Request-Id: 1", "Authorization: Basic eA=="
VARY, SUNDAY = "Vary: Accept-Encoding", "Sun, 01 Nov 2020 00:00:00 GMT"
UNMODIFIED, SWR = "304 Not Modified", "Cache-Control: max-age=1, stale-while-revalidate=60"
BYPASSED = got(200, "cache-status ~ fwd=bypass")
HERE, THERE = "Origin: https://here.example", "Origin: https://there.example"
CHUNKED = b"GET /a HTTP/1.1\r\nHost: en.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nparam\r\n0\r\n\r\n"


def shared(line, is_shared, **rules):
    """A row that tells whether a page of ours, brought by a visitor, is for a client with this field."""
    first = miss(asked=[VISITOR], content=b"1"), asks(line)
    rest = [stays()] if is_shared else [goes(), answers(content=b"2"), hit(content=b"1")]
    return row(f"{line} and {rules}", *first, *rest, **{"ttl": 60, **rules})


def one_origin(name, is_shared, *lines):
    """A row that tells whether a response is for one Origin alone."""
    first = miss(*lines), hit(), asks(HERE), stays() if is_shared else goes()
    again = [] if is_shared else [answers(*lines), hit(asked=[HERE])]
    last = hit(), asks(THERE), stays() if is_shared else goes()
    return row(f"a lifetime of ours is for one Origin: {name}", *first, *again, *last, ttl=60)


def two_codings(first, second, *line):
    """One entity-tag for two codings: a range is not answered here."""
    both = [
        miss(
            FRESH,
            TAG,
            VARY,
            *([f"Content-Encoding: {each}"] if each else []),
            asked=[f"Accept-Encoding: {each}"],
        )
        for each in (first, second)
    ]
    part = answers(FRESH, TAG, VARY, "Content-Range: bytes 2-4/9", status="206 Part", content=b"abc")
    asked = asks("Accept-Encoding: gzip", "Range: bytes=2-4", *line), goes("range: bytes=2-4"), part, got(206)
    return row(f"ranges of one entity-tag for two codings, {first} first, {len(line)}", *both, *asked)


def bypassing(name, ask, ways=WAYS):
    twice = ask, goes(content=b"param"), answers(FRESH), BYPASSED
    return row(f"content of a GET bypasses the cache, {name}", *twice, miss(FRESH), *twice, ways=ways)


def refreshed(*, asked=(), **answer):
    """A client has what is stale, and the origin server answers the refresh."""
    return wait(2), asks(*asked), got(200, content=BODY), goes(), answers(FRESH, **answer)


ROWS = [
    row("fresh for its lifetime", miss(FRESH), wait(59), hit("age: 59"), wait(1), asks(), goes()),
    row("an Age that came counts", miss(FRESH, "Age: 50"), wait(5), hit("age: 55"), wait(6), asks(), goes()),
    "no-cache in a response validates each time",
    *(miss("Cache-Control: no-cache", TAG), asks(), goes('if-none-match: "a"')),
    *(answers(status=UNMODIFIED), got(200, content=BODY), asks(), goes()),
    "a 200 replaces what is stale",
    *(miss(FRESH, TAG), wait(60), miss(FRESH, content=b"new"), hit(content=b"new")),
    "Last-Modified validates without an entity-tag",
    *(miss(FRESH, f"Last-Modified: {SUNDAY}"), wait(60), asks(), goes(f"if-modified-since: {SUNDAY}")),
    *(answers(FRESH, status=UNMODIFIED), got(200, content=BODY)),
    "must-revalidate, and the origin server is away",
    *(miss(FRESH + ", must-revalidate"), wait(60), asks(), breaks(), got(502)),
    "a client's conditions are kept back and answered",
    *(
        asks('If-None-Match: "a"', f"If-Modified-Since: {SUNDAY}"),
        goes("-if-none-match", "-if-modified-since"),
    ),
    *(answers(FRESH, TAG), got(304, content=b""), hit()),
    "a POST brings what a GET gets, and is no hit",
    *(asks(method="POST", content=b"x"), answers(FRESH, "Content-Location: /a"), hit()),
    *(asks(method="POST", content=b"x"), goes()),
    "a POST that stands for another method",
    *(asks("X-HTTP-Method-Override: DELETE", method="POST", content=b"x"), goes()),
    *(answers(FRESH, "Content-Location: /a"), asks(), goes()),
    bypassing("of a length", asks(content=b"param")),
    bypassing("in chunks", sends(CHUNKED), ["http1"]),
    "a 304 that nobody asked for",
    *(miss("Cache-Control: max-age=1, must-revalidate", TAG), wait(5), asks()),
    *([answers('ETag: "b"', status=UNMODIFIED)] * 2, got(502), problem("origin-bad-response"), reached(3)),
    "very many ranges are not multiplied",
    *(miss(FRESH), asks("Range: bytes=" + ",".join(["0-"] * 500)), stays(), got(200, content=BODY)),
    row("no-store", miss("Cache-Control: no-store"), miss(FRESH), hit()),
    row("chunked content is stored", miss(FRESH, coding="chunked"), hit("content-length: 10")),
    row("content until the connection closes", miss(FRESH, coding="close"), hit()),
    "fetched before a purge",
    *(asks(), purge(), answers(FRESH, content=b"old"), got(content=b"old")),
    *(miss(FRESH, content=b"new"), hit(content=b"new")),
    row("purged", miss(FRESH), purge("/%61"), miss(FRESH), hit()),
    "a 304 freshens",
    *(miss(FRESH, TAG), wait(60), asks(), goes('if-none-match: "a"'), answers(FRESH, status=UNMODIFIED)),
    *(got(200, content=BODY), hit("age: 0")),
    "selected by Vary",
    *(miss(FRESH, "Vary: X", asked=[f"X: {each}"], content=b"%d" % each) for each in (1, 2)),
    *(hit(asked=[f"X: {each}"], content=b"%d" % each) for each in (1, 2)),
    "collapsed",
    *(asks(name="one"), asks(name="two"), stays(), answers(FRESH, "Age: 7")),
    got(200, "age: 7", name="one", content=BODY),
    got(200, "age: 7", "cache-status ~ collapsed", name="two", content=BODY),
    "the leader leaves",
    *(asks(name="one"), asks(name="two"), leaves("one"), waits_still("two"), answers(FRESH)),
    got(name="two", content=BODY),
    row("stale on error", miss(FRESH + ", stale-if-error=60"), wait(60), asks(), breaks(), got(content=BODY)),
    "an interim response",
    *(asks(), answers(FRESH, interim=b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n")),
    *(got(200, interims=(103,)), hit()),
    "an unsafe request invalidates",
    *(miss(FRESH), asks(method="POST", content=b"x"), goes(content=b"x"), answers(status="204 No Content")),
    *(got(204), miss(FRESH), hit()),
    "an unsafe request that fails invalidates nothing",
    *(miss(FRESH), asks(method="POST", content=b"x"), answers(status="500 Oh"), got(500), hit()),
    row("a HEAD is answered by a stored GET", miss(FRESH), asks(method="HEAD"), stays(), got(content=b"")),
    "a part of what is stored",
    *(miss(FRESH, TAG), asks("Range: bytes=2-4"), stays()),
    got(206, "content-range: bytes 2-4/10", content=b"234"),
    "a client's own copy",
    *(miss(FRESH, TAG), asks('If-None-Match: "a"'), stays(), got(304, 'etag: "a"', content=b"")),
    "only-if-cached, past the cache",
    *(asks("Cache-Control: only-if-cached", "Authorization: NTLM a"), stays(), got(504)),
    row("only-if-cached", asks("Cache-Control: only-if-cached"), stays(), got(504)),
    "a client's no-cache validates",
    *(miss(FRESH, TAG), asks("Cache-Control: no-cache"), goes('if-none-match: "a"')),
    *(answers(FRESH, status=UNMODIFIED), got(200, content=BODY)),
    row("what Authorization brought", miss(FRESH, asked=[BASIC]), miss(FRESH), hit()),
    row("a public answer to Authorization", miss("Cache-Control: public, max-age=9", asked=[BASIC]), hit()),
    row("set-cookie is not shared by a lifetime of ours", miss("Set-Cookie: a=b"), miss(), hit(), ttl=60),
    "a personal request is not shared by a lifetime of ours",
    *(miss(asked=["X-Api-Key: k"]), miss(), hit()),
    where(ttl=60),
    shared(SESSION, False, keep_cookies=["session"]),
    "a session has its own answer, unless the origin server shares it",
    *(miss(asked=[SESSION], sees=["cache-status ~ detail=cookie"]), miss(FRESH), hit(asked=[SESSION])),
    where(ttl=60, keep_cookies=["session"]),
    shared("Cookie: _ga=1", True, keep_cookies=["session"]),
    shared(BASIC, False, keep_cookies=["session"]),
    shared("Cookie: lang=de", False, keep_cookies=["lang"], bypass_cookies=["session"]),
    shared(SESSION, False, bypass_cookies=["session"]),
    shared("Cookie: _ga=1", True, bypass_cookies=["session"]),
    shared(BASIC, False, bypass_cookies=["session"]),
    shared("Cookie: _ga=1", True, strip_cookies=["_ga"]),
    shared(SESSION, False, strip_cookies=["_ga"]),
    shared(SESSION, False),
    shared(VISITOR, True),
    shared("X-Api-Key: 1", False),
    shared("X-Any: 1", True, ordinary_fields=["X-Any"]),
    shared("X-Other: 1", False, key=["header:X-Any"]),
    shared("X-Any: 1", False, key=["header:X-Any"]),
    "each answer says which field selects it, stored or not",
    *[miss("Cache-Control: no-store", asked=["X-Any: 1"], sees=["vary: x-any"])] * 3,
    where(key=["header:X-Any"]),
    "stale pages of visitors are for visitors",
    *(miss(TAG, content=b"1"), wait(61), asks(SESSION), answers(TAG, content=b"2"), got(content=b"2")),
    *(asks(), got(content=b"1"), answers(TAG, content=b"3"), hit(content=b"3")),
    where(ttl=60, grace=600, keep_cookies=["session"]),
    one_origin("nothing is allowed", False),
    one_origin("one is allowed", False, "Access-Control-Allow-Origin: https://here.example"),
    one_origin("all are allowed", True, "Access-Control-Allow-Origin: *"),
    one_origin("public", False, "Cache-Control: public"),
    one_origin("a lifetime of its own", True, FRESH),
    *(
        two_codings(*codings, *line)
        for codings in [("gzip", ""), ("", "gzip")]
        for line in ([], ['If-Range: "a"'])
    ),
    row("404 for as long as it says", miss(FRESH, status="404 Not Found"), hit(status=404)),
    row("stale while it is refreshed", miss(SWR), refreshed(content=b"new"), hit(content=b"new")),
    row("a refresh that fails ends what was stale", miss(SWR), refreshed(status="404 No"), hit(status=404)),
    "cut short is not stored",
    *(asks(), cut_short(FRESH), got(200, content=b"012", complete=False), miss(FRESH), hit()),
    row("an origin server that breaks", asks(), breaks(), got(502), miss(FRESH)),
    row("spellings of one URL", miss(FRESH, target="/a"), hit(target="/%61")),
    row("a soft purge", miss(FRESH, TAG), purge("/a", "Soft-Purge: 1"), asks(), goes('if-none-match: "a"')),
]

NEVER, JSON = "Cache-Control: private", "Content-Type: application/json"
TEXT = b"<p>The same words again and again.</p>\n" * 30
HTML = "Content-Type: text/html; charset=utf-8"
ACCEPT = "Accept-Encoding: {}".format
GZIP, BR = ACCEPT("gzip"), ACCEPT("br")
SAYS, PLAIN = "vary: Accept-Encoding", "-content-encoding"
UNSTORED, IDENTITY = (NEVER, JSON, TAG), (PLAIN, 'etag: "a"', SAYS)
OF_BYTES = ("-content-length", "-content-md5", "-accept-ranges")
PART = f"Content-Range: bytes 0-{len(TEXT) - 1}/9999"
SMALL = got(200, "content-encoding: gzip", content=TEXT)


def page(*asked):
    return miss(
        *(FRESH, TAG, HTML, f"Last-Modified: {SUNDAY}"),
        asked=asked,
        sees=[PLAIN, 'etag: "a"', SAYS],
        content=TEXT,
    )


def form(coding, *asked):
    return hit(f"content-encoding: {coding}", 'etag: W/"a"', SAYS, asked=asked, content=TEXT)


def part(*asked):
    return asks(GZIP, "Range: bytes=0-9", *asked), stays(), got(206, PLAIN, 'etag: "a"', content=TEXT[:10])


def unchanged(tag):
    return asks(BR, f"If-None-Match: {tag}"), stays(), got(304, PLAIN, 'etag: W/"a"', SAYS)


def plain(what, *lines, content=TEXT):
    """A row about a response that is stored, and not compressed for a client."""
    steps = miss(FRESH, *lines, asked=[GZIP], content=content), hit("-vary", asked=[GZIP], content=content)
    return row(f"{what} is not compressed", *steps)


def streamed(coding, framing):
    lines = NEVER, JSON, TAG, "Accept-Ranges: bytes", "Content-MD5: x"
    sees = f"content-encoding: {coding}", 'etag: W/"a"', SAYS, *OF_BYTES
    answer = miss(*lines, asked=[ACCEPT(coding)], sees=sees, content=TEXT * 50, coding=framing)
    return row(f"a stream in {coding}, {framing}", answer, got(200, content=TEXT * 50))


def identity(what, *asked):
    return row(
        f"a stream is the identity form for {what}", miss(*UNSTORED, asked=asked, sees=IDENTITY, content=TEXT)
    )


def plain_stream(what, lines, sees, content=TEXT, **more):
    answer = miss(*lines, asked=[GZIP], sees=sees, content=content, **more)
    return row(f"{what} is not compressed while it streams", answer)


def revalidated(held, seen, *more):
    """A 304 has the validator that the client holds."""
    first = miss(*UNSTORED, asked=[GZIP], content=TEXT), asks(GZIP, f"If-None-Match: {held}")
    told = goes(f"if-none-match: {held}"), answers(NEVER, TAG, status=UNMODIFIED)
    name = f"a 304 has the validator of what the client holds, {held}"
    return row(name, *first, *told, got(304, f"etag: {seen}", PLAIN, *more))


COMPRESSED = [
    *(
        row(f"a hit in {each}", page(ACCEPT(each)), *[form(each, ACCEPT(each))] * 2)
        for each in ("gzip", "br", "zstd")
    ),
    "the order of the setting decides",
    *(
        page(),
        form("br", ACCEPT("gzip, br")),
        form("zstd", ACCEPT("*")),
        form("gzip", ACCEPT("br;q=0, gzip")),
    ),
    *(hit(PLAIN, 'etag: "a"', SAYS, asked=[each], content=TEXT) for each in (ACCEPT("deflate"), "X: 1")),
    "a HEAD",
    *(page(), asks(BR, method="HEAD"), got(200, "content-encoding: br", 'etag: W/"a"', SAYS, content=b"")),
    row("conditions", page(), unchanged('"a"'), unchanged('W/"a"'), form("br", BR, 'If-None-Match: "b"')),
    "ranges are of the identity form",
    *(page(), part(), part('If-Range: "a"')),
    *(form("gzip", GZIP, "Range: bytes=0-9", f"If-Range: {each}") for each in ('W/"a"', SUNDAY)),
    plain("what is short", HTML, content=TEXT[:1000]),
    plain("an image", "Content-Type: image/png"),
    plain("no-transform", "Cache-Control: no-transform", HTML),
    plain("another coding", HTML, "Content-Encoding: compress"),
    plain("a stream of events", "Content-Type: text/event-stream"),
    "a client may refuse a transformation",
    *(page(), hit(PLAIN, asked=[GZIP, "Cache-Control: no-transform"], content=TEXT)),
    streamed("gzip", "length"),
    streamed("br", "chunked"),
    streamed("zstd", "close"),
    streamed("gzip", "chunked"),
    identity("who takes no coding"),
    identity("who refuses a transformation", GZIP, "Cache-Control: no-transform"),
    identity("a range", GZIP, "Range: bytes=0-9"),
    "a stream is the identity form for a HEAD",
    *(asks(GZIP, method="HEAD"), goes(), answers(*UNSTORED, content=TEXT), got(200, *IDENTITY)),
    plain_stream("what is short", [NEVER, JSON, TAG], ['etag: "a"', "-vary"], TEXT[:1000]),
    plain_stream("an image", [NEVER, "Content-Type: image/png"], [PLAIN, "-vary"]),
    plain_stream("no-transform", [NEVER + ", no-transform", JSON], [PLAIN, "-vary"]),
    plain_stream("a coded one", [NEVER, JSON, "Content-Encoding: compress"], ["-vary"]),
    plain_stream("a stream of events", [NEVER, "Content-Type: text/event-stream"], [PLAIN]),
    plain_stream("a part", [NEVER, JSON, TAG, PART], [PLAIN, 'etag: "a"'], status="206 Partial Content"),
    revalidated('"a"', '"a"'),
    revalidated('W/"a"', 'W/"a"', SAYS),
    revalidated('W/"b", W/"a"', 'W/"a"', SAYS),
    "an answer to POST, and an error, are compressed, too",
    *(asks(GZIP, method="POST", content=b"x"), goes(), answers(JSON, content=TEXT), SMALL),
    *(asks(GZIP), goes(), answers(JSON, content=TEXT, status="404 No"), got(404, "content-encoding: gzip")),
    row("a purge removes every form", page(), form("gzip", GZIP), form("br", BR), purge(), page(GZIP)),
]


@pytest.mark.parametrize("row", every(ROWS))
async def test_caching_is_the_same_on_every_way_in(row):
    await play(row)


@pytest.mark.parametrize("row", every(COMPRESSED, compress=["zstd", "br", "gzip"]))
async def test_forms_are_the_same_on_every_way_in(row):
    await play(row, ["whole", "surplus"])
