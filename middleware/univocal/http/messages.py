"""Messages as plain values: what was received, a request, a response, and their fields (RFC 9110 §5, §6).

Field names are lower case; fields stand in wire order, repeats included, from socket to socket. All of them
are immutable by convention: freezing them would make each take three times as long to build. Those that
each request makes have an `__init__` of their own: mypyc does not compile the one that dataclasses write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import http_sf

from univocal.http.bonds import Bond
from univocal.http.compiling import mypyc_attr
from univocal.http.grammar import TOKEN, unquoted

Field: TypeAlias = tuple[bytes, bytes]
Fields: TypeAlias = list[Field]

# Request methods by what they promise (RFC 9110 §9.2).

# Those whose answer is a representation of the target: it may be stored, shared and served again (§9.2.3).
RETRIEVAL: Final = frozenset((b"GET", b"HEAD"))
# Those that ask for no change, so that nothing stored ends with them (§9.2.1).
SAFE: Final = RETRIEVAL | {b"OPTIONS", b"TRACE"}
# Those that may be sent twice with the effect of once (§9.2.2).
IDEMPOTENT: Final = SAFE | {b"PUT", b"DELETE"}

# By these extensions this program and ASGI servers tell one another more than ASGI does.
EXTENSION: Final = "univocal.target"  # {"target": bytes}: what was received, or what is canonical
EARLY_HINT: Final = "http.response.early_hint"  # {"links": […]}: the ASGI extension for 103
INTERIM: Final = "http.response.informational"  # {"status": 103, "headers": […]}: a message for any 1xx


class ClientCertificate(NamedTuple):
    """The certificate of a client, as its connection has verified it.

    The `subject` is a distinguished name (RFC 4514). `authority` names the setting that says who issues them.
    """

    subject: bytes
    authority: bytes


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Received:
    """A request line and the connection it came by, before anything is believed of it."""

    method: bytes
    target: bytes  # as on the wire: origin-form, absolute-form, asterisk-form or worse
    scheme: bytes  # the connection's
    client: str | None  # the peer's address, without port
    version: bytes  # HTTP's, without its name
    host: bytes  # the Host field's value, where the request gets no further than its head
    upgrade: bytes  # the protocol that it asks to switch to, where that is passed on
    server: bytes  # our address that was asked, of a request by HTTP/1.0, which may be without Host
    introduced: bool  # a PROXY header named the peer, which is no proxy of ours then, whatever its address
    request_id: bytes = field(init=False, repr=False, compare=False)  # empty: it has no name, or none yet
    # Of the client's connection; None where that is not one client's.
    bond: Bond | None = field(repr=False, compare=False)
    certificate: ClientCertificate | None = field(repr=False, compare=False)
    listener: str  # the name of the listener whose settings hold; empty: it has none of its own

    def __init__(
        self,
        method: bytes,
        target: bytes,
        scheme: bytes = b"http",
        client: str | None = None,
        version: bytes = b"1.1",
        host: bytes = b"",
        upgrade: bytes = b"",
        server: bytes = b"",
        introduced: bool = False,
        bond: Bond | None = None,
        certificate: ClientCertificate | None = None,
        listener: str = "",
    ) -> None:
        self.listener = listener
        self.bond = bond
        self.certificate = certificate
        self.request_id = b""
        self.method = method
        self.target = target
        self.scheme = scheme
        self.client = client
        self.introduced = introduced
        self.version = version
        self.host = host
        self.upgrade = upgrade
        self.server = server


NO_NAMES: Final = frozenset[bytes]()


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Request:
    """A request's head; `target` is canonical, `tags` are derived from it: a response's, besides its own.

    `verbatim` is the target that the origin gets in its place, where a route forwards targets as received.
    `user` is the one client for whom its response is kept, not empty where responses are kept by user.
    `names` are those of the fields, read once for all who look for one. `ordinary` are the names of fields
    that tell its client from no other; None: not worked out.
    """

    method: bytes
    target: bytes
    fields: Fields
    tags: frozenset[bytes]
    verbatim: bytes
    ordinary: frozenset[bytes] | None = field(repr=False, compare=False)
    user: bytes
    names: frozenset[bytes] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        method: bytes,
        target: bytes,
        fields: Fields,
        tags: frozenset[bytes] = NO_NAMES,
        verbatim: bytes = b"",
        ordinary: frozenset[bytes] | None = None,
        user: bytes = b"",
        names: frozenset[bytes] | None = None,
    ) -> None:
        """`names` are those of the fields, where they are known."""
        self.method = method
        self.target = target
        self.fields = fields
        self.tags = tags
        self.verbatim = verbatim
        self.ordinary = ordinary
        self.user = user
        self.names = frozenset([name for name, _ in fields]) if names is None else names


@mypyc_attr(acyclic=True)
class Instructions:
    """The words of an application about a response that stand in none of its fields.

    They are as good as Cache-Control: max-age and stale-while-revalidate, in seconds, or no-store. Tags may
    be added while the content comes.
    """

    __slots__ = ("max_age", "no_store", "stale_while_revalidate", "tags")

    def __init__(self) -> None:
        self.max_age: int | None = None
        self.stale_while_revalidate: int | None = None
        self.no_store = False
        self.tags: set[bytes] = set()


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Response:
    """A final response's head; `server` is the URL of the origin server that sent it, if it is known.

    `origin_tag` names the origin server that its client is to stay with. `client_fields` remembers the fields
    for the client: a head that the origin server repeats is one object. `instructions` are an application's.
    `seconds` passed until the head came.
    """

    status: int
    fields: Fields
    server: str
    origin_tag: bytes
    instructions: Instructions | None = field(repr=False, compare=False)
    seconds: float = field(repr=False, compare=False)
    client_fields: Fields | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        status: int,
        fields: Fields,
        *,
        server: str = "",
        origin_tag: bytes = b"",
        instructions: Instructions | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.seconds = seconds
        self.status = status
        self.fields = fields
        self.server = server
        self.origin_tag = origin_tag
        self.instructions = instructions
        self.client_fields = None


# http.HTTPStatus changes some of them between Python versions.
PHRASES: Final[dict[int, str]] = {
    100: "Continue",
    101: "Switching Protocols",
    103: "Early Hints",
    200: "OK",
    201: "Created",
    202: "Accepted",
    203: "Non-Authoritative Information",
    204: "No Content",
    205: "Reset Content",
    206: "Partial Content",
    300: "Multiple Choices",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    416: "Range Not Satisfiable",
    417: "Expectation Failed",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    428: "Precondition Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    451: "Unavailable For Legal Reasons",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    511: "Network Authentication Required",
}


@lru_cache(maxsize=1024)
def status_line(status: int) -> bytes:
    """The status line of a response, without its end; unregistered statuses have no phrase (RFC 9112 §4)."""
    return b"HTTP/1.1 %d %b" % (status, PHRASES.get(status, "").encode("ascii"))


# The fields of messages
#
# Every reader is linear in the field's length and total: what cannot be read is None or absent, never an
# error.

# The fields of draft-montenegro-httpbis-uri-encoding, of the path and of the query.
ENCODINGS: Final = (b"uri-path-encoding", b"uri-query-encoding")

FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))

# The content codings that are told apart and made, in the order in which servers that go by the order choose.
CODINGS: Final = (b"zstd", b"br", b"gzip")

# Bytes of a value that is normalized; a longer one stays as it came. No request costs more than reading so
# much of each of its selecting header fields once, however many responses are stored.
LONGEST: Final = 4096

# A Content-Length of more digits is none: no content is so long, and not every recipient can count so far.
LENGTH_DIGITS: Final = 18
_LENGTH: Final = re.compile(rb"[0-9]{1,%d}" % LENGTH_DIGITS).fullmatch

# RFC 9111 §1.2.2: what a delta-seconds that overflows is read as.
MAX_DELTA: Final = 2**31

_ELEMENT: Final = re.compile(rb'(?:[^",]|"(?:[^"\\]|\\.)*"?)+', re.DOTALL)
_TAG: Final = rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_ENTITY_TAG: Final = re.compile(_TAG)
_TAG_LIST: Final = re.compile(rb"(?:^|,)[ \t]*(" + _TAG + rb")[ \t]*(?=,|$)")
_WEIGHTED: Final = re.compile(rb"(" + TOKEN + rb")(?:[ \t]*;[ \t]*q=([01](?:\.[0-9]{0,3})?))?", re.IGNORECASE)

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"), 1
    )
}
_DAYS_IN_MONTH: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_TIME: Final = rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_MONTH: Final = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_SHORT_DAY: Final = rb"(?:mon|tue|wed|thu|fri|sat|sun)"
_LONG_DAY: Final = rb"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_IMF: Final = _SHORT_DAY + rb", (?P<day>\d\d) " + _MONTH + rb" (?P<year>\d{4}) " + _TIME + rb" gmt"
_RFC850: Final = _LONG_DAY + rb", (?P<day>\d\d)-" + _MONTH + rb"-(?P<year>\d\d) " + _TIME + rb" gmt"
_ASCTIME: Final = _SHORT_DAY + rb" " + _MONTH + rb" (?P<day>\d\d| \d) " + _TIME + rb" (?P<year>\d{4})"
_DATES: Final = tuple(re.compile(form) for form in (_IMF, _RFC850, _ASCTIME))


def values(fields: Iterable[Field], name: bytes) -> list[bytes]:
    """The values of every field line called `name` (lower case), in order."""
    return [value for key, value in fields if key == name]


def first(fields: Iterable[Field], name: bytes) -> bytes | None:
    """The value of the first field line called `name` (lower case)."""
    for key, value in fields:
        if key == name:
            return value
    return None


def coding_of(fields: Fields) -> bytes:
    """The codings of a response's content, in lower case; b"" if it has none (RFC 9110 §8.4)."""
    coding = (first(fields, b"content-encoding") or b"").strip(b" \t").lower()
    return b"" if coding == b"identity" else coding


