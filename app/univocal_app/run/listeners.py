"""The listening sockets of the program: TCP and Unix, with TLS and without, bound here or by systemd.

Also each process's share of file descriptors.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from univocal.http.errors import ConfigurationError, Objections
from univocal.http.grammar import DEFAULT_PORTS, parse_authority
from univocal.server.clients import ConnectionLimits
from univocal.uri.sites import Sites
from univocal_app.config.tables import Configuration, ServerTable
from univocal_app.config.values import Address, ListenerSettings, Place, SocketPath
from univocal_app.run.origins import most_connections

BACKLOG: Final = 2048
MODE: Final = 0o666  # of a Unix socket, as nginx has it: its directory says who may connect
HTTPS: Final = 443
_ALL_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to tell these from others
_PATIENCE: Final = 1.0  # seconds that a listener of another program has to take a connection


class Bound(NamedTuple):
    """A listening socket, whether its clients speak TLS, and the settings that it has of its own.

    `name` is the setting that it was bound for, such as "listen[0]"; empty: systemd has bound it.
    """

    socket: socket.socket
    is_tls: bool = False
    own: ListenerSettings = ListenerSettings()
    name: str = ""

    @property
    def is_unix(self) -> bool:
        """True of a socket that has a path for an address."""
        return self.socket.family == socket.AF_UNIX

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix://{self.socket.getsockname()}"
        return f"{'https' if self.is_tls else 'http'}://{address_of(self.socket)}/"


class Listeners(NamedTuple):
    """The sockets of clients, and those of the admin listener."""

    front: tuple[Bound, ...]
    back: tuple[Bound, ...]

    def __str__(self) -> str:
        front, back = (" and ".join(map(str, each)) for each in self)
        return f"serving {front}, admin listener {back}"


def https_port(front: Sequence[Bound]) -> int:
    """The port of the first listener with TLS; without one, that of https."""
    ports = (address_of(each.socket).port for each in front if each.is_tls and not each.is_unix)
    return next(ports, HTTPS)


def serving(
    bound: Bound, server: Callable[[], ServerTable], sites: Callable[[], Sites]
) -> Callable[[bytes], bool] | None:
    """Tell which hosts a listener serves, by the configuration in force; None: all of them.

    A host of no site has no owner: what becomes of it is decided elsewhere.
    """
    if not apart(server()):
        return None

    def serves(host: bytes) -> bool:
        authority = parse_authority(host)
        if authority is None:
            return True
        named = frozenset(bound.own.sites) or apart(server())
        for port in {authority[1] or port for port in DEFAULT_PORTS.values()}:
            located = sites().locate(authority[0], port)
            if located is not None:
                is_named = not named.isdisjoint((located[0].name, *located[0].hosts))
                if is_named is not bool(bound.own.sites):
                    return False
        return True

    return serves


def own_settings_of(server: ServerTable) -> dict[str, ListenerSettings]:
    """The settings that clients' listeners have of their own, by the names of `Bound`."""
    places = {key: each for key, each in server.places.items() if key != "admin"}
    return {f"{key}[{i}]": place.own for key, each in places.items() for i, place in enumerate(each)}


def apart(server: ServerTable) -> frozenset[str]:
    """The hosts of sites that only some listeners serve."""
    return frozenset(name for own in own_settings_of(server).values() for name in own.sites)


@contextmanager
def listening(
    server: ServerTable, passed: Mapping[str, Sequence[socket.socket]], sources: Mapping[str, str]
) -> Iterator[Listeners]:
    """The listeners of a configuration, until the end.

    Sockets that systemd has `passed` take the place of a setting's. `sources` names where each setting was
    read. Raises ConfigurationError.
    """
    front_places = (*server.listen, *server.listen_tls)
    bound: dict[str, list[Bound]] = {}
    with ExitStack() as stack:
        for name, setting in server.places.items():
            bound[name] = []
            if sockets := passed.get(name, ()):
                bound[name] += [Bound(stack.enter_context(each)) for each in sockets]
                continue
            for number, place in enumerate(setting):
                beside = name != "admin" and any(_is_beside(place, each) for each in front_places)
                made = stack.enter_context(bind(place, sources[name], f"server.{name}", is_beside=beside))
                if isinstance(place, SocketPath):
                    stack.callback(_remove, place.path, os.lstat(place.path).st_ino)
                bound[name].append(Bound(made, False, place.own, f"{name}[{number}]"))
        plain_is_tls = bool(server.tls_cert) and not bound["listen_tls"]
        front = [each._replace(is_tls=plain_is_tls) for each in bound["listen"]]
        front += [each._replace(is_tls=True) for each in bound["listen_tls"]]
        yield Listeners(tuple(front), tuple(bound["admin"]))


def check_listeners(configuration: Configuration) -> None:
    """Raise ConfigurationError for listeners that do not go together."""
    server, objections = configuration.server, Objections()

    def wrong(key: str, found: object, allowed: str) -> ConfigurationError:
        return configuration.error(f"server.{key}", found, allowed)

    if server.listen_tls and not server.tls_cert:
        objections.errors.append(wrong("listen_tls", [*map(str, server.listen_tls)], "[] without tls_cert"))
    if not (server.listen or server.listen_tls):
        objections.errors.append(wrong("listen", [], "at least one listener here or in listen_tls"))
    hosts = {host for site in configuration.sites for host in site.hosts}
    for key, own in own_settings_of(server).items():
        unknown = (name for name in own.sites if name not in hosts)
        allowed = "a host of a site, as the site writes it"
        objections.errors += (wrong(f"{key}.sites", name, allowed) for name in unknown)
    if any(place.own != ListenerSettings() for place in server.admin):
        allowed = "listeners without settings of their own"
        objections.errors.append(wrong("admin", [*map(str, server.admin)], allowed))
    objections.conclude()


