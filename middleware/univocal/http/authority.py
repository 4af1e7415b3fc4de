"""An authority: a host in its one spelling, and a port (RFC 3986 §3.2, RFC 9110 §4.2, §7.2).

Each place that reads one adds its own strictness: nothing here says that a name is a good one.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, TypeAlias

import idna

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