def firsts(fields: Fields) -> dict[bytes, bytes]:
    """The value of the first field line of each name, for those who ask for many."""
    return dict(reversed(fields))


def every(fields: Fields, named: Mapping[bytes, bytes], name: bytes) -> list[bytes]:
    """The values of every field line called `name`, where `named` are the `firsts` of these fields."""
    if name not in named:
        return []
    # As many names as lines: none stands twice.
    return [named[name]] if len(named) == len(fields) else values(fields, name)


def combined(fields: Iterable[Field], name: bytes) -> bytes | None:
    """The field lines called `name` as one field value (RFC 9110 §5.3); None if there is none."""
    lines = values(fields, name)
    return b", ".join(lines) if lines else None


def without(fields: Iterable[Field], names: Iterable[bytes]) -> Fields:
    """The field lines that are called none of `names`."""
    dropped = frozenset(names)
    return [field for field in fields if field[0] not in dropped]


def members(value: bytes) -> list[bytes]:
    """The elements of a comma-separated list, empty ones left out (RFC 9110 §5.6.1)."""
    elements = _ELEMENT.findall(value) if b'"' in value else value.split(b",")
    return [stripped for element in elements if (stripped := element.strip(b" \t"))]


def delta_seconds(value: bytes | None) -> int | None:
    """A non-negative number of seconds, at most `MAX_DELTA` (RFC 9111 §1.2.2)."""
    if value is None or not value.isdigit():
        return None
    digits = value.lstrip(b"0")
    return min(int(digits or b"0"), MAX_DELTA) if len(digits) <= 10 else MAX_DELTA


