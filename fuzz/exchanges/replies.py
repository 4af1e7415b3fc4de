"""The played origin server's answer to a request: honest, in an odd way, or wrong."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from fuzz.exchanges.grammar import POISON, VARY, Reply, modified, mutated, pieces, tag
from fuzz.exchanges.messages import Lines, Message, unstorable

SURPLUS = b"HTTP/1.1 200 OK\r\nX-Poison: %b\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\n%b" % (
    POISON,
    POISON,
)
SAFE = {b"GET", b"HEAD", b"OPTIONS", b"TRACE"}
ONE_RANGE = re.compile(rb"bytes=([0-9]*)-([0-9]*)")


class Of(NamedTuple):
    """A representation: of what it is, and for whom; "-" is everybody."""

    target: bytes
    version: int
    language: bytes
    who: bytes

    @property
    def told(self) -> bytes:
        return b"%b;%d;%b;%b" % self

    @property
    def tag(self) -> bytes:
        return tag(*self)

    @property
    def content(self) -> bytes:
        """Every piece of it says of what it is."""
        length = 900 if self.target == b"/large" else 30 + self.version * 37 % 90
        cell = b"[%b]" % self.told
        return (cell * (length // len(cell) + 1))[:length]

    @classmethod
    def read(cls, told: bytes) -> Of:
        target, version, language, who = told.split(b";")
        return cls(target, int(version), language, who)


class Sending(NamedTuple):
    """A response on its way: its octets in pieces, and what follows them."""

    pieces: list[bytes]
    surplus: bytes  # octets behind the response, in a piece of their own
    end: str  # of the connection: "", "close" or "reset"
    status: int
    of: Of
    changes: bool  # what was stored of the target is obsolete
    mutated: bool
    honest: bool


def sending(
    reply: Reply, number: int, request: Message, versions: dict[bytes, int], *, heeds: bool
) -> Sending:
    """The response to a request; one that is not to be stored is for who asked alone, and says so."""
    target = request.target
    status = 200
    if reply.kind.isdigit():
        status = int(reply.kind)
    changes = request.method not in SAFE and status < 400
    if changes and target in versions:
        versions[target] += 1
    language = (request.field(b"accept-language") or b"none") if reply.varies else b""
    of = Of(target, versions.get(target, 0), language, b"-")
    described = [(name.lower(), value) for name, value in reply.fields]
    begun = Message(b"HTTP/1.1 %d " % status, described, b"", True, 0)
    if not reply.mutation and unstorable(request, begun, heeds=heeds):
        of = of._replace(who=request.field(b"x-id") or b"?")
    vary = VARY if reply.varies else b""
    confirmed = _confirmed(request, of) if reply.confirms else None
    if confirmed is not None and _selected(reply, status, request, confirmed)[0] == 304:
        of, vary = confirmed, reply.confirms.encode()
    status, extra, content = _selected(reply, status, request, of)
    fields: Lines = [(b"X-Reply", b"%d" % number), (b"X-Of", of.told), *reply.fields, *extra]
    if vary:
        fields.append((b"Vary", vary))
    return _framed(reply, number, request, (status, fields, content), of, changes=changes)


def _selected(reply: Reply, status: int, request: Message, of: Of) -> tuple[int, Lines, bytes]:
    """The status, what it says of its content, and that, by the request's conditions and range."""
    etag = b"W/" + of.tag if reply.weak else of.tag
    validators: Lines = [(b"ETag", etag), (b"Last-Modified", modified(of.version))]
    content = of.content
    reading = request.method in {b"GET", b"HEAD"}
    if reply.kind == "302":
        return 302, [(b"Location", b"/b?x=1")], content
    if reply.kind == "misplaced" and request.method == b"GET":
        return 206, [*validators, (b"Content-Range", b"bytes 5-14/%d" % len(content))], content[5:15]
    if reply.kind == "416":
        return 416, [(b"Content-Range", b"bytes */%d" % len(content))], b""
    if reply.kind == "honest" and reading:
        match, known = request.field(b"if-match"), request.field(b"if-none-match")
        since = request.field(b"if-modified-since")
        if match is not None and of.tag not in match:
            return 412, [], content
        if known is not None and (known == b"*" or of.tag in known):
            return 304, validators, b""
        if known is None and since == modified(of.version):
            return 304, validators, b""
        if (part := _part(request, etag, len(content))) is not None:
            start, stop = part
            if start >= stop:
                return 416, [(b"Content-Range", b"bytes */%d" % len(content))], b""
            held = b"bytes %d-%d/%d" % (start, stop - 1, len(content))
            return 206, [*validators, (b"Content-Range", held)], content[start:stop]
    return status, validators, content


