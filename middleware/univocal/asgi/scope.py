"""Requests as ASGI scopes: as they come, at a glance, and after canonicalization.

Servers hand over different things; the bytes that were received are preferred wherever one shows them. At a
glance a hit is two messages, without an exchange and without a task.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from univocal.asgi.messages import DEBUG, Message, Receive, Scope, Send, with_pairs
from univocal.cache.stored import Stored, head_fields
from univocal.engine.exchange import Engine
from univocal.http.compiling import mypyc_attr
from univocal.http.grammar import of_socket, split_absolute
from univocal.http.intermediary import sender_fields
from univocal.http.messages import EARLY_HINT, EXTENSION, INTERIM, Field, Fields, Received
from univocal.http.tables import remember
from univocal.judge.admission import Admission, Lookup, Plan, ordinary_plan
from univocal.judge.hits import Hit, HitFields
from univocal.uri.target import Canonical

# For what is behind the cache: "canonical", "peer", "chain", "sender".
CANONICAL: Final = "univocal.canonical"
# Extensions that an application may use past a cache that reads its messages.
_PASSED_EXTENSIONS: Final = frozenset(("tls", INTERIM, EARLY_HINT, DEBUG, "websocket.http.response"))
_SCHEMES: Final = {"http": b"http", "https": b"https", "ws": b"http", "wss": b"https"}


Messages: TypeAlias = tuple[Message, Message]
"""The head of a response and its content, as ASGI sends them."""


class AsgiRequest:
    """A request as the server hands it over, and the time: seconds since the epoch, and ticks.

    An ordinary request has a `plan`, and its fields are pairs with names in lower case. A `hit` answers it as
    it is, by these `messages`. With a `lookup` it is known that nothing is stored.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        line: Received,
        begun: tuple[float, float],
        plan: Plan | None = None,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.line = line
        self.begun = begun
        self.plan = plan
        self.lookup: Lookup | None = None
        self.hit: Hit | None = None
        self.messages: Messages | None = None


def request_line(scope: Mapping[str, Any]) -> Received:
    """The request line of an http or websocket scope, as near to the received one as the server shows it."""
    plain = scope if isinstance(scope, dict) else dict(scope)
    return line_of(plain, *addressed(plain))


def addressed(scope: dict[str, Any]) -> tuple[bytes, bytes]:
    """The received target of a scope, and its scheme, which ASGI lets servers leave out."""
    scheme = scope.get("scheme", "http")
    return _target(scope), b"http" if scheme == "http" else _SCHEMES.get(scheme) or scheme.encode("latin-1")


def line_of(plain: dict[str, Any], target: bytes, scheme: bytes) -> Received:
    """The request line of a scope that is `addressed` so."""
    client = plain.get("client")
    method: str = plain.get("method", "GET")
    line = Received(
        b"GET" if method == "GET" else method.encode("latin-1"), target, scheme, client[0] if client else None
    )
    version: str = plain.get("http_version", "1.1")
    if version != "1.1":
        server = plain.get("server")
        line.version = version.encode("latin-1")
        line.server = of_socket(*server) if version == "1.0" and server else b""
    return line


def _target(scope: dict[str, Any]) -> bytes:
    raw = scope.get("raw_path") or quote(scope["path"], safe="/:@!$&'()*+,;=~").encode("ascii")
    extensions = scope.get("extensions")
    if extensions and (extension := extensions.get(EXTENSION)) is not None:
        # A server that was given a root path puts it before raw_path, not before what it received.
        target: bytes = extension["target"]
        absolute = split_absolute(target)
        origin = b"%b://%b" % absolute[:2] if absolute is not None else b""
        rest = target[len(origin) :]
        path = rest.partition(b"?")[0]
        if path[:1] == raw[:1] == b"/" and raw.endswith(path):
            return origin + bytes(raw[: -len(path)]) + rest
        return target
    query = scope.get("query_string", b"")
    if not query or b"?" in raw:  # some test clients leave the query in raw_path
        return raw if isinstance(raw, bytes) else bytes(raw)  # a call of bytes takes as long as all else here
    return bytes(raw) + b"?" + bytes(query)