def age_value(fields: Iterable[Field]) -> int:
    """The Age field in seconds, 0 if absent or invalid; of a list the first member (RFC 9111 §5.1)."""
    line = first(fields, b"age")
    return delta_seconds(line.split(b",", 1)[0].strip(b" \t")) or 0 if line is not None else 0


def content_length(fields: Iterable[Field]) -> int | None:
    """The Content-Length in bytes (RFC 9110 §8.6)."""
    for name, value in fields:
        if name == b"content-length":
            return int(value) if _LENGTH(value) else None
    return None


def content_length_value(line: bytes | None) -> int | None:
    """The bytes that a Content-Length says; None if it is absent, no number or too long (RFC 9110 §8.6)."""
    return int(line) if line is not None and _LENGTH(line) else None


def cache_control(lines: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Directives by lower-case name with their unquoted argument (RFC 9111 §5.2).

    Of a repeated directive the first counts (§4.2.1), but the broadest "no-cache" and "private".
    """
    directives: dict[bytes, bytes | None] = {}
    for line in lines:
        for element in members(line):
            name, argument = _directive(element)
            if name not in directives:
                directives[name] = argument
            elif name in {b"no-cache", b"private"}:
                known = directives[name]
                directives[name] = None if known is None or argument is None else known + b"," + argument
    return directives


def _directive(element: bytes) -> tuple[bytes, bytes | None]:
    spelled, equals, argument = element.partition(b"=")
    name = spelled.rstrip(b" \t").lower()
    if not equals:
        return name, None
    if spelled != spelled.rstrip(b" \t"):
        # "max-age =1" is no valid directive: kept with a blank, the argument cannot be read as a number.
        return name, b" " + argument
    if len(argument) > 1 and argument[:1] == b'"' == argument[-1:]:
        return name, unquoted(argument)
    return name, argument


def entity_tag(value: bytes | None) -> bytes | None:
    """A well-formed entity-tag, weak or strong (RFC 9110 §8.8.3)."""
    if value is None or not _ENTITY_TAG.fullmatch(value.strip(b" \t")):
        return None
    return value.strip(b" \t")


def entity_tags(value: bytes) -> list[bytes]:
    """The well-formed members of a list of entity-tags."""
    return _TAG_LIST.findall(value)


def opaque_tag(tag: bytes) -> bytes:
    """An entity-tag without its weakness: what the weak comparison compares (RFC 9110 §8.8.3.2)."""
    return tag.removeprefix(b"W/")


def cookie_names(fields: Iterable[Field]) -> list[bytes]:
    """The names of all cookies of a request (RFC 6265 §5.4)."""
    pairs = [pair for line in values(fields, b"cookie") for pair in line.split(b";")]
    return [pair.partition(b"=")[0].strip(b" \t") for pair in pairs if pair.strip(b" \t")]


def http_date(value: bytes | None, now: float) -> int | None:
    """Seconds since the epoch of an HTTP-date in one of its three forms (RFC 9110 §5.6.7).

    Letters may have any case and the weekday is not checked against the date; nothing else is forgiven.
    `now` tells the century of an RFC 850 date.
    """
    if value is None:
        return None
    # An IMF-fixdate has 29 bytes and means the same at any time: it is remembered. No date whose year has
    # two digits is as short.
    return _fixed_date(value) if len(value) == 29 else _date(value, now)


@lru_cache(maxsize=1024)
def _fixed_date(value: bytes) -> int | None:
    return _date(value, 0.0)


def _date(value: bytes, now: float) -> int | None:
    text = value.strip(b" \t").lower()
    for form in _DATES:
        if match := form.fullmatch(text):
            break
    else:
        return None
    part = {name: match[name] for name in ("year", "month", "day", "hour", "minute", "second")}
    year, month, day = int(part["year"]), _MONTHS[part["month"]], int(part["day"])
    hour, minute, second = int(part["hour"]), int(part["minute"]), int(part["second"])
    if not (1 <= day <= _DAYS_IN_MONTH[month] and hour < 24 and minute < 60 and second <= 60):
        return None
    if len(part["year"]) == 2:
        # A two-digit year that seems more than 50 years ahead is the most recent such year in the past.
        this_year = 1970 + int(now // 31_556_952)
        year += this_year // 100 * 100
        if year > this_year + 50:
            year -= 100
    if month == 2 and day == 29 and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    return _days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the Gregorian calendar; years are counted from March."""
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def imf_fixdate(seconds: float) -> bytes:
    """The preferred form of an HTTP-date (RFC 9110 §5.6.7)."""
    return _imf_fixdate(int(seconds))


@lru_cache(maxsize=64)
def _imf_fixdate(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode("ascii")


# Bytes of an Accept; a longer one says nothing.
LONGEST_ACCEPT: Final = 4096

_RANGE: Final = re.compile(rb"(" + TOKEN + rb")/(" + TOKEN + rb")(?:[ \t]*;(.*))?", re.DOTALL)
_WEIGHT: Final = re.compile(rb"[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*", re.IGNORECASE)


def prefers_html(fields: Fields) -> bool:
    """Tell whether a client likes text/html better than problem details, as browsers do.

    One that takes anything, or says nothing, is a program.
    """
    accept = combined(fields, b"accept") or b""
    if len(accept) > LONGEST_ACCEPT or b"text/" not in accept.lower():
        return False
    return quality(accept, b"text/html") > quality(accept, b"application/problem+json")


def quality(accept: bytes, media_type: bytes) -> float:
    """The weight of a media type, from 0 to 1: that of the most specific range which it is in."""
    kind = media_type.partition(b"/")[0]
    ranges = {media_type: 2, kind + b"/*": 1, b"*/*": 0}
    best = (-1, 0.0)
    for member in members(accept):
        read = _RANGE.fullmatch(member)
        if read is None or (rank := ranges.get(b"%b/%b" % (read[1].lower(), read[2].lower()))) is None:
            continue
        # With any other parameter than its weight it is a range of other types.
        weight = _WEIGHT.fullmatch(read[3] or b"q=1")
        if weight is not None:
            best = max(best, (rank, float(weight[1])))
    return best[1]


def structured(value: bytes, kind: Literal["dictionary", "list"]) -> Any:
    """The value of a structured field (RFC 9651), as http_sf gives it; None for an invalid one."""
    try:
        return http_sf.parse(value, tltype=kind)
    except (http_sf.StructuredFieldError, ValueError):
        return None


def weights(value: bytes) -> list[tuple[bytes, bytes]] | None:
    """The members of a weighted list in lower case, their qvalue in its shortest form; None if malformed."""
    weighted = []
    for member in members(value):
        read = _WEIGHTED.fullmatch(member)
        if read is None:
            return None
        weight = read[2] or b"1"
        shortest = weight.rstrip(b"0").rstrip(b".") if b"." in weight else weight
        weighted.append((read[1].lower(), shortest or b"0"))
    return weighted


def reduce_codings(fields: Fields) -> Fields:
    """`fields` with an Accept-Encoding that names which of zstd, br and gzip the client takes, or "identity".

    A malformed value, or one above the limit, stays unchanged.
    """
    lines = [value for name, value in fields if name == b"accept-encoding"]
    if not lines:
        return fields
    value = b",".join(lines)
    if len(value) > LONGEST:
        return fields
    reduced = accepted_codings(value) if len(value) <= 256 else _accepted(value)
    if reduced is None or lines == [reduced]:
        return fields
    return [*[field for field in fields if field[0] != b"accept-encoding"], (b"accept-encoding", reduced)]


def _accepted(value: bytes) -> bytes | None:
    """Which of zstd, br and gzip an Accept-Encoding takes, else "identity"; None if it is malformed."""
    read = weights(value)
    if read is None:
        return None
    acceptable: dict[bytes, bool] = {}
    for coding, weight in read:
        name = b"gzip" if coding == b"x-gzip" else coding
        acceptable[name] = acceptable.get(name, True) and weight != b"0"
    others = acceptable.get(b"*", False)
    return b", ".join([coding for coding in CODINGS if acceptable.get(coding, others)]) or b"identity"


accepted_codings: Final = lru_cache(maxsize=1024)(_accepted)
