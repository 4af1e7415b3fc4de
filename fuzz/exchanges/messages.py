"""Messages and RFC 9111 §3 read a second time, apart from the program: nothing here imports univocal.

It forgives what cannot be read in two ways (a bare LF, blanks around a value), since it is asked for what
octets mean, not for whether they are well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeAlias

Lines: TypeAlias = list[tuple[bytes, bytes]]

LINE_END = re.compile(rb"\r?\n")
CHUNK = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r\n]*)?\r?\n")
TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
MEMBER = re.compile(rb'(?:[^",]|"[^"]*")+')
# RFC 9110 §15.1
HEURISTIC = {200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501}
UNDERSTOOD = {*range(200, 207), *range(300, 309), *range(400, 419), 421, 422, 426, 451, *range(500, 506)}


class UnreadableError(Exception):
    """These octets are no message."""


class Message(NamedTuple):
    """One message; `complete` says that all of its content is there."""

    start: bytes
    fields: Lines
    content: bytes
    complete: bool
    at: int  # where it begins in its stream
    end: int = 0  # and where it ends
    interims: tuple[int, ...] = ()

    @property
    def status(self) -> int:
        return int(self.start.split(b" ", 2)[1])

    @property
    def method(self) -> bytes:
        return self.start.split(b" ", 1)[0]

    @property
    def target(self) -> bytes:
        return self.start.split(b" ", 2)[1]

    def every(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    def field(self, name: bytes) -> bytes | None:
        found = self.every(name)
        return b", ".join(found) if found else None

    @property
    def directives(self) -> dict[bytes, bytes | None]:
        return directives(self.every(b"cache-control"))


def head(octets: bytes, at: int) -> tuple[bytes, Lines, int] | None:
    """The start line, the fields, and where the content begins; None if the head is not all there."""
    lines: list[bytes] = []
    while True:
        found = LINE_END.search(octets, at)
        if found is None:
            return None
        line, at = octets[at : found.start()], found.end()
        if line:
            lines.append(line)
        elif lines:
            break
    fields = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.fullmatch(name) or b"\0" in value or b"\r" in value:
            raise UnreadableError(f"{line!r} is no field")
        fields.append((name.lower(), value.strip(b" \t")))
    return lines[0], fields, at


def chunked(octets: bytes, at: int) -> tuple[bytes, int, bool]:
    """The content, where it ends, and whether that is its end."""
    content = b""
    while found := CHUNK.match(octets, at):
        size, at = int(found[1], 16), found.end()
        if size == 0:
            while end := LINE_END.search(octets, at):
                line, at = octets[at : end.start()], end.end()
                if not line:
                    return content, at, True
            return content, len(octets), False
        content += octets[at : at + size]
        end = LINE_END.match(octets, at + size)
        if end is None:
            if octets[at + size : at + size + 2] not in {b"", b"\r"}:
                raise UnreadableError("a chunk is longer than it says")
            return content, len(octets), False
        at = end.end()
    if LINE_END.search(octets, at):
        raise UnreadableError(f"{octets[at : at + 20]!r} is no chunk")
    return content, len(octets), False


def body(
    fields: Lines, octets: bytes, at: int, *, closed: bool, until_close: bool
) -> tuple[bytes, int, bool]:
    """The content that these fields announce, where it ends, and whether that is its end."""
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    lengths = {value for name, value in fields if name == b"content-length"}
    if codings:
        if codings != [b"chunked"] or lengths:
            raise UnreadableError("framed in two ways, or in none that is known")
        return chunked(octets, at)
    if lengths:
        (length, *others) = lengths
        if others or not length.isdigit():
            raise UnreadableError("the length is no number, or two")
        end = at + int(length)
        return octets[at:end], min(end, len(octets)), end <= len(octets)
    return (octets[at:], len(octets), closed) if until_close else (b"", at, True)


def requests(octets: bytes) -> list[Message]:
    """The requests in a stream; the last one perhaps incomplete."""
    found, at = [], 0
    while begun := head(octets, at):
        start, fields, end = begun
        content, end, complete = body(fields, octets, end, closed=False, until_close=False)
        found.append(Message(start, fields, content, complete, at, end))
        at = end
        if not complete:
            break
    return found


def responses(octets: bytes, methods: Sequence[bytes], *, closed: bool) -> tuple[list[Message], int]:
    """The final responses in a stream to requests with these methods, and where what is none begins."""
    found: list[Message] = []
    at, interims = 0, ()
    begins = 0
    while len(found) < len(methods) and (begun := head(octets, at)):
        start, fields, end = begun
        if not re.fullmatch(rb"HTTP/1\.[0-9] [1-5][0-9][0-9](?: [^\r\n]*)?", start):
            raise UnreadableError(f"{start!r} is no status line")
        status = int(start[9:12])
        if status < 200 and status != 101:
            interims, at = (*interims, status), end
            continue
        content, complete = b"", True
        if methods[len(found)] != b"HEAD" and status not in {204, 304}:
            content, end, complete = body(fields, octets, end, closed=closed, until_close=True)
        found.append(Message(start, fields, content, complete, begins, end, interims))
        at = begins = end
        interims = ()
        if not complete:
            break
    return found, begins


def directives(lines: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Directives by name with their argument (RFC 9111 §5.2)."""
    found: dict[bytes, bytes | None] = {}
    for line in lines:
        for member in MEMBER.findall(line):
            name, equals, argument = member.strip(b" \t").partition(b"=")
            found.setdefault(name.lower(), argument.strip(b'"') if equals else None)
    return found


