"""Both doors answer alike: the same octets, the same Outcomes, the same questions to the origin server."""

import dataclasses

from examples import LONG
from tests.server.conftest import RUNTIMES, octets, thirds, whole
from univocal.cache.stored import Stored

HOST = b"Host: a.example\r\n"
BROWSER = (
    b"Host: a.example\r\nConnection: keep-alive\r\nsec-ch-ua-mobile: ?0\r\nUpgrade-Insecure-Requests: 1\r\n"
    b"User-Agent: Mozilla/5.0\r\nAccept: text/html,*/*;q=0.8\r\nSec-Fetch-Site: none\r\n"
    b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
    b"Accept-Encoding: gzip, br\r\nAccept-Language: de, en;q=0.5\r\nCookie: a=b; _ga=1\r\n"
)


def get(target=b"/fresh", fields=b"", *, host=HOST, method=b"GET", version=b"HTTP/1.1", body=b""):
    return method + b" " + target + b" " + version + b"\r\n" + host + fields + b"\r\n" + body


STORED = [
    b"/fresh", b"/a/b", b"/stale", b"/swr", b"/no-cache", b"/vary", b"/lang", b"/search?q=1", b"/tags",
    b"/no-tags", b"/404", b"/301", b"/204", b"/empty", b"/big", b"/large", b"/streamed", b"/aged",
    b"/no-store", b"/error",
]  # fmt: skip

WARMING = [
    *(get(target) for target in STORED),
    get(b"/vary", b"Accept-Encoding: gzip\r\n"),
    get(b"/vary", b"Accept-Encoding: gzip\r\nAccept-Language: de\r\nCookie: a=b\r\n"),
    get(b"/fresh", host=b"Host: c.example\r\n"),
    get(b"/fresh", host=b"Host: other.example\r\n"),
]

