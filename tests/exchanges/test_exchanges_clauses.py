"""Clauses of RFC 9110 and 9111, the same on every way in; docs/conformance.md names the rows."""

import pytest

from exchanges.table import (
    BODY,
    FRESH,
    TAG,
    answers,
    asks,
    every,
    goes,
    got,
    hit,
    miss,
    play,
    problem,
    reached,
    replies,
    row,
    stays,
    wait,
    where,
)
from fuzz.exchanges.wires import START
from univocal.http.messages import imf_fixdate

RELOAD, STALE, BASIC = "Cache-Control: no-cache", "Cache-Control: max-stale", "Authorization: Basic YTpi"
SAME, CROWDED, OCTETS = "304 Not Modified", "1.1 univocal, " * 8, bytes(range(256))
CHUNKED = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nTrailer: X-Own\r\n"
DIRECTIVES = 'Cache-Control: max-age=7, odd, odder="a, b"'
UNSTORED = "X-Own: 1", "X-Hop: 1", "Connection: x-hop", "Proxy-Authenticate: Basic"


def date(seconds):
    """The HTTP-date so many seconds from the beginning."""
    return imf_fixdate(START + seconds).decode()


MODIFIED, LONG_AGO = f"Last-Modified: {date(-100)}", f"Last-Modified: {date(-1_000_000)}"


def reuse(is_reused, *asked, **how):
    """A client asks, and the stored response answers it or not."""
    return asks(*asked, **how), stays() if is_reused else goes()


def parts(*places):
    """The client has these parts, in this order."""

    async def step(stage):
        lines = stage.asking().client.seen().content.split(b"\r\n")
        told = [line.removeprefix(b"content-range: bytes ") for line in lines if b"content-range" in line]
        assert told == list(places)

    return step


def reused(name, stored, age, is_reused, *asked):
    """A client asks for what has been stored for some seconds."""
    return row(name, miss(*stored), wait(age), reuse(is_reused, *asked), heuristic=True)


def stored(name, status, *asked, sees=(), method="GET"):
    """A stored response answers a client with this status."""
    steps = miss(*WHOLE), asks(*asked, method=method), stays(), got(status, *sees)
    return row(name, *steps, ways=["engine", "http1", "http2", "asgi"])


def coded(line):
    lines = f"{FRESH}, {line}", "Content-Encoding: compress", "Content-Type: image/png"
    name = f"{line}: content is passed on octet for octet"
    return row(name, miss(*lines, sees=lines, content=OCTETS), hit(*lines, content=OCTETS))


def chunks(name, line, trailer, seen):
    octets = CHUNKED + line + b"\r\n3\r\nabc\r\n0\r\n" + trailer + b"\r\n"
    return row(
        name, asks(), goes(), replies(octets), got(200, seen, content=b"abc"), hit(seen, content=b"abc")
    )


def newest(name, *varies):
    answer = [
        miss(FRESH, *each, asked=[RELOAD, "X: 1"], content=b"%d" % at) for at, each in enumerate(varies)
    ]
    return row(f"the newest with Vary or without: {name}", *answer, hit(asked=["X: 1"], content=b"1"))


def one_renewed(variant, is_reused):
    """A 304 to one variant, and whether a variant is fresh then."""
    both = [miss(FRESH, TAG, "Vary: X", asked=[each]) for each in ("X: 1", "X: 2")]
    renewed = wait(70), asks("X: 1"), goes(), answers(FRESH, TAG, "Vary: X", status=SAME), got(200)
    return row(f"a 304 for one variant, and {variant}", *both, *renewed, reuse(is_reused, variant))


def renewed_for(lifetime, is_reused):
    asked = miss("Cache-Control: public, max-age=60", TAG), asks(BASIC, RELOAD), goes()
    news = answers(f"Cache-Control: {lifetime}", TAG, status=SAME), got(200)
    return row(f"a 304 to Authorization with {lifetime}", *asked, *news, reuse(is_reused))


def location(host, is_reused):
    both = [miss(FRESH, target=f"http://{each}/b") for each in ("en.example", "other.example")]
    made = asks(method="POST", content=b""), answers(f"Location: http://{host}/b", status="201 Created")
    last = reuse(is_reused, target=f"http://{host}/b")
    return row(f"Location of {host}", *both, *made, last, ways=["http1", "asgi"])


def warned(name, lines, seen):
    return row(f"warnings {name}", miss(FRESH, *lines), wait(70), asks(STALE), stays(), got(200, seen))


def passed(name, status, content, *lines):
    """A response that is passed on as it came; nothing else is asked for."""
    return row(
        name,
        asks(),
        answers(*lines, status=status, content=content),
        got(int(status[:3]), *lines),
        reached(1),
    )


def of_a_client(name):
    line = f"{name}: http://en.example/x (y), z"
    return row(f"{name} of a client", asks(line), goes(line))