def _is_beside(place: Place, other: Place) -> bool:
    """Tell whether one of two listeners at a port is for all addresses of a family, the other for one."""
    if not (isinstance(place, Address) and isinstance(other, Address)) or place.port != other.port:
        return False
    hosts = {place.host, other.host}
    return len(hosts) == 2 and len({":" in host for host in hosts}) == 1 and bool(hosts & _ALL_ADDRESSES)


def bind(place: Place, source: str, key: str, *, is_beside: bool = False) -> socket.socket:
    """A listening socket. Raises ConfigurationError, which names the setting `key`, if there is none.

    Others may stand beside it at its port, if they say so, too: see `_is_beside`.
    """
    try:
        return _listening(place, is_beside=is_beside)
    except OSError as error:
        raise _no_place(place, source, key, error) from None


def check_places(configuration: Configuration) -> None:
    """Raise ConfigurationError if `listening` would, unless it is for a program that listens there now."""
    objections, before = Objections(), dict[str, Place]()
    for setting, places in configuration.server.places.items():
        for number, place in enumerate(places):
            key = f"server.{setting}[{number}]" if len(places) > 1 else f"server.{setting}"
            with objections:
                _check_place(place, configuration.source, key)
            for other, each in before.items():
                if _excludes(each, place, is_admin=setting == "admin"):
                    allowed = f"an address other than that of {other} ({each})"
                    objections.errors.append(configuration.error(key, str(place), allowed))
            before[key] = place
    objections.conclude()


def _excludes(place: Place, other: Place, *, is_admin: bool) -> bool:
    """Tell whether a listener leaves another one no place; that of `is_admin` stands beside none."""
    if isinstance(other, Address) and not other.port:
        return False
    return place._replace(own=other.own) == other or (is_admin and _is_beside(place, other))


def _check_place(place: Place, source: str, key: str) -> None:
    """Raise ConfigurationError if `bind` would, unless it is for a program that listens there now."""
    try:
        if isinstance(place, SocketPath):
            _check_path(Path(place.path))
        else:
            _listening(place).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise _no_place(place, source, key, error) from None


def address_of(bound: socket.socket) -> Address:
    """The address that a socket is bound to: port 0 was replaced by the system's choice."""
    return Address(*bound.getsockname()[:2])


def _listening(place: Place, *, is_beside: bool = False) -> socket.socket:
    if isinstance(place, Address):
        # 0.0.0.0 may stand beside [::], and no client's address is written as ::ffff:192.0.2.1. Beside
        # another the system gives a connection to the listener of its very address.
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        at = place.host, place.port
        made = socket.create_server(at, family=family, backlog=BACKLOG, reuse_port=is_beside)
    else:
        _clear(Path(place.path))
        made = socket.socket(socket.AF_UNIX)
        try:
            made.bind(place.path)
            os.chmod(place.path, MODE)
            made.listen(BACKLOG)
        except OSError:
            made.close()
            raise
    made.setblocking(False)
    return made


def _clear(path: Path) -> None:
    """Remove a socket at which no program listens any more. Raises OSError for any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except (TimeoutError, BlockingIOError):  # its queue is full: somebody listens
            pass
    raise OSError(errno.EADDRINUSE, "another program listens there")


def _check_path(path: Path) -> None:
    if path.exists() and not path.is_socket():
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        reason = errno.EACCES if path.parent.is_dir() else errno.ENOENT
        raise OSError(reason, os.strerror(reason))


def _remove(path: str, inode: int) -> None:
    """Remove a socket of ours, unless another program has put its own in its place."""
    with suppress(OSError):
        if os.lstat(path).st_ino == inode:
            os.unlink(path)


def _no_place(place: Place, source: str, key: str, error: OSError) -> ConfigurationError:
    reason = (error.strerror or str(error)).partition(" (while ")[0]  # socket's words are of the address
    allowed = f"an address of this machine with a free port ({reason})"
    if isinstance(place, SocketPath):
        allowed = f"a path at which this user may make a socket ({reason})"
    return ConfigurationError(source, key, str(place), allowed)


# Descriptors for connections to the admin listener, and for files, listeners and the shared store.
ADMIN_CONNECTIONS: Final = 32
ADMIN_CONNECTIONS_PER_CLIENT: Final = 16
_OTHERS: Final = 32
_UNLIMITED: Final = 1 << 20


class DescriptorShare(NamedTuple):
    """The descriptors of one process: for connections of clients, for those to origin servers, and all."""

    clients: int
    origins: int
    limit: int

    def __str__(self) -> str:
        clients = f"at most {self.clients} connections of clients"
        return f"{clients} and {self.origins} to origin servers ({self.limit} descriptors)"


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def share(limit: int, origins: int, wanted: int, workers: int = 1) -> DescriptorShare:
    """Divide a process's descriptors: to origin servers there are `origins` connections at most.

    Clients get the rest, at least a half, or the `wanted` number, which all workers have together. 0 wants as
    many as possible.
    """
    rest = max(limit - ADMIN_CONNECTIONS - _OTHERS, 2)
    kept = min(origins, rest // 2)
    room = rest - kept
    return DescriptorShare(min(room, -(-wanted // workers)) if wanted else room, kept, limit)


def share_of(configuration: Configuration) -> DescriptorShare:
    """The connections that a process may have, whose descriptors are made as many as the system allows."""
    server = configuration.server
    wanted = server.fill(ConnectionLimits).connections
    return share(raise_limit(), most_connections(configuration), wanted, server.workers)


def connection_limits(configuration: Configuration) -> ConnectionLimits:
    """The bounds on the connections of a process's clients."""
    return configuration.server.fill(ConnectionLimits, connections=share_of(configuration).clients)
