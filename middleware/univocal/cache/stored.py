"""A stored response: its head, rendered once, the facts that the policy needs, and its cost in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from univocal.cache.directives import NoVarySearch, split_key
from univocal.http.compiling import mypyc_attr
from univocal.http.messages import Fields, status_line

# The selecting header fields of the request that got a response, normalized; None for one it did not have.
Selecting: TypeAlias = tuple[tuple[bytes, bytes | None], ...]

# Statuses whose responses have no content, and so no Content-Length (RFC 9110 §8.6).
NO_CONTENT: Final = frozenset({204, 304})

# Measured on CPython (tests/cache/test_shapes.py): the objects of a response and its index entries,
# without the bytes they hold.
_BASE_COST: Final = 760
_PART_COST: Final = 200
_SELECTING_COST: Final = 150
_TAGS_COST: Final = 200
_TAG_COST: Final = 350
_SEARCH_COST: Final = 1_200
_PARAMETER_COST: Final = 150
# Bytes from which on CPython asks the system's allocator for an object.
_LARGE: Final = 480


class Part(NamedTuple):
    """A 206 holds these bytes, both inclusive, of a representation of this length, if known (§14.4)."""

    first: int
    last: int
    complete: int | None


class Forms:
    """The forms of one stored response: by coding; None for one that is no shorter.

    `compressible` is False where there can be none.
    """

    __slots__ = ("coded", "compressible", "vary")

    def __init__(self, compressible: bool, vary: bytes = b"") -> None:
        self.compressible: Final = compressible
        self.vary: Final = vary  # the line that the identity form's head lacks
        self.coded: dict[bytes, Stored | None] = {}


@mypyc_attr(acyclic=True)
@dataclass(slots=True, eq=False)
class Stored:
    """A response that may be reused; immutable by convention once it has its content, but for `used`.

    Times are seconds since the epoch. `born` is when the origin server made or last confirmed it: its age at
    any time is now - `born`.
    """

    key: bytes
    status: int
    head: bytes  # status line and fields, each with CRLF; without the blank line, Age, Via and Cache-Status
    body: bytes
    vary: Selecting
    response_time: float
    born: float
    fresh_until: float
    no_cache: bool  # never reused without validation (RFC 9111 §5.2.2.4)
    stale_usable: bool  # no directive forbids to serve it stale (§4.2.4)
    stale_while_revalidate: float  # seconds past `fresh_until` (RFC 5861 §3), or the rules' grace
    stale_if_error: float  # seconds past `fresh_until` (RFC 5861 §4)
    etag: bytes | None
    last_modified: bytes | None
    modified: (
        float  # what If-Modified-Since is compared with (§4.3.2): Last-Modified, else Date, else receipt
    )
    strong: bytes | None  # the strong validator, if it has one (RFC 9110 §8.8.1)
    part: Part | None  # of a 206
    bodiless: bool  # the answer to a HEAD: good for HEAD alone
    language: bytes | None  # the one Content-Language, lower case
    search: NoVarySearch | None
    tags: frozenset[bytes]
    reusable: bool  # False: good for the exchange that made it, never to be kept
    cost: int  # bytes of memory, index entries included
    used: float = 0.0  # when it last answered, for the store's choice of what to evict
    small: int = field(default=0, init=False, repr=False)  # the part of its cost in small objects; 0: unknown
    # While it is fresh, `decide` answers a plain GET that selects it with it as it is; None: unknown.
    answers: bool | None = field(default=None, init=False, repr=False)
    forms: Forms | None = field(default=None, init=False, repr=False)  # None: none was asked for

    @property
    def fields(self) -> Fields:
        """The field lines in wire order; read back from the head, which is kept once."""
        return head_fields(self.head)

    def line(self, name: bytes) -> bytes | None:
        """The value of the first field line of this name (lower case)."""
        start = self.head.find(b"\r\n" + name + b": ")
        if start < 0:
            return None
        start += len(name) + 4
        return self.head[start : self.head.index(b"\r\n", start)]

    @property
    def lifetime(self) -> float:
        """The freshness lifetime in seconds (RFC 9111 §4.2.1)."""
        return self.fresh_until - self.born

    @property
    def initial_age(self) -> float:
        """The corrected initial age in seconds (RFC 9111 §4.2.3)."""
        return self.response_time - self.born

    @property
    def whole(self) -> bool:
        """It can answer a GET without Range."""
        return self.part is None and not self.bodiless

    def age(self, now: float) -> int:
        """The current age in whole seconds, never negative (RFC 9111 §4.2.3)."""
        return max(0, int(now - self.born))


def softened(stored: Stored, now: float) -> Stored:
    """The same response, stale from now on."""
    return replace(stored, fresh_until=min(stored.fresh_until, now))


def head_fields(head: bytes) -> Fields:
    """The field lines of a stored head in wire order."""
    lines = head.split(b"\r\n")[1:-1]
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]


def render_head(status: int, fields: Fields) -> bytes:
    """A response's status line and field lines, without the blank line that ends them (RFC 9112 §4)."""
    lines = [status_line(status)]
    for name, value in fields:
        lines.append(b"\r\n")
        lines.append(name)
        lines.append(b": ")
        lines.append(value)
    lines.append(b"\r\n")
    return b"".join(lines)


