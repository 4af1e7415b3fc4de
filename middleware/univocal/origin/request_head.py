"""A request's head as it goes out, and what it says about the message (RFC 9112 §3, §5, §6)."""

from __future__ import annotations

from typing import Final, NamedTuple

import httpx

__all__ = ["RequestHead", "request_head"]

_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TARGET: Final = bytes(octet for octet in range(256) if octet > 0x20 and octet != 0x7F)
_TELLING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade"})

# RFC 9110 §9.2.2: sending such a request twice has the effect of sending it once.
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class RequestHead(NamedTuple):
    """The bytes of a head; how much content follows; what may be done with the request."""

    wire: bytes
    length: int | None  # octets of content; None: chunked
    expects_continue: bool  # RFC 9110 §10.1.1
    upgrades: bool
    repeatable: bool  # idempotent, and without content
    is_head: bool


def request_head(request: httpx.Request) -> RequestHead:
    """The head of `request`, its target byte for byte as in extensions["target"].

    Raises httpx.LocalProtocolError for what would not arrive as the one request that was meant.
    """
    fields = request.headers.raw
    names = [name.lower() for name, _ in fields]
    if b"host" not in names:
        fields.insert(0, (b"host", request.url.netloc))
        names.insert(0, b"host")
    target = request.extensions.get("target")
    if target is None:
        target = request.url.raw_path
    method = request.method.encode("latin-1", "replace")
    lines = b"\r\n".join([b": ".join(field) for field in fields])
    wire = b"%b %b HTTP/1.1\r\n%b\r\n\r\n" % (method, target, lines)
    _refuse_splitting(wire, method, target, names)
    length: int | None = 0
    expects = upgrades = False
    if not _TELLING.isdisjoint(names):
        values = {name: value.strip(b" \t") for name, (_, value) in zip(names, fields, strict=True)}
        length = _content_length(names, values)
        expects = values.get(b"expect", b"").lower() == b"100-continue"
        upgrades = b"upgrade" in values
    repeatable = length == 0 and request.method in _IDEMPOTENT
    return RequestHead(wire, length, expects, upgrades, repeatable, request.method == "HEAD")


def _refuse_splitting(wire: bytes, method: bytes, target: bytes, names: list[bytes]) -> None:
    """Raise unless `wire` is one request line and one line for each name."""
    lines = len(names) + 2  # with the request line and the blank one
    if wire.count(b"\n") != lines or wire.count(b"\r") != lines or b"\0" in wire:
        raise httpx.LocalProtocolError("CR, LF or NUL within the request's head")
    if not target or target.translate(None, _TARGET):
        raise httpx.LocalProtocolError("the request target is empty or has blanks or control characters")
    if b"" in names or b"".join(names).translate(None, _TOKEN):
        raise httpx.LocalProtocolError("a field name is no token")
    if names.count(b"host") > 1:
        raise httpx.LocalProtocolError("two Host fields")
    # The answer to CONNECT is a tunnel, not a response (RFC 9110 §9.3.6).
    if not method or method.translate(None, _TOKEN) or method == b"CONNECT":
        raise httpx.LocalProtocolError("the method is no token, or CONNECT")


def _content_length(names: list[bytes], values: dict[bytes, bytes]) -> int | None:
    """Octets of content that follow; None: chunked (RFC 9112 §6)."""
    if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
        raise httpx.LocalProtocolError("the length of the content is told twice")
    if b"transfer-encoding" in values:
        if values[b"transfer-encoding"].lower() != b"chunked":
            raise httpx.LocalProtocolError("no transfer coding but chunked is spoken here")
        return None
    length = values.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18:
        raise httpx.LocalProtocolError("Content-Length is no number")
    return int(length)
