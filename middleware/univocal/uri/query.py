"""The query's canonical form."""

from __future__ import annotations

import re
from typing import Final

from univocal.uri.ring import RESERVED, UNRESERVED

__all__ = ["BARE", "encode_disallowed"]

# What may stand in a query besides escapes: RFC 3986 §3.4, and the "[" and "]" that browsers send bare.
BARE: Final = bytes(octet for octet in UNRESERVED + RESERVED if octet != 0x23)

_DISALLOWED: Final = re.compile(rb"%%(?![0-9A-Fa-f]{2})|[^%%%b]" % re.escape(BARE))


def encode_disallowed(query: bytes) -> bytes:
    """`query` as it is, but for octets that may not stand in one: they are encoded. Nothing is decoded."""
    return _DISALLOWED.sub(lambda octet: b"%%%02X" % ord(octet[0]), query)
