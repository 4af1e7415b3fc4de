"""A request's head as it goes out, and its word about the message (RFC 9112 §3, §5, §6)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from univocal.http.bonds import authenticates_connection
from univocal.http.fields import content_length_value
from univocal.http.grammar import TOKEN_OCTETS
from univocal.http.methods import IDEMPOTENT
from univocal.http.roles import OriginRequest
from univocal.origin.failures import InvalidRequestError

_TARGET: Final = bytes(octet for octet in range(256) if octet > 0x20 and octet != 0x7F)
_TELLING: Final = frozenset(
    {b"authorization", b"content-length", b"transfer-encoding", b"expect", b"upgrade"}
)

_NUL: Final = 0

# Clients use few combinations of names: they are remembered, of heads below so many bytes.
_REMEMBERED: Final = 4096


def spell(request: OriginRequest) -> None:
    """Spell a request's head, its target and fields byte for byte, and work out what they say of the message.

    Raises InvalidRequestError if it would not arrive as the one request that was meant.
    """
    method, target, fields = request.method, request.target, request.fields
    octets = b"\r\n".join([name + b": " + value for name, value in fields]) + b"\r\n\r\n"
    lines = len(fields) + 1  # with the blank one
    if octets.count(b"\n") != lines or octets.count(b"\r") != lines or _NUL in octets:
        raise InvalidRequestError("CR, LF or NUL within the request's head")
    names = tuple([name for name, _ in fields])
    tell_nothing = _tell_nothing if len(octets) < _REMEMBERED else _tell_nothing.__wrapped__
    is_plain = tell_nothing(names)
    if not target or target.translate(None, _TARGET):
        raise InvalidRequestError("the request target is empty or has blanks or control characters")
    # The answer to CONNECT is a tunnel, not a response (RFC 9110 §9.3.6).
    if method not in IDEMPOTENT and (
        not method or method.translate(None, TOKEN_OCTETS) or method == b"CONNECT"
    ):
        raise InvalidRequestError("the method is no token, or CONNECT")
    request.wire = b"%b %b HTTP/1.1\r\n%b" % (method, target, octets)
    request.length, request.expects_continue, request.upgrades, request.authenticates = 0, False, False, False
    if not is_plain:
        _read_fields(request)


@lru_cache(maxsize=256)
def _tell_nothing(names: tuple[bytes, ...]) -> bool:
    """True if field names say nothing that matters; raises unless each is a token and one is Host."""
    lowered = [name.lower() for name in names]
    if b"" in lowered or b"".join(lowered).translate(None, TOKEN_OCTETS):
        raise InvalidRequestError("a field name is no token")
    if lowered.count(b"host") != 1:
        raise InvalidRequestError("no Host field, or two")
    return _TELLING.isdisjoint(lowered)


def _read_fields(request: OriginRequest) -> None:
    """Work out what the fields say of the content, of the connection, and of another protocol."""
    names = [name.lower() for name, _ in request.fields]
    values = {name: value.strip(b" \t") for name, (_, value) in zip(names, request.fields, strict=True)}
    request.length = _content_length(names, values)
    request.expects_continue = values.get(b"expect", b"").lower() == b"100-continue"
    request.upgrades = b"upgrade" in values
    credentials = values.get(b"authorization")
    request.authenticates = credentials is not None and authenticates_connection(credentials)


def _content_length(names: list[bytes], values: dict[bytes, bytes]) -> int | None:
    """Bytes of content that follow; None: chunked (RFC 9112 §6)."""
    if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
        raise InvalidRequestError("the length of the content is told twice")
    if b"transfer-encoding" in values:
        if values[b"transfer-encoding"].lower() != b"chunked":
            raise InvalidRequestError("no transfer coding but chunked is spoken here")
        return None
    length = content_length_value(values.get(b"content-length", b"0"))
    if length is None:
        raise InvalidRequestError("Content-Length is no number")
    return length
