"""The request line in an ASGI scope, and the scope after canonicalization.

Servers hand over different things; the bytes that were received are preferred wherever one shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from univocal.asgi.messages import Message, Receive, Scope, Send
from univocal.http.forward import sender_fields
from univocal.http.grammar import of_socket, split_absolute
from univocal.http.messages import EARLY_HINT, EXTENSION, INTERIM, Field, Fields, Received
from univocal.judge.admission import Admission, Lookup, Plan
from univocal.judge.hits import Hit
from univocal.uri.target import Canonical

CANONICAL: Final = (
    "univocal.canonical"  # {"canonical", "peer", "chain", "sender"}: for what is behind the cache
)


# Extensions that an application may use past a cache that reads its messages.
_PASSED_EXTENSIONS: Final = frozenset(("tls", INTERIM, EARLY_HINT, "websocket.http.response"))


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
