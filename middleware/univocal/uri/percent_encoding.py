"""The percent-encoding table (a profile's `ring`): one spelling for each byte of a path or query.

RFC 3986 splits the bytes into three sets. The 66 unreserved ones mean the same bare and percent-encoded. Of
the 18 reserved ones, only the application knows whether they do. The 172 others may not stand bare at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from univocal.http.grammar import RESERVED, UNICODE_ESCAPE, UNRESERVED

ENCODE: Final = 0
DECODE: Final = 1
KEEP: Final = 2


# Bare, these would end the path, the request line or the message, or begin an escape that was not one.
_NEVER_BARE: Final = frozenset([*range(0x21), *range(0x7F, 0x100)])
_DELIMITING: Final = frozenset(b"%?#")


def spellings(bare: Iterable[int], escaped: Iterable[int]) -> bytes:
    """The source of a pattern for bytes that stand `bare`, or for one of the `escaped` in upper case."""
    rows: dict[int, bytes] = {}
    for octet in sorted(escaped):
        rows[octet >> 4] = rows.get(octet >> 4, b"") + b"%X" % (octet & 15)
    units = [b"%X[%b]" % (high, low) for high, low in rows.items()]
    return b"(?:[%b]++|%%(?:%b))" % (re.escape(bytes(bare)), b"|".join(units))


class DecoderRing:
    """The one spelling that each byte of a path may take: bare, or percent-encoded.

    `forms` holds 256 values. ENCODE and DECODE are absolute, KEEP lets both spellings through. Escapes come
    out in upper case and a stray "%" as "%25": a canonical path stays as it is, nothing is decoded twice.
    Where `plus_is_space`, "+" is another spelling of "%20". With `unicode_escapes`, "%uXXXX" stays as it is.
    Raises ValueError for a ring under which a path would be ambiguous.
    """

    def __init__(self, forms: bytes, *, plus_is_space: bool = False, unicode_escapes: bool = False) -> None:
        _refuse_ambiguous(forms)
        self.forms = forms
        self.plus_is_space = plus_is_space
        self.unicode_escapes = unicode_escapes
        never = b"%+" if plus_is_space else b"%"
        self.bare = bytes(octet for octet in range(256) if forms[octet] != ENCODE and octet not in never)
        self.decoded = bytes(octet for octet in range(256) if forms[octet] == DECODE)
        self.escaped = bytes(octet for octet in range(256) if forms[octet] != DECODE)
        encoded = frozenset(octet for octet in range(256) if octet not in self.bare)
        self._spelling = {
            b"%%%02X" % o: b"%c" % o if forms[o] == DECODE else b"%%%02X" % o for o in range(256)
        }
        self._spelling |= {b"%c" % octet: b"%%%02X" % octet for octet in encoded}
        if plus_is_space:
            self._spelling[b"+"] = b"%20"
        kept = UNICODE_ESCAPE + b"|" if unicode_escapes else b""
        self._canonical = re.compile(b"(?>(?:%b%b)*)" % (kept, spellings(self.bare, self.escaped)))
        self._escape = re.compile(b"%b%%(?:[0-9A-Fa-f]{2})?" % kept)
        self._encoded = encoded - set(b"%")

    @classmethod
    def from_sets(cls, decode: bytes, encode: bytes) -> DecoderRing:
        """The table of RFC 3986 with these bytes decoded and those encoded; other reserved ones are kept."""
        both = set(decode) & set(encode)
        if both:
            raise ValueError(f"{octet_name(min(both))} is not both decoded and encoded")
        forms = bytearray(256)
        for octets, form in ((UNRESERVED, DECODE), (RESERVED, KEEP), (decode, DECODE), (encode, ENCODE)):
            for octet in octets:
                forms[octet] = form
        return _ring_of(bytes(forms))

    def __repr__(self) -> str:
        unicode = ", unicode_escapes=True" if self.unicode_escapes else ""
        return f"DecoderRing({self.forms!r}, plus_is_space={self.plus_is_space}{unicode})"

    def with_unicode_escapes(self) -> DecoderRing:
        """This ring, under which "%uXXXX" stays as it came."""
        return DecoderRing(self.forms, plus_is_space=self.plus_is_space, unicode_escapes=True)

    def for_queries(self) -> DecoderRing:
        """This ring for names and values of a query, where what delimits them is data only as an escape.

        A bare "+" is a space for readers of forms, and a bare ";" delimits for some: neither is encoded.
        """
        kept = {octet for octet in b"&=+;" if self.forms[octet] == DECODE} | set(
            b";" if self.plus_is_space else b"+;"
        )
        forms = bytes(KEEP if octet in kept else form for octet, form in enumerate(self.forms))
        return DecoderRing(forms, plus_is_space=self.plus_is_space, unicode_escapes=self.unicode_escapes)

    def canonical(self, path: bytes) -> bytes:
        """`path` with each byte in its one spelling; the same object if it is already."""
        if self._canonical.fullmatch(path):
            return path
        spelling = self._spelling
        if b"%" in path:
            path = self._escape.sub(lambda octet: spelling.get(octet[0].upper(), octet[0]), path)
        for octet in self._encoded.intersection(path):  # no escape has any of them, nor a spelling of another
            path = path.replace(b"%c" % octet, spelling[b"%c" % octet])
        return path


@lru_cache(maxsize=64)
def _ring_of(forms: bytes) -> DecoderRing:
    """The table of these forms: many profiles have the same, and its patterns take a while to compile."""
    return DecoderRing(forms)


def _refuse_ambiguous(forms: bytes) -> None:
    if len(forms) != 256 or max(forms) > KEEP:
        raise ValueError("a percent-encoding table has 256 values: 0 encode, 1 decode, 2 keep")
    for octet, form in enumerate(forms):
        if form == DECODE and (octet in _NEVER_BARE or octet in _DELIMITING):
            raise ValueError(f"{octet_name(octet)} is never decoded")
        if form == KEEP and octet in _NEVER_BARE:
            raise ValueError(f"{octet_name(octet)} is always encoded")
        if form == ENCODE and octet == 0x2F:
            raise ValueError("'/' between segments is never encoded")
        if form != DECODE and octet in UNRESERVED:
            raise ValueError(f"{octet_name(octet)} is unreserved and always decoded")


def octet_name(octet: int) -> str:
    """A byte in words: its character in quotes, or its hexadecimal number."""
    return f"'{octet:c}'" if 0x20 < octet < 0x7F else f"0x{octet:02X}"


def _escaping(octets: bytes, *, keep: bytes = b"", plus_is_space: bool = False) -> DecoderRing:
    """The table of a server that decodes everything and escapes `octets` again, besides those never bare."""
    forms = bytearray([DECODE]) * 256
    for octet in [*_NEVER_BARE, *_DELIMITING, *octets]:
        forms[octet] = ENCODE
    for octet in keep:
        forms[octet] = KEEP
    return DecoderRing(bytes(forms), plus_is_space=plus_is_space)


# nginx escapes by one table per purpose (ngx_escape_uri), and since 1.21.1 what RFC 3986 lets stand bare
# nowhere. Its table for components and that of ngx_lua are for parts between slashes: there an escaped slash
# was data.
_NGINX_1_21: Final = b'"<>\\^`{|}'
_COMPONENT: Final = bytes(octet for octet in RESERVED if octet != 0x2F)

RINGS: Final[Mapping[str, DecoderRing]] = {
    "rfc3986": DecoderRing.from_sets(b"", b""),
    "nginx-uri": _escaping(_NGINX_1_21),
    "nginx-args": _escaping(_NGINX_1_21 + b"&+;"),
    "nginx-uri-component": _escaping(_NGINX_1_21 + _COMPONENT, keep=b"/"),
    "nginx-1.13-uri": _escaping(b""),
    "nginx-1.13-args": _escaping(b"&+;"),
    "ngx-lua": _escaping(_NGINX_1_21 + bytes(set(_COMPONENT) - set(b"!'()*")), keep=b"/", plus_is_space=True),
}