def unstorable(request: Message, response: Message, *, heeds: bool = True) -> str:
    """The reason for which a shared cache must not store a response, or "" (RFC 9111 §3).

    A response that a 304 renews is no 304. Without `heeds` the operator has the clients' directives ignored.
    """
    status = 200 if response.status == 304 else response.status
    told, asked = response.directives, request.directives
    shared = bool({b"public", b"must-revalidate", b"s-maxage"} & told.keys())
    understands = b"must-understand" in told and status in UNDERSTOOD
    located = response.field(b"content-location") == request.target
    explicit = bool({b"max-age", b"s-maxage"} & told.keys()) or response.field(b"expires") is not None
    ranged = response.field(b"content-range") is not None
    why = {
        "the method": request.method not in {b"GET", b"HEAD"}
        and not (request.method == b"POST" and explicit and located),
        "no final status": status < 200,
        "a 206 that does not say what it holds": status == 206 and not ranged,
        "a status that is not understood": b"must-understand" in told and not understands,
        "no-store": b"no-store" in told and not understands,
        "private": b"private" in told and told[b"private"] is None,
        "Authorization": request.field(b"authorization") is not None and not shared,
        "the request's no-store": heeds and b"no-store" in asked,
        "nothing that allows it": not (explicit or b"public" in told or status in HEURISTIC),
    }
    return ", ".join(reason for reason, holds in why.items() if holds)


def seconds(argument: bytes | None) -> int:
    return int(argument) if argument is not None and argument.isdigit() else 0


def date(value: bytes | None) -> float | None:
    try:
        return parsedate_to_datetime(value.decode("ascii")).timestamp() if value is not None else None
    except (ValueError, TypeError):
        return None


def lifetime(response: Message, received: float) -> float | None:
    """Seconds for which the origin says that a response is fresh; None if it does not say (§4.2.1)."""
    told = response.directives
    for name in (b"s-maxage", b"max-age"):
        if name in told:
            return seconds(told[name])
    if response.field(b"expires") is None:
        return None
    expires, dated = date(response.field(b"expires")), date(response.field(b"date"))
    return 0 if expires is None else max(0, expires - (received if dated is None else dated))


def age(response: Message, asked: float, received: float, now: float) -> float:
    """The current age of what came at `received` for a request sent at `asked` (§4.2.3)."""
    dated = date(response.field(b"date"))
    apparent = max(0, received - (received if dated is None else dated))
    return max(apparent, seconds(response.field(b"age")) + received - asked) + now - received
