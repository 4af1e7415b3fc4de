"""The header of the PROXY protocol, versions 1 and 2, by which a proxy tells who has connected to it.

HAProxy's proxy-protocol.txt, §2.1 and §2.2. Bytes in, values out: there is no socket here.
"""

from __future__ import annotations

import re
import struct
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeAlias

End: TypeAlias = tuple[str, int]
"""An address and its port."""

LONGEST: Final = 16 * 1024  # bytes of a header; version 1 has 107 at most

_LONGEST_LINE: Final = 107  # §2.1, the CRLF included
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_FIXED: Final = 16  # bytes of version 2 before the addresses
_LINE: Final = re.compile(
    rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|(TCP[46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) ([0-9]{1,5}) ([0-9]{1,5}))"
)
_LOCAL: Final = 0  # the command of version 2
_INET: Final = {0x11: 4, 0x21: 16}  # family and protocol of TCP: the bytes of an address
# The family is not known, or is that of Unix sockets: nobody is named.
_NAMELESS: Final = frozenset((0x00, 0x31))


class ProxyHeaderError(ValueError):
    """The bytes begin with no PROXY header, or with one that says what cannot be."""


class ProxyHeader(NamedTuple):
    """A header, and how many bytes it has.

    `is_local`: the proxy itself has connected, to look after our health perhaps. Otherwise `client` has
    connected to the proxy at `server`; both are None where the proxy does not say who.
    """

    length: int
    is_local: bool = False
    client: End | None = None
    server: End | None = None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header that `data` begins with; None while more bytes are needed. Raises ProxyHeaderError."""
    if data.startswith(_SIGNATURE[: len(data)]):
        return _version_2(data) if len(data) >= _FIXED else None
    if data.startswith(b"PROXY "[: len(data)]):
        return _version_1(data)
    raise ProxyHeaderError("no PROXY header")


def _version_1(data: bytes) -> ProxyHeader | None:
    line, end, _ = data[:_LONGEST_LINE].partition(b"\r\n")
    if not end:
        if len(data) >= _LONGEST_LINE:
            raise ProxyHeaderError("a line that is too long")
        return None
    match = _LINE.fullmatch(line)
    if match is None:
        raise ProxyHeaderError("a line that is none of version 1")
    length = len(line) + len(end)
    if match[1] is None:
        return ProxyHeader(length)
    version = int(match[1][3:])
    return ProxyHeader(
        length, client=_end(match[2], match[4], version), server=_end(match[3], match[5], version)
    )


def _end(text: bytes, port: bytes, version: int) -> End:
    try:
        address = ip_address(text.decode("ascii"))
    except ValueError:
        raise ProxyHeaderError("an address that is none") from None
    if address.version != version or int(port) > 65535 or (port[:1] == b"0" and len(port) > 1):
        raise ProxyHeaderError("an address of another family, or a port that is none")
    return str(address), int(port)


def _version_2(data: bytes) -> ProxyHeader | None:
    """§2.2; what follows the addresses (TLVs, the optional checksum among them) is skipped."""
    version, command, family = data[12] >> 4, data[12] & 15, data[13]
    (rest,) = struct.unpack("!H", data[14:_FIXED])
    length = _FIXED + rest
    if version != 2 or command > 1:
        raise ProxyHeaderError("a version or a command that is not known")
    if length > LONGEST:
        raise ProxyHeaderError("a header that is too long")
    if len(data) < length:
        return None
    if command == _LOCAL:
        return ProxyHeader(length, is_local=True)
    if family in _NAMELESS:
        return ProxyHeader(length)
    size = _INET.get(family, 0)
    if not size or rest < 2 * size + 4:
        raise ProxyHeaderError("a family that is none of TCP, or too few bytes for its addresses")
    at = _FIXED + 2 * size
    client, server = (ip_address(data[first : first + size]) for first in (_FIXED, _FIXED + size))
    ports = struct.unpack("!HH", data[at : at + 4])
    return ProxyHeader(length, client=(str(client), ports[0]), server=(str(server), ports[1]))
