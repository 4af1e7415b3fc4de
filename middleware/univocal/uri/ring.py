"""The decoder ring: one spelling for each of the 256 octets of a path or query.

RFC 3986 splits the octets into 66 unreserved ones, which mean the same bare and percent-encoded, 18 reserved
ones, of which only the application knows whether they do, and 172 others, which may not stand bare at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["DECODE", "ENCODE", "KEEP", "RESERVED", "RINGS", "UNRESERVED", "DecoderRing", "spellings"]

ENCODE: Final = 0
DECODE: Final = 1
KEEP: Final = 2

UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
RESERVED: Final = b":/?#[]@!$&'()*+,;="

# Bare, these would end the path, the request line or the message, or begin an escape that nobody wrote.
_NEVER_BARE: Final = frozenset([*range(0x21), *range(0x7F, 0x100)])
_DELIMITING: Final = frozenset(b"%?#")


def spellings(bare: Iterable[int], escaped: Iterable[int]) -> bytes:
    """The source of a pattern for octets that stand `bare`, or for one of the `escaped` in upper case."""
    rows: dict[int, bytes] = {}
    for octet in sorted(escaped):
        rows[octet >> 4] = rows.get(octet >> 4, b"") + b"%X" % (octet & 15)
    units = [b"%X[%b]" % (high, low) for high, low in rows.items()]
    return b"(?:[%b]++|%%(?:%b))" % (re.escape(bytes(bare)), b"|".join(units))


class DecoderRing:
    """The one spelling that each octet of a path may take: bare, or percent-encoded.

    `forms` holds 256 values. ENCODE and DECODE are absolute, KEEP lets both spellings through. Escapes come
    out in upper case and a stray "%" as "%25": a canonical path stays as it is, nothing is decoded twice.
    Raises ValueError for a ring under which a path would be ambiguous.
    """

    __slots__ = ("_canonical", "_foreign", "_spelling", "bare", "decoded", "escaped", "forms")

    def __init__(self, forms: bytes) -> None:
        _refuse_ambiguous(forms)
        self.forms = forms
        self.bare = bytes(octet for octet in range(256) if forms[octet] != ENCODE and octet != 0x25)
        self.decoded = bytes(octet for octet in range(256) if forms[octet] == DECODE)
        self.escaped = bytes(octet for octet in range(256) if forms[octet] != DECODE)
        encoded = bytes(octet for octet in range(256) if octet not in self.bare)
        self._spelling = {
            b"%%%02X" % o: b"%c" % o if forms[o] == DECODE else b"%%%02X" % o for o in range(256)
        }
        self._spelling |= {b"%c" % octet: b"%%%02X" % octet for octet in encoded}
        self._canonical = re.compile(b"%b*+" % spellings(self.bare, self.escaped))
        self._foreign = re.compile(b"%%[0-9A-Fa-f]{2}|[%b]" % re.escape(encoded))

    @classmethod
    def from_sets(cls, decode: bytes, encode: bytes) -> DecoderRing:
        """The ring of RFC 3986 with these octets decoded and those encoded; other reserved ones are kept."""
        both = set(decode) & set(encode)
        if both:
            raise ValueError(f"{_name(min(both))} is not both decoded and encoded")
        forms = bytearray(256)
        for octets, form in ((UNRESERVED, DECODE), (RESERVED, KEEP), (decode, DECODE), (encode, ENCODE)):
            for octet in octets:
                forms[octet] = form
        return cls(bytes(forms))

    def __repr__(self) -> str:
        return f"DecoderRing({self.forms!r})"

    def canonical(self, path: bytes) -> bytes:
        """`path` with each octet in its one spelling; the same object if it is already."""
        if self._canonical.fullmatch(path):
            return path
        spelling = self._spelling
        return self._foreign.sub(lambda octet: spelling[octet[0].upper()], path)


def _refuse_ambiguous(forms: bytes) -> None:
    if len(forms) != 256 or max(forms) > KEEP:
        raise ValueError("a ring has 256 values: 0 encode, 1 decode, 2 keep")
    for octet, form in enumerate(forms):
        if form == DECODE and (octet in _NEVER_BARE or octet in _DELIMITING):
            raise ValueError(f"{_name(octet)} is never decoded")
        if form == KEEP and octet in _NEVER_BARE:
            raise ValueError(f"{_name(octet)} is always encoded")
        if form == ENCODE and octet == 0x2F:
            raise ValueError("'/' between segments is never encoded")
        if form != DECODE and octet in UNRESERVED:
            raise ValueError(f"{_name(octet)} is unreserved and always decoded")


def _name(octet: int) -> str:
    return f"'{octet:c}'" if 0x20 < octet < 0x7F else f"0x{octet:02X}"


RINGS: Final[Mapping[str, DecoderRing]] = {"rfc3986": DecoderRing.from_sets(b"", b"")}