def _confirmed(request: Message, of: Of) -> Of | None:
    """The representation for everybody, or in the language asked for, that the request's condition names."""
    known = request.field(b"if-none-match") or b""
    both = (of._replace(language=each) for each in (b"", request.field(b"accept-language") or b"none"))
    return next((each for each in both if each.tag in known), None)


def _part(request: Message, etag: bytes, length: int) -> tuple[int, int] | None:
    """The octets that are asked for, the second exclusive; None: all."""
    asked = ONE_RANGE.fullmatch(request.field(b"range") or b"")
    condition = request.field(b"if-range")
    if request.method != b"GET" or asked is None or condition not in {None, etag} or asked[0] == b"bytes=-":
        return None
    if not asked[1]:
        return max(0, length - int(asked[2])), length
    start, last = int(asked[1]), int(asked[2] or length)
    return None if last < start else (start, min(last + 1, length))


def _framed(
    reply: Reply, number: int, request: Message, response: tuple[int, Lines, bytes], of: Of, *, changes: bool
) -> Sending:
    status, fields, content = response
    chance = random.Random(number)  # noqa: S311
    bodiless = request.method == b"HEAD" or status in {204, 304}
    whole, end, surplus = content, "", b""
    match reply.framing:
        case "chunked" | "short chunks" | "blank chunks" if status not in {204, 304}:
            fields = [*fields, (b"Transfer-Encoding", b"chunked")]
            whole = _chunked(content, reply.framing, chance)
            end = "close" if reply.framing == "short chunks" else ""
        case "close" if not bodiless:
            end = "close"
        case framing if status not in {204, 304}:
            length = (b"Content-Length", b"%d" % len(content))
            fields = [*fields, length, *([length] if framing == "length twice" else [])]
            if framing in {"short", "reset"}:
                whole, end = content[: len(content) // 2], "close" if framing == "short" else "reset"
    if not (end or reply.mutation) and (
        reply.framing in {"surplus", "late surplus"} or (bodiless and chance.random() < 0.3)
    ):
        surplus = chance.choice((content, b"", b"")) * bodiless + SURPLUS
    head = b"".join(b"%b: %b\r\n" % field for field in fields)
    interims = b"".join(b"HTTP/1.1 %d Odd\r\nLink: </x>\r\n\r\n" % each for each in reply.interims)
    head = b"HTTP/1.1 %d Odd\r\n%b\r\n" % (status, head)
    if reply.framing == "bare LF":
        head = head.replace(b"\r\n", b"\n")
    octets = interims + head + (b"" if bodiless else whole)
    if reply.mutation:
        octets = mutated(octets, reply.mutation)
    honest = reply.kind == "honest"
    sent = pieces(octets, reply.cuts, chance)
    if reply.framing == "surplus":  # with the last octets, so that nobody has been asked for more in between
        sent[-1], surplus = sent[-1] + surplus, b""
    return Sending(sent, surplus, end, status, of, changes, bool(reply.mutation), honest)


def _chunked(content: bytes, framing: str, chance: random.Random) -> bytes:
    """The content in chunks; the last one lacks where it is to be short."""
    parts = pieces(content, chance.choice((1, 2, 5)), chance)
    blank = b" " if framing == "blank chunks" else b""
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), blank, part) for part in parts if part)
    return chunks if framing == "short chunks" else chunks + b"0\r\n\r\n"
