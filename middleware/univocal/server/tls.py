"""TLS between a client's socket and the protocol that reads its requests (RFC 8446).

A handshake may take as long as a request's head, and its connection counts among the clients from the
beginning. The context is chosen before the handshake, by the
server name that the client's first message has: nothing of one context, no session either, is another's.
OpenSSL works on bytes in memory, so there is no task. Bytes to send wait only in the socket's
transport. Closing does not wait for the client's close_notify.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, cast

from univocal.http.grammar import DEFAULT_PORTS, parse_authority
from univocal.http.messages import ClientCertificate
from univocal.server.clients import CERTIFICATE, INTRODUCED, ITERATION_SHARE, SUITS
from univocal.server.listener import Listener, Newcomer
from univocal.server.turn import Uvicorn, under_uvicorn
from univocal.uri.sites import Sites


class Certificates:
    """The certificates of sites that have one of their own, by the names of the sites, and that of the rest.

    Each is in a context of its own. `authorities` names the issuers of clients' certificates, of those
    contexts that ask for one.
    """

    def __init__(
        self,
        default: ssl.SSLContext,
        of_sites: Mapping[str, ssl.SSLContext],
        sites: Sites,
        authorities: Mapping[ssl.SSLContext, bytes] = MappingProxyType({}),
    ) -> None:
        self.default = default
        self.authorities = authorities
        self._of_sites = of_sites
        self._sites = sites
        self._ports = (*sites.ports, DEFAULT_PORTS[b"https"])  # a client's server name is without any

    def named(self, hello: bytes) -> bytes | None:
        """The server name that the beginning of a connection asks for, b"" for none; None: more is to come.

        It is read only where it matters.
        """
        return server_name(hello) if self._of_sites else b""

    def of(self, host: bytes) -> ssl.SSLContext:
        """The context of the site that serves `host`, a name or a Host field's value, or `default`."""
        authority = parse_authority(host)
        if authority is not None:
            for port in self._ports:
                located = self._sites.locate(authority[0], port)
                if located is not None and located[0].name in self._of_sites:
                    return self._of_sites[located[0].name]
        return self.default

    def suits(self, context: ssl.SSLContext, name: bytes = b"") -> Callable[[bytes], bool] | None:
        """A function that tells whether a host may be asked for, of a client that named a server.

        RFC 9110 §7.4: not where the host's certificate is another. None: whichever; the certificate of all
        the rest may be good for any name, and a client without server name is shown no other. But a site
        that asks for a certificate asks at the beginning.
        """
        if context is not self.default:
            return lambda host: self.of(host) is context
        if not name or self.authorities.keys() <= {context}:
            return None
        return lambda host: (of := self.of(host)) is context or of not in self.authorities


# Bytes and records of a client's first message that are waited for; no client sends so many.
_MOST_HELLO: Final = 64 * 1024
_MOST_RECORDS: Final = 16
_HANDSHAKE, _CLIENT_HELLO = b"\x16", b"\x01"  # types of a record and of a message (RFC 8446 §4, §5.1)
_FRAME: Final = 5  # bytes before a record's content


def server_name(data: bytes) -> bytes | None:
    """The server name of a ClientHello (RFC 6066 §3), b"" for none; None: more of it is to come.

    A connection that does not begin with a ClientHello has none: the handshake fails by itself.
    """
    message, at = b"", 0
    for _ in range(_MOST_RECORDS):
        frame = data[at : at + _FRAME]
        end = at + _FRAME + int.from_bytes(frame[3:])
        if frame[:1] not in {b"", _HANDSHAKE} or len(data) > _MOST_HELLO:
            break
        if len(frame) < _FRAME or len(data) < end:
            return None
        message, at = message + data[at + _FRAME : end], end
        size = 4 + int.from_bytes(message[1:4])
        if message[:1] not in {b"", _CLIENT_HELLO}:
            break
        if len(message) >= max(size, 4):
            return _named_in(message[4:size])
    return b""


def _named_in(hello: bytes) -> bytes:
    """The first name of the extension server_name; b"" if there is none, or the message is malformed."""
    at = 34  # behind the version and the random bytes (RFC 8446 §4.1.2)
    for size in (1, 2, 1):  # of the lengths of session, cipher suites and compression methods
        at += size + int.from_bytes(hello[at : at + size])
    at += 2
    while at + 4 <= len(hello):
        kind, length = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
        if kind == 0:
            names = hello[at + 4 : at + 4 + length]
            return names[5 : 5 + int.from_bytes(names[3:5])] if names[2:3] == b"\0" else b""
        at += 4 + length
    return b""