def respell(scope: Scope, admission: Admission, method: bytes, fields: Fields) -> Scope:
    """The scope as the application sees it: the canonical target in all its forms, scheme, host and client.

    Behind trusted proxies X-Forwarded-* and Forwarded say the same, for applications that read those, whether
    such a proxy spoke or not: law 4 wants them to follow from the key.
    """
    canonical, peer = admission.canonical, admission.peer
    assert canonical is not None
    peer_address, extensions = admission.received.client, scope.get("extensions")
    path, _, query = canonical.target.partition(b"?")
    text = path.decode("latin-1")
    seen = {**scope, "raw_path": path, "path": unquote(text) if "%" in text else text, "query_string": query}
    if scope["type"] == "http":
        seen["method"] = method.decode("latin-1")
    seen["scheme"] = _scheme(scope["type"], canonical.scheme)
    seen["headers"] = (
        [*fields, *_sender_of(admission, canonical)] if admission.runtime.trusted else list(fields)
    )
    if peer.client != peer_address:
        seen["client"] = (peer.client, 0) if peer.client else None
    else:
        seen["client"] = scope.get("client")
    passed: dict[str, Any] = {
        EXTENSION: {"target": canonical.target},
        CANONICAL: {"canonical": canonical, "peer": peer_address, "chain": peer.chain, "sender": peer},
    }
    if extensions:
        passed |= {name: value for name, value in extensions.items() if name in _PASSED_EXTENSIONS}
    seen["extensions"] = passed
    return seen


def _sender_of(admission: Admission, canonical: Canonical) -> Sequence[Field]:
    """The fields that tell of the sender; the last address is that of the client of the proxy in front.

    A proxy would add the address of that proxy, but the application is not behind one more.
    """
    *before, last = admission.peer.chain or (b"",)
    client = last.decode("ascii") or admission.received.client
    return sender_fields(canonical.authority, client, canonical.scheme, before)


def _scheme(kind: str, scheme: bytes) -> str:
    plain = "http" if scheme == b"http" else scheme.decode("ascii")
    return plain if kind == "http" else plain.replace("http", "ws")


def below_root(scope: Mapping[str, Any], canonical: Canonical) -> bool:
    """Tell whether a canonical target stays in the part of the URL space that an application is mounted on.

    A server that is told its root path by a proxy that cut it off has received nothing below it.
    """
    root = scope.get("root_path", "").rstrip("/")
    if not root or canonical.target == b"*" or not _below(root, scope["path"]):
        return True
    return _below(root, unquote(canonical.target.partition(b"?")[0].decode("latin-1")))


def _below(root: str, path: str) -> bool:
    return path == root or path.startswith(root + "/")


# Heads of more bytes are split into fields for each hit, and header sections of more are read each time.
_LONGEST: Final = 2048
_MOST: Final = 1024  # heads whose fields are remembered, and clients


def at_a_glance(scope: Scope, receive: Receive, send: Send, engine: Engine) -> Messages | AsgiRequest:
    """The messages of a hit of which no listener hears, or the request as it came.

    Messages are new, and so is the list of fields: outer middleware may change them in place.
    """
    plain = scope if isinstance(scope, dict) else dict(scope)
    begun, is_told = engine.clock(), engine.audience.is_there
    ticks = time.perf_counter() if is_told else 0.0
    target, scheme = addressed(plain)
    if plain.get("method", "GET") != "GET" or plain.get("root_path"):
        line = line_of(plain, target, scheme)
        return AsgiRequest(with_pairs(scope), receive, send, line, (begun, ticks or time.perf_counter()))
    section = _section(plain["headers"], plain.get("client"))
    plan, values = section.plan, section.values
    is_heard = is_told or (plan is not None and plan.is_for_another)
    found: Hit | Lookup | None = None
    if plan is not None and not is_heard:
        answer = engine.hits.answer(target, values[plan.host], scheme, plan, values, begun)
        stored, head, age, hit_fields, _, found = answer
        if stored is not None and hit_fields is not None:
            return _messages(stored, head, age, hit_fields, dated=adds_date(receive, send))
    line = line_of(plain, target, scheme)
    if plan is not None and is_heard:
        found = engine.hits.find(line, plan, values, begun)
    if not section.is_plain:
        scope, plan = with_pairs(scope), None
    asked = AsgiRequest(scope, receive, send, line, (begun, ticks or time.perf_counter()), plan)
    if isinstance(found, Hit):
        asked.hit, dated = found, adds_date(receive, send)
        asked.messages = _messages(found.stored, found.head, found.age, found.hit_fields, dated=dated)
    elif plan is not None:
        asked.lookup = found
    return asked


