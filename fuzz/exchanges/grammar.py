"""Clients and the origin server act by chance: a scenario is a list of steps, and steps are data."""

from __future__ import annotations

import itertools
import random
from email.utils import formatdate
from typing import Any, NamedTuple, TypeAlias

HOST = b"en.example"
START = 1_790_000_000
LANGUAGES = (b"de", b"ru")
VERSIONS = 4
POISON = b"POISON"

# The canonical target of each spelling.
SPELLINGS = {
    b"/a": b"/a",
    b"/%61": b"/a",
    b"/b?x=1": b"/b?x=1",
    b"/b?x=2": b"/b?x=2",
    b"http://en.example/a": b"/a",
    b"/large": b"/large",
}
TARGETS = (*[b"/a"] * 8, b"/%61", b"/b?x=1", b"/b?x=2", b"http://en.example/a", b"/large")

RULES: tuple[dict[str, Any], ...] = (
    {},
    {"heuristic": True},
    {"ordinary_fields": ["x-id"], "ttl": 30},
    {"ordinary_fields": ["x-id"], "ttl": 30, "keep_cookies": ["a"], "grace": 20},
    {"grace": 20},
    {"client_directives": "ignore"},
    {"errors": "explicit", "set_cookie": "explicit"},
    # The number of each request is no field of its own: what it brings holds for all.
    {"ordinary_fields": ["x-id"]},
    {"ordinary_fields": ["x-id"], "grace": 20},
)


class Ask(NamedTuple):
    """A client asks; `fields` are without Host, X-Id and framing."""

    client: int
    method: bytes
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    content: bytes | None
    old: bool  # HTTP/1.0
    cuts: int  # into how many pieces the request is cut
    mutation: int  # the seed of what is changed; 0: nothing


class Reply(NamedTuple):
    """The origin server answers the request that is number `which` of those it has not answered."""

    which: int
    kind: str
    fields: tuple[tuple[bytes, bytes], ...]
    varies: bool
    confirms: str  # the Vary of a 304, made by software that never saw the content; "": as of a 200
    framing: str
    weak: bool
    interims: tuple[int, ...]
    cuts: int
    at_once: int  # how many pieces go out in this step
    mutation: int


Step: TypeAlias = Ask | Reply | tuple[str, Any]


class Scenario(NamedTuple):
    rules: dict[str, Any]
    max_object: int
    steps: list[Step]


def tag(target: bytes, version: int, language: bytes, who: bytes) -> bytes:
    return b'"%b.%d.%b.%b"' % (target.strip(b"/"), version, language, who)


def modified(version: int) -> bytes:
    return day(START - 100_000 + 1000 * version)


def day(seconds: float) -> bytes:
    return formatdate(seconds, usegmt=True).encode()


def one(chance: random.Random, *values: Any) -> Any:
    return chance.choice(values)


# Clients


def conditions(chance: random.Random, target: bytes) -> list[tuple[bytes, bytes]]:
    tags = [tag(target, chance.randrange(1, VERSIONS), one(chance, b"", *LANGUAGES), b"-") for _ in range(2)]
    match chance.randrange(8):
        case 0:
            return [(b"if-none-match", b"*")]
        case 1 | 2:
            return [(b"if-none-match", b", ".join(tags))]
        case 3:
            return [(b"if-none-match", b"W/" + tags[0])]
        case 4:
            return [(b"if-modified-since", modified(chance.randrange(VERSIONS)))]
        case 5:
            return [(b"if-match", tags[0])]
        case 6:
            return [(b"if-unmodified-since", modified(chance.randrange(VERSIONS)))]
        case _:
            return [(b"if-none-match", tags[0]), (b"if-modified-since", modified(0))]


def ranges(chance: random.Random, target: bytes) -> list[tuple[bytes, bytes]]:
    start = chance.randrange(60)
    fields = [
        (
            b"range",
            one(
                chance,
                b"bytes=0-9",
                b"bytes=%d-" % start,
                b"bytes=%d-%d" % (start, start + chance.randrange(60)),
                b"bytes=-%d" % (start + 1),
                b"bytes=0-4,8-12",
                b"bytes=100000-",
                b"bytes=9-0",
                b"lines=1-2",
            ),
        )
    ]
    if chance.random() < 0.3:
        validator = one(chance, tag(target, 1, b"", b"-"), tag(target, 2, b"", b"-"), modified(1))
        fields.append((b"if-range", validator))
    return fields


