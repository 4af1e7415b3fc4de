"""A request's head as it goes out, and its word about the message (RFC 9112 §3, §5, §6)."""

from __future__ import annotations

from typing import Final

from univocal.http.bonds import authenticates_connection
from univocal.http.grammar import TOKEN_OCTETS
from univocal.http.messages import IDEMPOTENT, content_length_value
from univocal.http.roles import OriginRequest
from univocal.http.tables import remember
from univocal.origin.failures import InvalidRequestError

# Makes a letter of each byte that a target may have, and of no other.
_LETTERS: Final = bytes([0x61 if octet > 0x20 and octet != 0x7F else 0 for octet in range(256)])
_TELLING: Final = frozenset(
    {b"authorization", b"content-length", b"transfer-encoding", b"expect", b"upgrade"}
)

_NUL: Final = 0
# Clients use few combinations of names: so many are remembered, of at most so many bytes.
_MOST: Final = 256
_LONGEST: Final = 2048


class _Form:
    """The bytes of heads with fields of these names, in their order, around what differs.

    Raises InvalidRequestError unless each name is a token and one is Host.
    """

    def __init__(self, names: tuple[bytes, ...]) -> None:
        lowered = [name.lower() for name in names]
        if b"" in lowered or b"".join(lowered).translate(None, TOKEN_OCTETS):
            raise InvalidRequestError("a field name is no token")
        if lowered.count(b"host") != 1:
            raise InvalidRequestError("no Host field, or two")
        self.is_plain = _TELLING.isdisjoint(lowered)  # the names say nothing that matters
        lines = [name.replace(b"%", b"%%") + b": %b\r\n" for name in names]
        self.template = b"".join((b"%b %b HTTP/1.1\r\n", *lines, b"\r\n"))


_forms: Final[dict[tuple[bytes, ...], _Form]] = {}


def spell(request: OriginRequest) -> None:
    """Spell a request's head, its target and fields byte for byte, and work out what they say of the message.

    Raises InvalidRequestError if it would not arrive as the one request that was meant.
    """
    method, target, fields = request.method, request.target, request.fields
    if not target.translate(_LETTERS).isalpha():
        raise InvalidRequestError("the request target is empty or has blanks or control characters")
    # The answer to CONNECT is a tunnel, not a response (RFC 9110 §9.3.6).
    if method not in IDEMPOTENT and (
        not method or method.translate(None, TOKEN_OCTETS) or method == b"CONNECT"
    ):
        raise InvalidRequestError("the method is no token, or CONNECT")
    names = tuple([name for name, _ in fields])
    form = _forms.get(names)
    if form is None:
        form = _Form(names)
        if sum(map(len, names)) <= _LONGEST:
            remember(_forms, names, form, _MOST)
    request.wire = wire = form.template % (method, target, *[value for _, value in fields])
    lines = len(fields) + 2  # with the request line and the blank one
    if wire.count(b"\n") != lines or wire.count(b"\r") != lines or _NUL in wire:
        raise InvalidRequestError("CR, LF or NUL within the request's head")
    request.length, request.expects_continue, request.upgrades, request.authenticates = 0, False, False, False
    if not form.is_plain:
        _read_fields(request)


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
