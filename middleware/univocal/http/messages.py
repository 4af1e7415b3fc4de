"""Messages as plain values: what was received, a request, a response (RFC 9110 §6).

Field names are lower case; fields stand in wire order, repeats included, from socket to socket. All of them
are immutable by convention: freezing them would make each take three times as long to build. Those that
each request makes have an `__init__` of their own: mypyc does not compile the one that dataclasses write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from univocal.http.bonds import Bond
from univocal.http.compiling import mypyc_attr

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

    `origin_tag` names the origin server that its client is to stay with. `forwarded` remembers the fields
    for the client: a head that the origin server repeats is one object. `instructions` are an application's.
    `seconds` passed until the head came.
    """

    status: int
    fields: Fields
    server: str
    origin_tag: bytes
    instructions: Instructions | None = field(repr=False, compare=False)
    seconds: float = field(repr=False, compare=False)
    forwarded: Fields | None = field(init=False, repr=False, compare=False)

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
        self.forwarded = None


def values(fields: Iterable[Field], name: bytes) -> list[bytes]:
    """The values of every field line called `name` (lower case), in order."""
    return [value for key, value in fields if key == name]


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