REQUEST_CONTROL = (
    b"no-cache no-store max-age=0 max-age=5 min-fresh=5 max-stale max-stale=10 only-if-cached "
    b"stale-if-error=60 max-age=0,max-stale no-store,no-cache"
).split()
ODD = (
    (b"connection", b"x-hop, cache-control"),
    (b"te", b"trailers, gzip;q=0.5"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-authorization", b"Basic secret"),
    (b"upgrade", b"h2c"),
    (b"x-forwarded-host", b"evil.example"),
    (b"x-http-method-override", b"DELETE"),
    (b"accept-encoding", b"gzip"),
    (b"cookie", b"a=b"),
    (b"pragma", b"no-cache"),
    (b"max-forwards", b"0"),
)


def ask(chance: random.Random) -> Ask:
    method = chance.choices(
        (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PURGE", b"NONSENSE"),
        (76, 12, 5, 1, 1, 1, 2, 1),
    )[0]
    spelled = chance.choice(TARGETS)
    target = SPELLINGS[spelled]
    fields: list[tuple[bytes, bytes]] = []
    if chance.random() < 0.25:
        fields += conditions(chance, target)
    if chance.random() < 0.2:
        fields += ranges(chance, target)
    if chance.random() < 0.25:
        fields.append((b"accept-language", chance.choice(LANGUAGES)))
    if chance.random() < 0.15:
        fields.append((b"cache-control", chance.choice(REQUEST_CONTROL)))
    if chance.random() < 0.12:
        fields.append((b"authorization", one(chance, b"Basic anne", b"Basic otto")))
    for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
        fields.append(chance.choice(ODD))
    if (b"connection", b"x-hop, cache-control") in fields:
        fields.append((b"x-hop", b"secret"))
    if chance.random() < 0.08:
        fields.append((b"connection", b"close"))
    content = None
    if method in {b"POST", b"PUT"} or chance.random() < 0.03:
        content = b"content of %d;" % chance.randrange(1000) * chance.choice((0, 1, 5))
        if chance.random() < 0.2:
            fields.append((b"expect", b"100-continue"))
    return Ask(
        chance.randrange(4),
        method,
        spelled,
        tuple(fields),
        content,
        old=chance.random() < 0.05,
        cuts=one(chance, 1, 1, 1, 2, 4),
        mutation=chance.getrandbits(32) if chance.random() < 0.02 else 0,
    )


# The origin server

CONTROL = (
    b"max-age=60",
    b"max-age=60",
    b"max-age=60",
    b"max-age=4",
    b"max-age=4",
    b"s-maxage=60, max-age=0",
    b"public, max-age=60",
    b"public",
    b"max-age=60, must-revalidate",
    b"max-age=4, stale-while-revalidate=30",
    b"max-age=4, stale-if-error=60",
    b"no-cache",
    b"no-store",
    b"no-store, max-age=60",
    b"private",
    b"private, max-age=60",
    b"Private, s-maxage=60",
    b'private="x-own", max-age=60',
    b"no-cache, no-store",
    b"must-understand, no-store, max-age=60",
    b"max-age=60, proxy-revalidate",
    b"max-age=x",
    b"",
)


# The Vary of responses whose content differs by language, and what a 304 says in its place.
VARY = b"Accept-Encoding, Accept-Language"
VARIES = ("Accept-Encoding", "Cookie", "Accept-Language, Accept-Encoding, Cookie")

# Faults of old origin servers that nobody can read in two ways.
OLD = ("bare LF", "length twice", "blank chunks")


def reply(chance: random.Random) -> Reply:
    fields: list[tuple[bytes, bytes]] = []
    control = chance.choice(CONTROL)
    if control:
        fields.append((b"Cache-Control", control))
    if chance.random() < 0.1:
        fields.append((b"Expires", one(chance, b"0", day(START + 60), day(START - 60), day(START + 600))))
    if chance.random() < 0.5:
        fields.append((b"Date", day(START + chance.randrange(-20, 100))))
    if chance.random() < 0.15:
        fields.append((b"Age", one(chance, b"0", b"3", b"50", b"x", b"1000")))
    if chance.random() < 0.1:
        fields += [(b"Connection", b"x-hop"), (b"X-Hop", b"secret"), (b"Keep-Alive", b"timeout=5")]
    if chance.random() < 0.05:
        fields.append((b"Proxy-Authenticate", b"Basic"))
    if chance.random() < 0.08:
        fields.append((b"Set-Cookie", b"a=b"))
    if chance.random() < 0.05:
        fields.append((b"Content-Location", chance.choice((b"/a", b"/b?x=1"))))
    if chance.random() < 0.05:
        fields.append((b"Vary", one(chance, b"*", b"accept-encoding", b"Cookie")))
    kind = chance.choices(
        ("honest", "500", "503", "404", "302", "204", "304", "whole", "misplaced", "416", "412", "299"),
        (80, 4, 3, 4, 2, 3, 2, 3, 2, 1, 1, 2),
    )[0]
    framing = chance.choices(
        ("length", "chunked", "close", "short", "short chunks", "surplus", "late surplus", "reset", *OLD),
        (42, 24, 6, 6, 4, 4, 10, 2, 2, 2, 2),
    )[0]
    return Reply(
        chance.randrange(4),
        kind,
        tuple(fields),
        varies=chance.random() < 0.25,
        confirms=one(chance, "", "", "", *VARIES),
        framing=framing,
        weak=chance.random() < 0.1,
        interims=chance.choice(((), (), (), (), (103,), (100, 103))),
        cuts=one(chance, 1, 1, 2, 3, 6),
        at_once=one(chance, 9, 9, 9, 0, 1, 2),
        mutation=chance.getrandbits(32) if chance.random() < 0.03 else 0,
    )


def scenario(chance: random.Random) -> Scenario:
    steps: list[Step] = []
    for _ in range(chance.randrange(4, 60)):
        match chance.choices(
            ("ask", "reply", "more", "wait", "leave", "full", "drain", "change", "purge", "break"),
            (40, 40, 10, 6, 2, 2, 3, 3, 2, 1),
        )[0]:
            case "ask":
                steps.append(ask(chance))
            case "reply":
                steps.append(reply(chance))
            case "wait":
                steps.append(("wait", one(chance, 0.5, 2, 3, 6, 30, 70)))
            case "change" | "purge" as change:
                steps.append((change, chance.choice((b"/a", b"/a", b"/b?x=1", b"/large"))))
            case "leave":
                client = chance.randrange(4)
                steps.append(("leave" if client else "end", client))
            case kind:
                steps.append((kind, chance.randrange(4)))
    return Scenario(chance.choice(RULES), chance.choice((100_000, 100_000, 500, 90)), steps)


# Octets


def mutated(octets: bytes, seed: int) -> bytes:
    """The octets with a few changes."""
    chance = random.Random(seed)  # noqa: S311
    data = bytearray(octets)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                del data[at : at + chance.choice((1, 1, 2, 8))]
            case 1:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                data[at:at] = one(chance, b"\r\n", b"\n", b" ", b":", b"0", b"\0", b",", b"\r\n ", b"\t")
            case 3:
                end = min(len(data), at + chance.randrange(40))
                data[at:at] = data[at:end]
            case _:
                lines = octets.partition(b"\r\n\r\n")[0].split(b"\r\n")
                at = len(b"\r\n".join(lines[: chance.randrange(1, len(lines) + 1)])) + 2
                data[at:at] = one(
                    chance,
                    b"Content-Length: 3\r\n",
                    b"Transfer-Encoding: chunked\r\n",
                    b"Transfer-Encoding: x\r\n",
                    b"Content-Length: 5\r\nContent-Length: 5\r\n",
                )
    return bytes(data)


def pieces(octets: bytes, count: int, chance: random.Random) -> list[bytes]:
    """The octets in so many pieces at most."""
    places = sorted({0, len(octets), *(chance.randrange(len(octets) + 1) for _ in range(count - 1))})
    return [octets[a:b] for a, b in itertools.pairwise(places)]