def with_content(stored: Stored, body: bytes) -> Stored:
    """Give a response that was described by its facts alone its content, its length and its cost."""
    has_length = stored.head.find(b"\r\ncontent-length: ") >= 0
    if not (has_length or stored.bodiless or stored.status in NO_CONTENT):
        stored.head = b"%bcontent-length: %d\r\n" % (stored.head, len(body))
    stored.body = body
    stored.cost, stored.small = cost_of(stored)
    return stored


def filled(stored: Stored, body: bytes) -> Stored:
    """The same response with content that was read, in a new object."""
    other = Stored.__new__(Stored)  # compiled, the method that a dataclass makes takes eight times as long
    other.body, other.used, other.answers, other.forms = body, 0.0, None, None
    other.key = stored.key
    other.status = stored.status
    other.head = stored.head
    other.vary = stored.vary
    other.response_time = stored.response_time
    other.born = stored.born
    other.fresh_until = stored.fresh_until
    other.no_cache = stored.no_cache
    other.stale_usable = stored.stale_usable
    other.stale_while_revalidate = stored.stale_while_revalidate
    other.stale_if_error = stored.stale_if_error
    other.etag = stored.etag
    other.last_modified = stored.last_modified
    other.modified = stored.modified
    other.strong = stored.strong
    other.part = stored.part
    other.bodiless = stored.bodiless
    other.language = stored.language
    other.search = stored.search
    other.tags = stored.tags
    other.reusable = stored.reusable
    other.cost, other.small = stored.cost, stored.small
    return other


def costed(stored: Stored, head: bytes, body: bytes, etag: bytes | None) -> Stored:
    """The same response with another head and content, no strong validator, and what that costs."""
    other = replace(stored, head=head, body=body, etag=etag, strong=None, tags=frozenset(), search=None)
    other.cost, other.small = cost_of(other)
    return other


def cost_of(stored: Stored) -> tuple[int, int]:
    """The bytes of memory that a response takes, index entries included, and those in small objects."""
    # The bytes kept of it and in its name, once for each time that they may be kept.
    kept = [stored.key, stored.head, stored.body]
    kept += [stored.etag or b"", stored.last_modified or b"", stored.strong or b"", stored.language or b""]
    for name, value in stored.vary:
        kept += [name, value or b""]
    # An index may have the tag of another response, and go on having it when that is gone.
    kept += [*stored.tags, *stored.tags]
    if stored.search is not None:
        kept += [split_key(stored.key)[0], *stored.search.names]
    small, large = _BASE_COST + _SELECTING_COST * len(stored.vary), 0
    small += _TAGS_COST + _TAG_COST * len(stored.tags) if stored.tags else 0
    small += _PART_COST if stored.part is not None else 0
    if stored.search is not None:
        small += _SEARCH_COST + _PARAMETER_COST * len(stored.search.names)
    for each in kept:
        length = len(each)
        if length < _LARGE:
            small += length
        else:
            large += length
    return small + large, small
