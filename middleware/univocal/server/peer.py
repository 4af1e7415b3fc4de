"""The client at the other end of a connection: its ends, whether it takes what is sent, and its refusal."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import sys
import termios
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import Final, NamedTuple

from univocal.http.messages import ClientCertificate
from univocal.http.problem import problem

# The name by which a transport tells what `Certificates.suits` gave for it.
SUITS: Final = "univocal.suits"
# The name by which a transport tells that a PROXY header named the client.
INTRODUCED: Final = "univocal.introduced"
# The name by which a transport tells the client's certificate, where it was asked for one and showed it.
CERTIFICATE: Final = "univocal.certificate"


class ClientPeer(NamedTuple):
    """The client at the other end of a connection, and our address and name that it came by."""

    client: tuple[str, int] | None
    address: str | None  # the client's, without port
    server: tuple[str, int | None] | None
    scheme: bytes  # b"http" or b"https"
    # The hosts that may be asked for here, by the listener and by the certificate that the client was shown;
    # None: all.
    suits: Callable[[bytes], bool] | None
    introduced: bool = False  # by a PROXY header
    certificate: ClientCertificate | None = None


def peer_of(transport: asyncio.BaseTransport, serves: Callable[[bytes], bool] | None = None) -> ClientPeer:
    """The ends of a connection, as asyncio knows them; a Unix socket's have no port.

    `serves` tells which hosts the listener serves; None: all.
    """
    name, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    client = (str(name[0]), int(name[1])) if isinstance(name, tuple) else None
    server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else (own, None) if own else None
    scheme = b"https" if transport.get_extra_info("sslcontext") else b"http"
    address = None if client is None else client[0]
    suits = _both(transport.get_extra_info(SUITS), serves)
    introduced = bool(transport.get_extra_info(INTRODUCED))
    certificate = transport.get_extra_info(CERTIFICATE)
    return ClientPeer(client, address, server, scheme, suits, introduced, certificate)


def _both(
    suits: Callable[[bytes], bool] | None, serves: Callable[[bytes], bool] | None
) -> Callable[[bytes], bool] | None:
    """The hosts that suit the certificate and are served by the listener."""
    if suits is None or serves is None:
        return suits or serves
    return lambda host: suits(host) and serves(host)


class Delivery:
    """Watches what waits to be sent over one transport: whether anything of it moves in so many `seconds`.

    0: it is never looked at. It need not be watched while the transport takes more, so nobody pays for it
    whose client reads.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self.seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._before = 0  # bytes that the client had not taken yet when it was last looked
        self._moved = False  # since then the transport has taken more

    def watch(self, give_up: Callable[[], None]) -> None:
        """Look from time to time, as long as something waits; `give_up` is called once nothing of it moves.

        It is held while that is looked for and no longer: it belongs to the connection, which holds this.
        """
        if self._timer is None and self.seconds:
            self._moved = False
            self._before = self._untaken()
            self._timer = self._loop.call_later(self.seconds, self._look, give_up)

    def moved(self) -> None:
        """Resume writing: the transport takes more."""
        self._moved = True

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, give_up: Callable[[], None]) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():
            return
        if self._moved or self._untaken() < self._before:
            self.watch(give_up)
        else:
            give_up()

    def _untaken(self) -> int:
        """The bytes that the client has not confirmed: those that wait here and in the system's queue.

        A transport reports free room in that queue late. A slow client may need longer than its timeout until
        then.
        """
        waiting = self._transport.get_write_buffer_size()
        socket = self._transport.get_extra_info("socket")
        if socket is None or sys.platform != "linux":
            return waiting
        try:
            queued = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return waiting
        return waiting + int(struct.unpack("i", queued)[0])


def is_gone(transport: asyncio.Transport) -> bool:
    """Tell whether the client has reset the connection or closed all of it, as far as the system knows.

    A transport whose client sends no more reads nothing, and does not hear of that.
    """
    socket = transport.get_extra_info("socket")
    if socket is None or sys.platform != "linux":
        return False
    poll = select.poll()
    poll.register(socket.fileno(), 0)  # errors and the end of both directions are told unasked
    return bool(poll.poll(0))


LINGER: Final = 2.0  # seconds in which a client may still read why it was refused (RFC 9112 §9.6)
LINGER_BYTES: Final = 1024 * 1024  # that it may still send meanwhile; nobody parses or keeps them


class Refusal:
    """An answer by HTTP/1.1 that is the last: its client may read it, and then the connection ends.

    The caller hands over what still comes, and cancels the `timer` when the connection is lost.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        reasons: Sequence[str],
        request_id: bytes = b"",
    ) -> None:
        answer = problem(reasons, request_id=request_id)
        lines = [b"HTTP/1.1 %b\r\ndate: %b\r\n" % (answer.status_line, formatdate(usegmt=True).encode())]
        lines += [b"%b: %b\r\n" % field for field in answer.fields]
        transport.write(b"".join([*lines, b"connection: close\r\n\r\n", answer.body]))
        if transport.can_write_eof():
            transport.write_eof()
        self._transport = transport
        self._left = LINGER_BYTES
        self.timer = loop.call_later(LINGER, transport.abort)

    def pass_over(self, octets: int) -> None:
        """Drop received bytes; close the connection of a client that sends too many."""
        self._left -= octets
        if self._left < 0:
            self._transport.abort()
