"""The productions that several rooms read: token, percent-escape, URL, authority; and globs (RFC 9110, 3986).

Each place that reads one adds its own strictness: none of these says that a URL or a name is a good one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final, NamedTuple, TypeAlias

import idna

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

_PORT: Final = re.compile(rb":[0-9]*\Z")
_QUOTED_PAIR: Final = re.compile(rb"\\(.)", re.DOTALL)
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


def without_port(authority: bytes) -> bytes:
    """An authority without its port, which may be empty (RFC 3986 §3.2.3)."""
    return _PORT.sub(b"", authority)


def unquoted(text: bytes) -> bytes:
    """The value of a quoted-string (RFC 9110 §5.6.4)."""
    return _QUOTED_PAIR.sub(rb"\1", text[1:-1])


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


Authority: TypeAlias = tuple[bytes, int | None]
"""A host in its one spelling and a port; None: none was given."""

DEFAULT_PORTS: Final = {b"http": 80, b"https": 443}
LONGEST_AUTHORITY: Final = 300  # bytes: a longer one names no host

# Registered names are DNS names here. RFC 3986 would let a host hold sub-delims and escapes, too, but no
# client means one, and every reader behind us has its own idea of where such a host ends.
_AUTHORITY: Final = re.compile(
    rb"(?:(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?|\[(?P<ipv6>[0-9a-f:.]+)\])(?::(?P<port>[0-9]*))?"
)


# IDNA 2003 rewrites these ("ss" for the first) and IDNA 2008 keeps them: two names in the DNS (UTS 46 §2.3).
_DEVIATIONS: Final = re.compile("[\u00df\u1e9e\u03c2\u200c\u200d]")
_DOTS: Final = re.compile("[.\u3002\uff0e\uff61]")
_HOST_PORT: Final = re.compile("(?P<host>.*?)(?P<port>(?::[0-9]*)?)", re.DOTALL)


def a_labels(authority: str) -> bytes:
    """An authority with A-labels in place of U-labels (RFC 5890 §2.3.2.1), as browsers send it.

    UnicodeError where a label has none.
    """
    match = None if authority.isascii() else _HOST_PORT.fullmatch(authority)
    if match is None:
        return authority.encode("ascii")
    labels = (
        idna.encode(label, uts46=True) if _DEVIATIONS.search(label) else label.encode("idna")
        for label in _DOTS.split(match["host"])
    )
    return b".".join(labels) + match["port"].encode("ascii")


def of_socket(host: str, port: int | None) -> bytes:
    """The authority that a socket's address is, or nothing for a path in the file system."""
    if port is None:
        return b""
    name = f"[{host.partition('%')[0]}]" if ":" in host else host
    return f"{name}:{port}".encode("ascii", "replace")


def parse_authority(text: bytes) -> Authority | None:
    """Host and port of a Host field or an authority, in their one spelling; None if it names no host.

    Userinfo, escapes and ports above 65535 are none (RFC 9110 §7.2, §4.2.4).
    """
    match = _AUTHORITY.fullmatch(text.strip(b" \t").lower()) if len(text) <= LONGEST_AUTHORITY else None
    if match is None:
        return None
    name, ipv6, digits = match["name"], match["ipv6"], (match["port"] or b"").lstrip(b"0")
    if ipv6 is not None:
        name = _ipv6(ipv6)
    if name is None or len(digits) > 5 or int(digits or b"0") > 65535:
        return None
    if match["port"] and not digits:
        return None
    return name, int(digits) if digits else None


def _ipv6(text: bytes) -> bytes | None:
    """The bracketed literal as RFC 5952 spells it, or None if `text` is no IPv6 address."""
    try:
        packed = IPv6Address(text.decode("ascii")).packed
    except ValueError:
        return None
    # Python itself writes addresses that have IPv4 in them in two ways, by its version.
    spelled = b":".join([b"%x" % int.from_bytes(packed[place : place + 2]) for place in range(0, 16, 2)])
    runs = re.findall(rb"(?:(?<=:)|^)0(?::0)+(?=:|$)", spelled)
    if runs:
        longest = max(runs, key=len)
        before, _, after = (b":%b:" % spelled).partition(b":%b:" % longest)
        spelled = before.lstrip(b":") + b"::" + after.rstrip(b":")
    return b"[%b]" % spelled