def of_an_origin_server(name, *, passes=True):
    line = f"{name}: x-a, x-b"
    return row(f"{name} of an origin server", miss(line, sees=[line if passes else f"-{name}"]))


def circling(name, *lines):
    return row(
        f"a request that has been {name}", asks(*lines), goes("via ~ 1.1 univocal"), ways=["http1", "asgi"]
    )


def hidden(name):
    """A row: a response to a request that came with a removed field is not stored for others."""
    asked = asks(f"Connection: {name}", f"{name}: mine"), goes(f"-{name}"), answers(FRESH, f"Vary: {name}")
    steps = *asked, miss(FRESH, f"Vary: {name}", asked=[f"{name}: mine"], content=b"mine"), hit()
    return row(f"Connection hides {name}", *steps, ways=["engine", "http1", "asgi"])


def outside(line):
    return row(f"{line} is not in the key", miss(FRESH), asks(line), stays(), hit())


def switching(name, line, status):
    octets = b"HTTP/1.1 " + line + b"\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"
    return row(f"a 101 {name}", asks(), goes(), replies(octets), got(status))


def parts_of(value, *places):
    return row(f"parts of {value}", miss(FRESH), asks(f"Range: {value}"), stays(), parts(*places))


def part_in(unit, place, is_reused):
    line, asked = f"Content-Range: {unit} {place}", f"Range: {unit}=0-1"
    part = answers(FRESH, TAG, line, status="206 Partial Content", content=b"01")
    return row(f"a part in {unit}", asks(asked), part, got(206, line, content=b"01"), reuse(is_reused, asked))


WHOLE = (
    FRESH,
    TAG,
    f"Expires: {date(3600)}",
    f"Date: {date(0)}",
    "Content-Location: /c",
    "Vary: Foo",
    MODIFIED,
)
SINCE = f"If-Modified-Since: {date(-100)}"