# The short names of attributes (RFC 4514 §3), by those that OpenSSL gives.
_ATTRIBUTES: Final = {
    "commonName": "CN", "countryName": "C", "domainComponent": "DC", "localityName": "L",
    "organizationName": "O", "organizationalUnitName": "OU", "stateOrProvinceName": "ST",
    "streetAddress": "STREET", "userId": "UID",
}  # fmt: skip
_ESCAPED: Final = re.compile(r'[",+<>;\\]|^[# ]| $')


def subject_of(certificate: Mapping[str, Any]) -> bytes:
    """The subject as RFC 4514 writes it, the last part first; without one, the first alternative name."""
    parts = [
        "+".join(_ATTRIBUTES.get(name, name) + "=" + _ESCAPED.sub(r"\\\g<0>", value) for name, value in part)
        for part in certificate.get("subject", ())
    ]
    names = [f"{kind}:{name}" for kind, name in certificate.get("subjectAltName", ())]
    text = ",".join(reversed(parts)) or next(iter(names), "")
    return "".join(letter if letter.isprintable() else "?" for letter in text).encode()


# Bytes taken from OpenSSL at once: those that a record may hold (RFC 8446 §5.1).
_RECORD: Final = 16 * 1024


class TlsConnection(Newcomer):
    """A client's connection: a handshake, then one of `protocols`, by the name that ALPN agreed on.

    Without such a name it is "http/1.1". Until the handshake is complete, `clients` may evict it,
    from then on its protocol.
    """

    def __init__(
        self,
        uvicorn: Uvicorn,
        *,
        certificates: Callable[[], Certificates],
        protocols: Mapping[str, Callable[..., Any]],
        listener: Listener,
    ) -> None:
        super().__init__(uvicorn, listener, b"https")
        self._protocols = protocols
        self._certificates = certificates()
        self._transport: TlsTransport
        self._begun = False
        self._hello: bytes | None = b""  # the beginning; None: its server name is known
        self._name = b""

    @classmethod
    def with_protocols(
        cls, certificates: Callable[[], Certificates], protocols: Mapping[str, Any], listener: Listener
    ) -> type[asyncio.Protocol]:
        """A protocol for uvicorn's `http`; each connection asks `certificates` for those that are in force.

        `listener.tell` hears of each handshake that takes too long.
        """
        return under_uvicorn(partial(cls, certificates=certificates, protocols=protocols, listener=listener))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = TlsTransport(transport, self._loop, self._listener.ticks)
        peer = transport.get_extra_info("peername")
        self.below = transport
        self.enter(
            str(peer[0]) if isinstance(peer, tuple) else None,
            introduced=bool(transport.get_extra_info(INTRODUCED)),
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self.part()
        self._transport.lost(exc)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if not self._begun:
            self._begun = True
            if data[:1].isalpha():  # RFC 8446 §5.1: a record begins with its type, which is no letter
                complaint = "Refused a request: plain HTTP at a port of TLS"
                self.refuse(complaint, "plain-http", b"http")
        if self.refusal is not None:
            self.refusal.discard(len(data))
            return
        if self._hello is not None:
            data = self._hello + data
            name = self._certificates.named(data)
            self._hello = data if name is None else None
            if name is None:
                return
            self._name = name
            transport.begin(self._certificates.of(name) if name else self._certificates.default)
        transport.arrived(data)
        if transport.protocol is None:
            if not transport.shake():
                return
            self._hand_over(transport)
        transport.read()

    def _hand_over(self, transport: TlsTransport) -> None:
        """Hand the connection to the protocol that was agreed on."""
        self.part()
        agreed = transport.agreed or "http/1.1"
        transport.protocol = protocol = self._protocols[agreed](*self._uvicorn)
        transport.suits = self._certificates.suits(transport.context, self._name)
        transport.certificate = transport.shown(self._certificates.authorities.get(transport.context, b""))
        protocol.connection_made(transport)

    def eof_received(self) -> bool:
        return self._transport.ended()

    def pause_writing(self) -> None:
        if self._transport.protocol is not None:
            self._transport.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._transport.protocol is not None:
            self._transport.protocol.resume_writing()


class TlsTransport(asyncio.Transport):
    """The transport of the protocol behind: what it writes is encrypted at once and waits in `below`.

    It has what our protocols and a tunnel call.
    """

    def __init__(
        self, below: asyncio.Transport, loop: asyncio.AbstractEventLoop, ticks: Callable[[], float]
    ) -> None:
        super().__init__()
        self._below, self._loop, self._ticks = below, loop, ticks
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject
        self.certificate: ClientCertificate | None = None
        self.protocol: Any = None  # once the handshake is complete
        self.suits: Callable[[bytes], bool] | None = None
        self._paused = False
        self._closing = False
        self._deaf = False  # nothing more is read
        self._parted = False  # the client has been told that nothing more is written

    # From below

    def begin(self, context: ssl.SSLContext) -> None:
        """Begin the handshake; nothing is written or read before."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def arrived(self, data: bytes) -> None:
        """Take bytes from the socket."""
        if not (self._closing or self._deaf):
            self._incoming.write(data)

    def shake(self) -> bool:
        """Go on with the handshake; True: it is complete."""
        if self._closing:
            return False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError:
            self._flush()  # the alert that says why
            self._closing = True
            self._below.close()
            return False
        self._flush()
        return True

    def read(self) -> None:
        """Hand on what has arrived, as long as the protocol takes it, and others need not wait."""
        incoming, tls, end = self._incoming, self._tls, self._ticks() + ITERATION_SHARE
        while not (self._paused or self._closing or self._deaf):
            try:
                octets = tls.read(_RECORD)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                self._deaf = True
                if not self._parted:
                    self._flush()
                    self.abort()
                break
            if not octets:  # RFC 8446 §6.1: close_notify
                if not self.ended():
                    self.close()
                break
            self.protocol.data_received(octets)
            if not (incoming.pending or tls.pending()):
                break
            if self._ticks() >= end:
                self._below.pause_reading()
                self._loop.call_soon(self._read_on)
                break
        if self._outgoing.pending:
            self._flush()

    def _read_on(self) -> None:
        if not (self._paused or self._closing):
            self._below.resume_reading()
            self.read()

    def ended(self) -> bool:
        """Handle the end of the client's half; True: it may read on."""
        if self._deaf or self.protocol is None:
            return False  # one that has said so, and ends its connection then, has left
        self._deaf = True
        return bool(self.protocol.eof_received())

    def lost(self, exc: Exception | None) -> None:
        """Handle the loss of the connection."""
        self._closing = self._deaf = True
        protocol, self.protocol = self.protocol, None  # objects in a circle wait for the garbage collector
        if protocol is not None:
            protocol.connection_lost(exc)

    @property
    def agreed(self) -> str | None:
        """The protocol that ALPN agreed on (RFC 7301)."""
        return self._tls.selected_alpn_protocol()

    def shown(self, authority: bytes) -> ClientCertificate | None:
        """The certificate that the client has shown, if its context asks for one of this authority."""
        certificate = self._tls.getpeercert() if authority else None
        return ClientCertificate(subject_of(certificate), authority) if certificate else None

    @property
    def context(self) -> ssl.SSLContext:
        """The context whose certificate the client was shown."""
        return self._tls.context

    # Called by the protocol above

    def write(self, data: bytes | bytearray | memoryview) -> None:
        # Nearly every answer is one record: it takes no detour.
        if self._closing or self._parted or len(data) > _RECORD or not len(data):
            self.writelines((data,))
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:
            self.abort()
        else:
            self._flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self._closing or self._parted:
            return
        try:
            for data in list_of_data:
                self._encrypt(data)
        except ssl.SSLError:
            self.abort()
        else:
            self._flush()

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        written, size = 0, len(data)
        while written < size:
            written += self._tls.write(memoryview(data)[written:] if written else data)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        return self._below.can_write_eof()

    def write_eof(self) -> None:
        self._part()
        self._below.write_eof()

    def _part(self) -> None:
        """Tell the client that nothing more comes, without waiting for it to say the same (RFC 8446 §6.1)."""
        if not self._parted:
            self._parted = True
            with suppress(ssl.SSLError):  # it has not said so yet
                self._tls.unwrap()
            self._flush()

    def close(self) -> None:
        if not self._closing:
            self._part()
            self._closing = True
            self._below.close()

    def abort(self) -> None:
        self._closing = True
        self._below.abort()

    def is_closing(self) -> bool:
        return self._closing or self._below.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._below.resume_reading()
        if self._incoming.pending or self._tls.pending():
            self._loop.call_soon(self.read)

    def is_reading(self) -> bool:
        return not (self._paused or self._closing)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self.protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "sslcontext":
                return self.context
            case "ssl_object":
                return self._tls
            case _ if name == SUITS:
                return self.suits
            case _ if name == CERTIFICATE:
                return self.certificate
            case _:
                return self._below.get_extra_info(name, default)