def _messages(stored: Stored, head: bytes, age: int, hit_fields: HitFields, *, dated: bool) -> Messages:
    table = _dated if dated else _undated
    start = table.get(head)
    if start is None:
        kept = [field for field in head_fields(head) if not (dated and field[0] == b"date")]
        start = _Start(stored.status, kept)
        if len(head) <= _LONGEST:
            remember(table, head, start, _MOST)
    if start.age != age or start.hit_fields is not hit_fields:
        start.age, start.hit_fields = age, hit_fields
        start.fields = [*start.kept, (b"age", b"%d" % age), *hit_fields.fields]
    message, content = start.message.copy(), _CONTENT.copy()
    message["headers"], content["body"] = start.fields.copy(), stored.body
    return message, content


@mypyc_attr(acyclic=True)
class _Section:
    """The header section of a request: the plan for it, if it is an ordinary one, and its values.

    It is plain if it has a plan, is a list of tuples, and the server spells the names in lower case.
    """

    def __init__(self, fields: Fields, plan: Plan | None, is_plain: bool, values: Sequence[bytes]) -> None:
        self.fields = fields
        self.plan = plan
        self.is_plain = is_plain
        self.values = values


_NO_SECTION: Final = _Section([], None, False, ())
# The last header section of a client, by its address and port: most clients repeat it to the byte.
_sections: Final[dict[object, _Section]] = {}


def _section(fields: Any, client: Any) -> _Section:
    """The header section that a client sends; a remembered one is not read again."""
    known = _sections.get(client) if isinstance(client, tuple) else None
    if known is not None and (
        _repeats(known.fields, fields) if _IS_COMPILED else bool(known.fields == fields)
    ):
        return known
    if not fields:
        return _NO_SECTION
    names, values = zip(*fields, strict=True)
    plan = ordinary_plan(names, values)
    are_pairs = isinstance(fields, list) and all(type(field) is tuple for field in fields)
    is_plain = are_pairs and plan is not None and plan.names == names
    # An application may change the list, and pairs that are no tuples: the copy keeps the tuples.
    if isinstance(client, tuple) and are_pairs and sum(map(len, values)) <= _LONGEST:
        section = _Section(fields.copy(), plan, is_plain, values)
        remember(_sections, client, section, _MOST)
        return section
    return _Section([], plan, is_plain, values)


def _repeats(known: Fields, fields: Any) -> bool:
    """Tell whether fields equal known ones.

    Compiled, this takes a third of the time of a comparison of lists; else it takes longer.
    """
    if not isinstance(fields, list) or len(fields) != len(known):
        return False
    for place, (name, value) in enumerate(known):
        field = fields[place]
        if not isinstance(field, tuple) or len(field) != 2:
            return False
        given, said = field[0], field[1]
        if not (isinstance(given, bytes) and isinstance(said, bytes) and given == name and said == value):
            return False
    return True


_IS_COMPILED: Final = not isinstance(_repeats, FunctionType)


class _Start:
    """The fields of a stored head, and all fields of the last hit that had it."""

    def __init__(self, status: int, kept: Fields) -> None:
        self.message: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": kept}
        self.kept = kept
        self.age = -1
        self.hit_fields: HitFields | None = None
        self.fields: Fields = []


_CONTENT: Final[dict[str, Any]] = {"type": "http.response.body", "body": b""}
# By the bytes of a head: for servers that add a Date, and for others.
_dated: Final[dict[bytes, _Start]] = {}
_undated: Final[dict[bytes, _Start]] = {}


def adds_date(receive: Any, send: Any) -> bool:
    """Tell whether the server adds a Date to every response: uvicorn does, unless it is told not to.

    One of the calls that the server handed over may be wrapped by others.
    """
    defaults = _defaults
    for call in (receive, send):
        cycle = getattr(call, "__self__", None)
        fields: Any = getattr(cycle, "default_headers", None)
        if fields is not None and defaults.fields is fields:
            return defaults.dated
        if type(cycle).__module__.startswith("uvicorn.protocols."):
            defaults.fields = fields
            defaults.dated = b"date" in [name.lower() for name, _ in fields or ()]
            return defaults.dated
    return False


class _Defaults:
    """The fields that uvicorn adds to responses: a list that it makes anew each second."""

    def __init__(self) -> None:
        self.fields: object = None
        self.dated = False


_defaults: Final = _Defaults()