ROWS = [
    "an update adds no field that is not stored",
    *(miss("Cache-Control: max-age=1", TAG), wait(2), asks(), goes()),
    answers(FRESH, TAG, *UNSTORED, 'Cache-Control: private="x-own"', status=SAME),
    hit("-x-own", "-x-hop", "-proxy-authenticate", TAG),
    row("a client forbids to store", miss(FRESH, asked=["Cache-Control: no-store"]), reuse(False)),
    row("an answer to TRACE", asks(method="TRACE"), goes(), answers(FRESH), reuse(False, method="TRACE")),
    row("299 is a success", miss(FRESH, status="299 Odd"), hit(status=299)),
    row("599 is an error", miss("Cache-Control: no-store", status="599 Odd"), reuse(False)),
    coded("no-transform"),
    coded("public"),
    chunks("a line in the head", b"X-Own: 1\r\n", b"", "x-own: 1"),
    chunks("a line in a trailer", b"", b"X-Own: 1\r\n", "-x-own"),
    # which response is reused
    row("a field that the second lacks", miss(FRESH, "Vary: Foo", asked=["Foo: 1"]), reuse(False)),
    row("a field that both lack", miss(FRESH, "Vary: Foo"), reuse(True)),
    newest("without", ["Vary: x"], []),
    newest("with", [], ["Vary: x"]),
    reused("stale after 60 s", [FRESH], 60, False),
    reused("fresh for 59.9 s", [FRESH], 59.9, True),
    reused("Cache-Control: max-age=5, and heuristics", ["Cache-Control: max-age=5", LONG_AGO], 10, False),
    reused("X: y, and heuristics", ["X: y", LONG_AGO], 10, True),
    reused("Expires: 0", ["Expires: 0", LONG_AGO, TAG], 0, False),
    reused("Expires in an hour", [f"Expires: {date(3600)}", TAG], 0, True),
    reused("must-revalidate at 61", [FRESH + ", must-revalidate"], 61, False, STALE),
    reused("must-revalidate at 59", [FRESH + ", must-revalidate"], 59, True, STALE),
    reused("max-stale=10 at 69", [FRESH], 69, True, "Cache-Control: max-stale=10"),
    reused("max-stale=10 at 71", [FRESH], 71, False, "Cache-Control: max-stale=10"),
    reused("min-fresh=50 at 9", [FRESH], 9, True, "Cache-Control: min-fresh=50"),
    reused("min-fresh=50 at 11", [FRESH], 11, False, "Cache-Control: min-fresh=50"),
    reused("no-cache at 0", [FRESH], 0, False, RELOAD),
    reused("nothing at 0", [FRESH], 0, True),
    reused("Pragma alone", [FRESH], 0, False, "Pragma: no-cache"),
    reused("Pragma beside max-age", [FRESH], 0, True, "Pragma: no-cache", FRESH),
    reused("a name in capitals", ["cAcHe-CoNtRoL: max-age=60"], 0, False, "CACHE-CONTROL: no-cache"),
    reused("another name in capitals", [FRESH], 0, True, "CACHE-CONTROLS: no-cache"),
    one_renewed("X: 1", is_reused=True),
    one_renewed("X: 2", is_reused=False),
    renewed_for("max-age=1", is_reused=False),
    renewed_for("max-age=60", is_reused=True),
    location("other.example", is_reused=True),
    location("en.example", is_reused=False),
    # what is passed on
    row("no Age of ours in a fresh answer", miss(FRESH, sees=["-age"])),
    row("directives to the client", miss(DIRECTIVES, sees=[DIRECTIVES])),
    row("directives to the origin server", asks(DIRECTIVES), goes(DIRECTIVES)),
    warned("of the origin server", ['Warning: 199 - "odd"'], 'warning: 199 - "odd"'),
    warned("of something stale", [], "-warning"),
    passed("Location in a 302 Found", "302 Found", b"", "Location: /b"),
    passed("Location in a 200 OK", "200 OK", b"", "Location: /b"),
    passed("a 205 with 0 bytes", "205 Reset Content", b""),
    passed("a 205 with 3 bytes", "205 Reset Content", b"odd"),
    *map(of_a_client, ["referer", "user-agent", "authorization", "content-range"]),
    *map(of_an_origin_server, ["www-authenticate", "authentication-info", "vary", "accept-ranges"]),
    of_an_origin_server("proxy-authentication-info", passes=False),
    of_an_origin_server("connection", passes=False),
    row("octets above 0x7F", asks("X: a\xfcb"), goes("x: a\xfcb")),
    circling("nowhere"),
    circling("here", "Via: 1.1 univocal"),
    circling("here sixteen times", f"Via: {CROWDED}", f"Via: {CROWDED}"),
    circling("at others seventeen times", "Via: " + "1.1 univocal.example, " * 17),
    "a request that has been here seventeen times",
    *(asks(f"Via: {CROWDED}", f"Via: {CROWDED}1.0 univocal (a)"), stays(), got(502)),
    problem("origin-unreachable"),
    *map(hidden, ["accept-language", "x-requested-with", "accept", "x-tenant"]),
    *map(outside, ["Cookie: session=mine", "User-Agent: curl", "Origin: http://evil.example", "X-Any: 1"]),
    *map(outside, ["Referer: http://evil.example", "Accept: text/evil", 'If-None-Match: "x"']),
    outside("X-Forwarded-Host: evil.example"),
    switching("that was not asked for", b"101 Switching Protocols", 502),
    switching("and an ordinary answer", b"200 OK", 200),
    row("an error of ours", asks(target="/a/../b"), stays(), got(400), problem("dot-segment")),
    "an error of ours for a HEAD",
    *(asks(target="/a/../b", method="HEAD"), got(400, content=b"")),
    where(ways=["http1", "http2"]),
    # conditions and ranges
    stored("If-None-Match before If-Modified-Since", 200, 'If-None-Match: "b"', SINCE),
    stored("If-Modified-Since alone", 304, SINCE),
    stored("an older If-Modified-Since", 200, f"If-Modified-Since: {date(-101)}"),
    stored("If-Modified-Since that is no date", 200, "If-Modified-Since: yesterday"),
    stored("a condition before a range holds", 206, 'If-None-Match: "b"', "Range: bytes=0-1"),
    stored("a condition before a range does not hold", 304, 'If-None-Match: "a"', "Range: bytes=0-1"),
    stored("bytes=2-3 of a GET", 206, "Range: bytes=2-3", sees=["content-range: bytes 2-3/10"]),
    stored("bytes=3-2 of a GET", 200, "Range: bytes=3-2", sees=["-content-range"]),
    stored("lines=2-3 of a GET", 200, "Range: lines=2-3", sees=["-content-range"]),
    stored("bytes=2-3 of a HEAD", 200, "Range: bytes=2-3", sees=["-content-range"], method="HEAD"),
    stored("bytes=10- of a GET", 416, "Range: bytes=10-", sees=["content-range: bytes */10"]),
    stored("fields of the 200 in a 206", 206, "Range: bytes=0-1", sees=WHOLE),
    stored("fields of the 200 in a 304", 304, 'If-None-Match: "a"', sees=WHOLE[:-1]),
    stored("fields of the 200 in a 200", 200, sees=WHOLE),
    row("If-Range without Range", miss(FRESH, TAG), hit(asked=['If-Range: "b"'])),
    "If-Range with Range",
    *(miss(FRESH, TAG), hit(asked=['If-Range: "a"', "Range: bytes=0-1"], status=206, content=BODY[:2])),
    parts_of("bytes=0-1,8-9", b"0-1/10", b"8-9/10"),
    parts_of("bytes=8-9,0-1", b"8-9/10", b"0-1/10"),
    part_in("lines", "0-1/5", is_reused=False),
    part_in("bytes", "0-1/10", is_reused=True),
]


@pytest.mark.parametrize("row", every(ROWS))
async def test_clauses_are_kept_on_every_way_in(row):
    await play(row, ["whole"])