CASES = {
    **{f"stored {target.decode()}": get(target) for target in STORED},
    **{f"a browser's {target.decode()}": get(target, host=BROWSER) for target in STORED},
    **{f"head of {target.decode()}": get(target, method=b"HEAD") for target in STORED},
    **{f"not stored {each}": get(b"/unknown%d" % each) for each in range(2)},
    "streamed, not stored": get(b"/no-store-streamed"),
    "streamed, to HTTP/1.0": get(b"/no-store-streamed", version=b"HTTP/1.0"),
    # selecting fields
    "vary: gzip": get(b"/vary", b"Accept-Encoding: gzip\r\n"),
    "vary: gzip, spelled otherwise": get(b"/vary", b"ACCEPT-encoding:\t GZIP;q=1.0 \t\r\n"),
    "vary: all three": get(b"/vary", b"Accept-Encoding: gzip\r\nAccept-Language: de\r\nCookie: a=b\r\n"),
    "vary: none of them": get(b"/vary", b"Accept-Encoding: br\r\nCookie: c=d\r\n"),
    "vary: repeated": get(b"/vary", b"Accept-Encoding: gzip\r\nAccept-Encoding: gzip\r\n"),
    "vary: repeated in two spellings": get(b"/vary", b"Accept-Encoding: gzip\r\naccept-encoding: br\r\n"),
    "vary: empty": get(b"/vary", b"Accept-Encoding:\r\n"),
    "language": get(b"/lang", b"Accept-Language: en;q=0.5, de\r\n"),
    "search: another parameter": get(b"/search?utm=1&q=1"),
    "search: another question": get(b"/search?q=2"),
    # the target
    "dot segments": get(b"/a/../a/./b"),
    "escaped": get(b"/%66resh"),
    "escaped slash": get(b"/a%2fb"),
    "escaped dot": get(b"/x/%2e%2E/fresh"),
    "doubled slash": get(b"/a//b"),
    "backslash": get(b"/a\\b"),
    "parameter": get(b"/fresh;x=1"),
    "fragment": get(b"/fresh#x"),
    "above the root": get(b"/../../fresh"),
    "bad escape": get(b"/fresh%zz"),
    "overlong": get(b"/%c0%ae%c0%ae/fresh"),
    "absolute-form": get(b"http://a.example/fresh"),
    "absolute-form of another scheme": get(b"https://a.example/fresh"),
    "absolute-form with a port": get(b"HTTP://A.example:80/fresh", host=b"Host: evil.example\r\n"),
    "asterisk-form": get(b"*", method=b"OPTIONS"),
    "question mark alone": get(b"/fresh?"),
    "long target": get(b"/" + b"a" * 8000),
    "longer than may be": get(b"/" + b"a" * 8192),
    # the host
    "host in capitals, with its port": get(host=b"HOST: A.EXAMPLE:80\r\n"),
    "another host": get(host=b"Host: other.example\r\n"),
    "an alias": get(host=b"Host: b.example\r\n"),
    "an alias that is answered": get(host=b"Host: d.example\r\n"),
    "two hosts of one spelling": get(host=HOST + HOST),
    "two hosts of two spellings": get(host=HOST + b"host: b.example\r\n"),
    "no host": get(host=b""),
    "empty host": get(host=b"Host:\r\n"),
    "bad host": get(host=b"Host: a@b\r\n"),
    "endless host": get(host=b"Host: " + b"a." * 200 + b"example\r\n"),
    "blank behind the host": get(host=b"Host: a.example \t\r\n"),
    # what a proxy in front says
    "forwarded for": get(fields=b"X-Forwarded-For: 203.0.113.1, 198.51.100.7\r\n"),
    "forwarded host": get(fields=b"X-Forwarded-Host: other.example\r\nX-Forwarded-Proto: http\r\n"),
    "forwarded proto": get(fields=b"X-Forwarded-Proto: https\r\n"),
    "forwarded": get(fields=b'Forwarded: for=203.0.113.1;host=other.example;proto="http"\r\n'),
    "forwarded host twice": get(fields=b"X-Forwarded-Host: a.example\r\nX-Forwarded-Host: other.example\r\n"),
    "forwarded host that is none": get(fields=b"X-Forwarded-Host: a/b\r\n"),
    "forwarded host instead of none": get(host=b"X-Forwarded-Host: a.example\r\n"),
    "forwarded host instead of a bad one": get(host=b"Host: a@b\r\nX-Forwarded-Host: a.example\r\n"),
    "forwarded host instead of an endless one": get(
        host=b"Host: " + b"a." * 200 + b"example\r\nX-Forwarded-Host: a.example\r\n"
    ),
    "declared encoding": get(fields=b"URI-Path-Encoding: UTF-8\r\n"),
    # cookies
    "a cookie": get(fields=b"Cookie: a=b\r\n"),
    "a session": get(fields=b"Cookie: session=1\r\n"),
    "a cookie that is stripped": get(b"/vary", b"Cookie: _ga=1\r\n"),
    # conditions, ranges, directives
    "etag": get(fields=b'If-None-Match: "f"\r\n'),
    "another etag": get(fields=b'If-None-Match: "g"\r\n'),
    "etag of what is stale": get(b"/stale", b'If-None-Match: "s"\r\n'),
    "etag of what is not stored": get(b"/unknown9", b'If-None-Match: "s"\r\n'),
    "since": get(fields=b"If-Modified-Since: Mon, 21 Sep 2026 14:12:50 GMT\r\n"),
    "if-match": get(fields=b'If-Match: "f"\r\n'),
    "range": get(fields=b"Range: bytes=2-4\r\n"),
    "ranges": get(fields=b"Range: bytes=0-1, 4-5\r\n"),
    "range beyond": get(fields=b"Range: bytes=90-\r\n"),
    "range of much": get(b"/big", b"Range: bytes=100000-\r\n"),
    "if-range": get(fields=b'Range: bytes=2-4\r\nIf-Range: "g"\r\n'),
    "no-cache": get(fields=b"Cache-Control: no-cache\r\n"),
    "max-age=0": get(fields=b"Cache-Control: max-age=0\r\n"),
    "only-if-cached": get(b"/unknown8", b"Cache-Control: only-if-cached\r\n"),
    "pragma": get(fields=b"Pragma: no-cache\r\n"),
    "authorization": get(fields=b"Authorization: Basic eA==\r\n"),
    # the connection
    "keep-alive": get(fields=b"Connection: Keep-Alive\r\n"),
    "close": get(fields=b"Connection: close\r\n"),
    "close and keep-alive": get(fields=b"Connection: close, keep-alive\r\n"),
    "empty connection": get(fields=b"Connection:\r\n"),
    "a named field": get(b"/vary", b"Connection: accept-encoding\r\nAccept-Encoding: gzip\r\n"),
    "proxy-connection": get(fields=b"Proxy-Connection: close\r\n"),
    "proxy-connection: keep-alive": get(fields=b"Proxy-Connection: keep-alive\r\n"),
    "HTTP/1.0": get(version=b"HTTP/1.0"),
    "HTTP/1.0 that is kept": get(fields=b"Connection: keep-alive\r\n", version=b"HTTP/1.0"),
    "upgrade": get(fields=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
    "upgrade alone": get(fields=b"Upgrade: h2c\r\n"),
    "te": get(fields=b"TE: trailers\r\nTrailer: x\r\n"),
    "max-forwards": get(fields=b"Max-Forwards: 0\r\n"),
    "a hundred fields": get(fields=b"".join(b"x-%d: y\r\n" % each for each in range(99))),
    "a hundred and one": get(fields=b"".join(b"x-%d: y\r\n" % each for each in range(100))),
    "an empty field": get(fields=b"X-Empty:\r\n"),
    "field octets": get(fields=b"X-Any: \xc3\xa9\xff \r\n"),
    "much in one field": get(fields=b"X: " + b"y" * 20_000 + b"\r\n"),
    # content
    "post": get(b"/unknown5", b"Content-Length: 3\r\n", method=b"POST", body=b"abc"),
    "post in chunks": get(
        b"/fresh", b"Transfer-Encoding: chunked\r\n", method=b"POST", body=b"3\r\nabc\r\n0\r\nT: u\r\n\r\n"
    ),
    "post without content": get(b"/a/b", b"Content-Length: 0\r\n", method=b"POST"),
    "get with content": get(fields=b"Content-Length: 3\r\n", body=b"abc"),
    "get with a length of 0": get(fields=b"Content-Length: 0\r\n"),
    "expect": get(b"/a", b"Expect: 100-continue\r\nContent-Length: 3\r\n", method=b"PUT", body=b"abc"),
    "expect without content": get(fields=b"Expect: 100-continue\r\n"),
    "expect something else": get(fields=b"Expect: more\r\n"),
    "refused with content": get(
        b"/%zz", b"Content-Length: 3\r\n", host=HOST + b"X: y\r\n", method=b"POST", body=b"abc"
    ),
    "purge": get(method=b"PURGE"),
    "unknown method": get(method=b"QUERY"),
    "options": get(method=b"OPTIONS"),
    # what is no request
    "bare LF": get().replace(b"\r\n", b"\n"),
    "obs-fold": get(fields=b"X: a\r\n b\r\n"),
    "bare CR": get(fields=b"X: a\rb\r\n"),
    "NUL": get(fields=b"X: a\x00b\r\n"),
    "no colon": get(fields=b"Xa\r\n"),
    "two blanks": get().replace(b"GET /", b"GET  /"),
    "blank behind the version": get().replace(b"1.1\r\n", b"1.1 \r\n", 1),
    "HTTP/1.2": get(version=b"HTTP/1.2"),
    "HTTP/2.0": get(version=b"HTTP/2.0"),
    "lower case": get(method=b"get"),
    "empty lines before": b"\r\n\r\n" + get(),
    "two requests": get() + get(b"/a/b"),
    "two halves": get() + get(b"/a/b")[:-2],
    "a request behind content": get(b"/a", b"Content-Length: 3\r\n", method=b"POST", body=b"abc") + get(),
}


def twice(data):
    return [data + data]


def behind(data):
    return [get(b"/held"), data]


WAYS = [whole, octets if LONG else thirds, twice, behind]


def ways_of(runtime, name):
    """The ways in which this runtime is fed the case; in `make test` there is one, by turns."""
    turn = (list(CASES).index(name) + list(RUNTIMES.values()).index(runtime)) % 4
    return WAYS if LONG else WAYS[turn : turn + 1]


def described(outcome):
    """An Outcome as it can be compared: times aside, stored responses by what is in them."""
    decision = outcome.decision
    parts = [getattr(decision, name) for name in getattr(decision, "__match_args__", ())]
    told = [(each.key, each.head, each.body) if isinstance(each, Stored) else each for each in parts]
    rest = {each.name: getattr(outcome, each.name) for each in dataclasses.fields(outcome)}
    return {**rest, "times": None, "decision": (type(decision), told)}


async def test_the_doors_answer_alike(door, runtime, comparable):
    doors = [door(runtime, direct=direct) for direct in (False, True)]
    for each in doors:
        await each.warm(WARMING)
    differ = {}
    for name, data, way in [(*case, way) for case in CASES.items() for way in ways_of(runtime, case[0])]:
        pieces = whole(data) if way is octets and len(data) > 1000 else way(data)
        seen = []
        for each in doors:
            each.outcomes.clear()
            each.origin.asked.clear()
            client = each.client()
            await client.feed(*pieces)
            each.origin.let()
            await client.settle()
            asked = [request.parts for request in each.origin.asked if request.is_complete]
            # Behind the engine the next request is begun by the end of the one before.
            told = sorted(map(described, each.outcomes), key=lambda told: told["received"].target)
            seen.append((comparable(bytes(client.transport.sent)), client.open, told, asked))
            client.hang_up()
            await client.settle()
        if seen[0] != seen[1]:
            differ[name, way] = [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]]
    assert list(differ.items()) == []
