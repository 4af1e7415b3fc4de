"""A connection becomes another protocol's: who may ask for it, and by which answer (RFC 9110 §7.8). Pure.

A tunnel opened by mistake lets a client reach the server at its other end past every check. So univocal opens
one only if the request names one protocol in the one unambiguous form. The origin server's answer has to
match it.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from univocal.http.errors import RefusedError
from univocal.http.forward import request_has_content, response_fields
from univocal.http.grammar import is_token
from univocal.http.messages import Field, Fields, Response, values

WEBSOCKET: Final = b"websocket"
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 §1.3

# By these a client would send requests past the cache and every check: request smuggling, if to order.
_CARRY_HTTP: Final = frozenset((b"h2", b"h2c", b"h3", b"http", b"tls"))


class Line(Protocol):
    """A connection that may be given away after a 101, to speak another protocol."""

    def switch(self, end: Any) -> Switched:
        """Give the connection to `end`, an asyncio protocol, which hears of all that comes from now on."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Ignore it: `end` reports the close."""


class Switched(NamedTuple):
    """A connection that was given away."""

    transport: Any  # asyncio's
    early: bytes = b""  # bytes that have come behind the messages of HTTP
    full: bool = False  # it takes no more for now


class Switching(Response):
    """A 101: its head, and the connection to the origin server that it speaks of."""

    def __init__(self, status: int, fields: Fields, line: Line) -> None:
        super().__init__(status, fields)
        self.line = line


def requested_upgrade(
    method: bytes, version: str, fields: Sequence[Field], allowed: Collection[bytes]
) -> bytes:
    """The one protocol that a request asks to switch to, b"" if it asks for none that is `allowed`.

    Names are compared without regard to case, and `allowed` has them in lower case. Content could be of
    the old protocol or of the new one, and HTTP/1.0 has no such field.
    """
    lines = values(fields, b"upgrade")
    if len(lines) != 1 or version != "1.1" or method == b"HEAD" or request_has_content(fields):
        return b""
    protocol = lines[0].strip(b" \t")
    if protocol.lower() not in allowed or not _names_upgrade(fields):
        return b""
    # RFC 6455 §4.1: the method of a WebSocket's handshake is GET.
    return b"" if protocol.lower() == WEBSOCKET and method != b"GET" else protocol


def carries_http(protocol: bytes) -> bool:
    """Tell whether requests of HTTP could be sent by a protocol of this name."""
    name, _, _ = protocol.lower().partition(b"/")
    return name in _CARRY_HTTP


def is_protocol(name: bytes) -> bool:
    """Tell whether `name` is a protocol's, with or without a version (RFC 9110 §7.8)."""
    protocol, slash, version = name.partition(b"/")
    return is_token(protocol) and (is_token(version) or not slash)


def upgrade_fields(protocol: bytes) -> Fields:
    """The two fields by which a message speaks of switching to `protocol`."""
    return [(b"connection", b"Upgrade"), (b"upgrade", protocol)]


def switching_fields(requested: bytes, request: Sequence[Field], fields: Sequence[Field]) -> Fields:
    """The fields with which a 101 is passed on. Raises RefusedError if it is no answer to what was asked.

    RFC 9110 §7.8: it names the protocol, which is the one asked for. RFC 6455 §4.2.2: a WebSocket's proves by
    the client's key that the origin server has read this handshake.
    """
    protocols = [value.strip(b" \t").lower() for value in values(fields, b"upgrade")]
    if not requested or protocols != [requested.lower()] or not _names_upgrade(fields):
        raise RefusedError("origin-bad-response")
    if requested.lower() == WEBSOCKET and not _accepts(request, fields):
        raise RefusedError("origin-bad-response")
    return [*response_fields(fields, status=101), *upgrade_fields(protocols[0])]


def _accepts(request: Sequence[Field], fields: Sequence[Field]) -> bool:
    keys, accepted = values(request, b"sec-websocket-key"), values(fields, b"sec-websocket-accept")
    if len(keys) != 1 or len(accepted) != 1:
        return False
    digest = hashlib.sha1(keys[0].strip(b" \t") + _GUID, usedforsecurity=False).digest()
    return accepted[0].strip(b" \t") == codecs.encode(digest, "base64").strip()


def _names_upgrade(fields: Sequence[Field]) -> bool:
    options = b",".join(values(fields, b"connection")).lower().split(b",")
    return b"upgrade" in [option.strip(b" \t") for option in options]
