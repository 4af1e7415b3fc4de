"""The productions that several rooms read: token, percent-escape, URL; and globs (RFC 9110, 3986).

Each place that reads one adds its own strictness: none of these says that a URL or a name is a good one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
"""The characters that mean the same escaped and bare (RFC 3986 §2.3)."""

RESERVED: Final = b":/?#[]@!$&'()*+,;="
"""The characters that may be delimiters (RFC 3986 §2.2)."""

SIGNS: Final = b"!#$%&'*+-.^_`|~"
"""The bytes of a token that are neither letters nor digits."""

TOKEN_OCTETS: Final = SIGNS + b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

TOKEN: Final = rb"[%b0-9A-Za-z]+" % re.escape(SIGNS)
"""The source of a pattern for a token."""

UNICODE_ESCAPE: Final = rb"%[uU][0-9A-Fa-f]{4}"
"""The source of a pattern for the escape of a UTF-16 code unit, which IIS reads and no RFC knows."""

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_ABSOLUTE: Final = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)


class Absolute(NamedTuple):
    """An absolute URL's parts, each as it was spelled; `rest` begins with "/", "?" or "#", or is empty."""

    scheme: bytes
    authority: bytes
    rest: bytes


def is_token(text: bytes) -> bool:
    """All of `text` is one token."""
    return text != b"" and not text.translate(None, TOKEN_OCTETS)


def quoted(text: bytes) -> bytes:
    """`text` as a quoted-string (RFC 9110 §5.6.4); of visible ASCII it is an sf-string (RFC 8941 §3.3.3)."""
    return b'"%b"' % text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def unescape(text: bytes) -> bytes:
    """`text` with each percent-escape decoded, once; a percent sign without two digits stays."""
    return _ESCAPE.sub(_octet, text) if b"%" in text else text


def _octet(escape: re.Match[bytes]) -> bytes:
    return bytes((int(escape[1], 16),))


def split_absolute(url: bytes) -> Absolute | None:
    """The parts of a URL that names a scheme and, even if it is empty, an authority; None for others."""
    match = _ABSOLUTE.fullmatch(url)
    return Absolute(match[1], match[2], match[3]) if match is not None else None


def compile_globs(globs: Iterable[bytes], *, ignores_case: bool = False) -> re.Pattern[bytes] | None:
    """One expression whose full match is a match of any of `globs`; None without any.

    Each piece between stars matches at its first place, without backtracking: an attacker's text costs no
    more than another.
    """
    alternatives = []
    for glob in globs:
        start, *rest = (re.escape(piece).replace(rb"\?", b".") for piece in glob.split(b"*"))
        middle = b"".join(b"(?>.*?%b)" % piece for piece in rest[:-1])
        alternatives.append(b"%b%b.*%b" % (start, middle, rest[-1]) if rest else start)
    expression = b"|".join(alternatives)
    if ignores_case:
        expression = b"(?i:%b)" % expression
    return re.compile(expression, re.DOTALL) if alternatives else None
