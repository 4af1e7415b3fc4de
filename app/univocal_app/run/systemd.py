"""The service manager: sockets that it has bound (sd_listen_fds(3)), and news for it (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

from univocal.http.errors import ConfigurationError

FIRST: Final = 3  # the descriptor behind standard input, output and error
NAMES: Final = ("listen", "admin", "listen_tls")  # of sockets: FileDescriptorName= of their units
PATIENCE: Final = 1.0  # seconds that the manager may take for one message

_SOURCE: Final = "systemd"


def passed_sockets(environ: MutableMapping[str, str]) -> dict[str, list[socket.socket]]:
    """The listening sockets that were passed to this process, by their settings, as far as they were.

    The variables that tell of them are taken out of `environ`: they are for this process alone. Sockets
    without names are "listen", "admin" and "listen_tls" in this order; several may have one name. Raises
    ConfigurationError for any other.
    """
    number, count, names = (environ.pop(f"LISTEN_{name}", "") for name in ("PID", "FDS", "FDNAMES"))
    if number != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return {}
    named = names.split(":") if names else list(NAMES)
    sockets = dict[str, list[socket.socket]]()
    for descriptor, name in zip(range(FIRST, FIRST + int(count)), named, strict=False):
        if name not in NAMES:
            allowed = "FileDescriptorName=listen, listen_tls or admin for each socket"
            raise ConfigurationError(_SOURCE, "LISTEN_FDNAMES", names, allowed)
        sockets.setdefault(name, []).append(_passed(descriptor, name))
    if int(count) > len(named):
        allowed = f"at most {len(named)} sockets, or a name for each"
        raise ConfigurationError(_SOURCE, "LISTEN_FDS", int(count), allowed)
    return sockets


def _passed(descriptor: int, name: str) -> socket.socket:
    allowed = "a socket that listens: ListenStream=HOST:PORT or a path, Accept=no"
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigurationError(_SOURCE, name, error.strerror, allowed) from None
    if not listens or sock.family not in {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}:
        raise ConfigurationError(_SOURCE, name, f"{sock.family.name} {sock.type.name}", allowed)
    sock.setblocking(False)
    return sock


class Notices:
    """Tells the service manager what becomes of the program; without an `address` it tells nothing.

    An address that begins with "@" is in the abstract namespace (unix(7)).
    """

    def __init__(self, address: str = "") -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._stopping = False

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> Notices:
        """The one that NOTIFY_SOCKET names, removed from `environ`: no other process reports for this one."""
        return cls(environ.pop("NOTIFY_SOCKET", ""))

    def ready(self, status: str = "") -> None:
        """Tell that the program serves, by what it has read; no `status` leaves the one told."""
        if not self._stopping:
            self._tell(*(["READY=1", f"STATUS={status}"] if status else ["READY=1"]))

    def reloading(self) -> None:
        """Tell that the configuration is being read again; `ready` follows."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Tell that the program is about to end."""
        self._stopping = True
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.settimeout(PATIENCE)
            way.sendto("\n".join(lines).encode(), self._address)
