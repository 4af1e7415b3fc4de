"""Connections whose client is not the one at the other end of the socket.

A proxy introduces its client by the header of the PROXY protocol (its proxy-protocol.txt, §2.1 and §2.2).
A Unix socket has no address at its other end. In both cases a connection's protocol, TLS or HTTP, gets a
transport that tells other ends than the socket's.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, TypeAlias

from univocal.judge.trust import Networks, within
from univocal.server.clients import INTRODUCED, as_ipv4
from univocal.server.listener import Listener, Newcomer
from univocal.server.turn import Uvicorn, under_uvicorn

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
# The family is not known, or is that of Unix sockets: no client is named.
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
        raise ProxyHeaderError("an invalid line of version 1")
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
        raise ProxyHeaderError("an invalid address") from None
    if address.version != version or int(port) > 65535 or (port[:1] == b"0" and len(port) > 1):
        raise ProxyHeaderError("an address of another family, or an invalid port")
    return as_ipv4(str(address)), int(port)


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
        raise ProxyHeaderError("a family other than TCP, or too few bytes for its addresses")
    at = _FIXED + 2 * size
    client, server = (ip_address(data[first : first + size]) for first in (_FIXED, _FIXED + size))
    ports = struct.unpack("!HH", data[at : at + 4])
    return ProxyHeader(length, client=(as_ipv4(str(client)), ports[0]), server=(str(server), ports[1]))


# The client at a Unix socket: a program of this machine, with the rights of one that connects by loopback.
UNIX_CLIENT: Final[End] = ("127.0.0.1", 0)

# The calls that go to the socket's transport as they are, without a detour.
_CALLS: Final = (
    *("write", "writelines", "write_eof", "can_write_eof", "close", "abort", "is_closing"),
    *("pause_reading", "resume_reading", "is_reading", "set_protocol", "get_protocol"),
    *("get_write_buffer_size", "get_write_buffer_limits", "set_write_buffer_limits"),
)


class IntroducedTransport(asyncio.Transport):
    """A socket's transport that names other ends of the connection; None: no client is named."""

    def __init__(
        self, below: asyncio.Transport, client: End | None, server: End | None, *, introduced: bool = False
    ) -> None:
        super().__init__()
        self._below = below
        self._ends: dict[str, object] = {"peername": client, INTRODUCED: introduced}
        if server is not None:
            self._ends["sockname"] = server
        for name in _CALLS:
            setattr(self, name, getattr(below, name))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._ends[name] if name in self._ends else self._below.get_extra_info(name, default)


class Introduction(Newcomer):
    """The beginning of a connection, until it is known who the client is; then `protocol` has it.

    With `proxies`, connections from those networks begin with a PROXY header, and no others do. The protocol
    below is asyncio's own to call from then on: there is no detour.
    """

    def __init__(
        self,
        uvicorn: Uvicorn,
        *,
        protocol: Callable[..., asyncio.Protocol],
        listener: Listener,
        proxies: Callable[[], Networks],
        answers: bool,
    ) -> None:
        super().__init__(uvicorn, listener, b"http" if answers else b"https")
        self._protocol = protocol
        self._proxies, self._answers = proxies, answers
        self._received = b""
        self._client: End

    @classmethod
    def before(
        cls,
        protocol: Any,
        listener: Listener,
        proxies: Callable[[], Networks] = tuple,
        *,
        answers: bool = True,
    ) -> type[asyncio.Protocol]:
        """A protocol for uvicorn's `http`, in front of another one.

        `answers`: a connection without the header that it should have gets a problem by HTTP.
        """
        made = partial(cls, protocol=protocol, listener=listener, proxies=proxies, answers=answers)
        return under_uvicorn(made)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.below = transport
        name = transport.get_extra_info("peername")
        is_unix = not isinstance(name, tuple)
        self._client = client = UNIX_CLIENT if is_unix else (as_ipv4(str(name[0])), int(name[1]))
        if within(client[0], self._proxies()):
            self.enter(client[0])
        else:
            self._hand_over(IntroducedTransport(transport, client, None) if is_unix else transport)

    def data_received(self, data: bytes) -> None:
        if self.refusal is not None:
            self.refusal.discard(len(data))
            return
        self._received += data
        try:
            header = read_proxy_header(self._received)
        except ProxyHeaderError as error:
            # A connection of a proxy that should introduce its client and does not.
            complaint = f"Refused a connection of a trusted proxy: {error}"
            self.refuse(complaint, "bad-proxy-header", answers=self._answers)
            self._received = b""
            return
        if header is None:
            return
        self.part()
        rest, self._received = self._received[header.length :], b""
        client = self._client if header.is_local else header.client
        protocol = self._hand_over(
            IntroducedTransport(self.below, client, header.server, introduced=not header.is_local)
        )
        if rest:
            protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.part()

    def _hand_over(self, transport: asyncio.Transport) -> asyncio.Protocol:
        """Hand the connection, whose client is known, to the protocol."""
        protocol = self._protocol(*self._uvicorn)
        self.below.set_protocol(protocol)
        protocol.connection_made(transport)
        return protocol
