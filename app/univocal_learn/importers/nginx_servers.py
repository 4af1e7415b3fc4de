"""nginx's servers by the sockets that they listen on: which requests each gets, and which only redirect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from univocal_learn.importers.imported import Notes
from univocal_learn.importers.nginx_conditions import words_of_condition
from univocal_learn.importers.nginx_directives import closes, is_refusal, target_of
from univocal_learn.importers.nginx_patterns import expression, search_of
from univocal_learn.importers.nginx_syntax import Directive, find

_PORT: Final = re.compile(r"(?:(\[[^\]]*\]|[^:\s]+):)?([0-9]{1,5})(?:-([0-9]{1,5}))?")
_MOST_PORTS: Final = 100  # of one `listen`; univocal says of more that they are no port
_DEFAULT: Final = frozenset({"default_server", "default"})
_HOST_FIELD: Final = ("$host", "$http_host", "$server_name", "${host}", "${server_name}")


class Socket(NamedTuple):
    """A socket on which a server listens, as univocal writes its address."""

    address: str
    is_tls: bool = False
    is_default: bool = False
    has_proxy_header: bool = False


@dataclass(frozen=True)
class ServerBlock:
    """A server of the file, with what it listens on, and the Host field that it inherits."""

    directive: Directive
    host: str

    @cached_property
    def sockets(self) -> tuple[Socket, ...]:
        """The sockets on which it listens."""
        is_tls = any(each.arguments == ["on"] for each in find(self.block, "ssl"))
        listens = [each for each in find(self.block, "listen") if each.arguments]
        sockets = tuple(socket for each in listens for socket in _sockets(each, is_tls=is_tls))
        return sockets or (Socket("0.0.0.0:80", is_tls),)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The hosts that it names, as nginx has them."""
        return tuple(name for each in find(self.block, "server_name") for name in each.arguments)

    @property
    def block(self) -> list[Directive]:
        """The directives of the server."""
        return self.directive.block

    @property
    def line(self) -> int:
        """The line of the server."""
        return self.directive.line

    @property
    def file(self) -> str:
        """The file of the server."""
        return self.directive.file

    @property
    def title(self) -> str:
        """Nothing: notes say of a server what they say of its hosts."""
        return ""

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of its sockets."""
        return frozenset(each.address for each in self.sockets)

    @property
    def ports(self) -> list[str]:
        """The ports of its sockets, each once."""
        return list(dict.fromkeys(map(port_of, sorted(self.addresses))))

    @property
    def exact(self) -> list[str]:
        """The hosts that it names, as a site has them."""
        hosts = list[str]()
        for name in self.names:
            if name.startswith("."):
                hosts += [name[1:], f"*{name}"]
            elif name not in {"_", ""} and not is_pattern(name):
                hosts.append(expression(name[1:], ignores_case=False) if name.startswith("~") else name)
        return hosts

    @property
    def patterns(self) -> list[str]:
        """Its names that stand for hosts which no site can name."""
        return [name for name in self.names if is_pattern(name)]

    @property
    def unnamed(self) -> list[str]:
        """Its names that are no exact ones, nor those below one."""
        return [name for name in self.names if name[:1] == "~" or name[-2:] == ".*" or is_pattern(name)]

    @cached_property
    def moves_to(self) -> str | None:
        """The host to which it sends every client: "" for its own with https; None: it does not."""
        targets = {target_of(each) for each in self._answers()}
        if not targets or None in targets:
            return None
        known = {each for each in targets if each is not None}
        own = {*_HOST_FIELD, *self.exact}
        if all(scheme == "https" and host in own for scheme, host in known):
            return ""
        others = {host for _, host in known}
        return others.pop() if len(known) == 1 and not others & own else None

    @cached_property
    def refuses(self) -> bool:
        """True if it refuses every request."""
        return any(map(is_refusal, find(self.block, "return")))

    @property
    def kept(self) -> list[Directive]:
        """The locations of a server that redirects all else: those of ACME challenges."""
        locations = [each for each in find(self.block, "location") if each.arguments != ["/"]]
        return [] if find(self.block, "return") else locations

    def _answers(self) -> list[Directive]:
        """The directives that answer every request, where nothing else does."""
        returns, conditions = find(self.block, "return"), find(self.block, "if")
        closing = [each.name for each in self.block if each.name == "rewrite" or closes(each)]
        if set(closing) - {"return"}:
            return []
        if returns:
            if returns[0].first == "404" and conditions:
                # Certbot's: an `if` for each name, and 404 for what has none of them.
                return [each for condition in conditions for each in condition.block]
            return returns
        locations = find(self.block, "location")
        roots = [each.block for each in locations if each.arguments == ["/"]]
        rest = [each for each in locations if each.arguments != ["/"]]
        is_acme = all("/.well-known/acme-challenge" in "".join(each.arguments) for each in rest)
        return roots[0] if len(roots) == 1 and is_acme and len(roots[0]) == 1 else []


def is_pattern(name: str) -> bool:
    """Tell whether a server_name stands for hosts that no site here can name."""
    return search_of(name[1:]) is None if name.startswith("~") else "$" in name


def part(block: list[Directive], notes: Notes) -> None:
    """Have the hosts that an `if` of their server sends to another host as a server that redirects them."""
    for server in [*block]:
        if server.name == "http":
            part(server.block, notes)
        for each in find(server.block, "if") if server.name == "server" else []:
            inner, (answer, *others) = server.block, each.block or [each]
            names = [name for one in find(inner, "server_name") for name in one.arguments]
            scheme, to = target_of(answer) or ("", "")
            variable, operator, host = [*words_of_condition(each.arguments), "", "", ""][:3]
            if others or to.startswith("$") or not to:
                continue
            if variable not in {"$host", "$http_host"}:
                if scheme == "https" and to in names:  # its own hosts move to TLS
                    each.block = [replace(answer, arguments=["301", "https://$host$request_uri"])]
                continue
            is_all_else = operator == "!="
            if variable == "$http_host" and is_all_else:
                continue  # a name in other letters or with a port is another one there
            kept = [name for name in names if (name == host) is is_all_else]
            moved = [name for name in names if name not in kept]
            if operator not in {"=", "!="} or host not in names or not kept or to in moved:
                continue
            if variable == "$http_host":
                notes.say(each, "univocal compares hosts without their case and port")
            sockets = [one for one in inner if one.name in {"listen", "ssl"} or one.name.startswith("ssl_")]
            plain = [
                replace(one, arguments=[a for a in one.arguments if a not in _DEFAULT]) for one in sockets
            ]
            rest = [one for one in inner if one.name not in {"server_name", "listen"} and one is not each]
            listens = find(plain if is_all_else else sockets, "listen")
            own = [Directive("server_name", kept, server.line), *listens, *rest]
            redirecting = [Directive("server_name", moved, each.line), answer]
            redirecting += sockets if is_all_else else plain
            other = replace(each, name="server", arguments=[], block=redirecting)
            at = next(at for at, one in enumerate(block) if one is server)
            block.insert(at + (not is_all_else), other)
            server.block = own


def _sockets(listen: Directive, *, is_tls: bool) -> list[Socket]:
    """The sockets of a `listen`, which may name a range of ports."""
    place, *parameters = listen.arguments
    flags = (is_tls or "ssl" in parameters or "quic" in parameters, not _DEFAULT.isdisjoint(parameters))
    proxied = "proxy_protocol" in parameters
    if place.startswith("unix:"):
        return [Socket(f"unix://{place.removeprefix('unix:')}", *flags, proxied)]
    matched = _PORT.fullmatch(place)
    host, first, last = matched.groups() if matched else (place, "80", None)
    if host in {None, "*"}:
        host = "0.0.0.0"  # noqa: S104 - as nginx listens
    host = "127.0.0.1" if host == "localhost" else host
    ports = range(int(first), int(last or first) + 1)
    named = ports if len(ports) <= _MOST_PORTS else [f"{first}-{last}"]
    return [Socket(f"{host}:{port}", *flags, proxied) for port in named]


def port_of(address: str) -> str:
    """The port of an address, which clients name in Host; empty where they do not."""
    port = "" if address.startswith("unix:") else address.rpartition(":")[2]
    return "" if port in {"80", "443"} else port


def everywhere(address: str) -> str:
    """The address of all of its family at a port; empty for a Unix socket."""
    if address.startswith("unix:"):
        return ""
    host, _, port = address.rpartition(":")
    return f"{'[::]' if ':' in host else '0.0.0.0'}:{port}"  # noqa: S104 - as nginx listens


def bare(sockets: Iterable[Socket]) -> frozenset[Socket]:
    """The sockets, whichever server is their default."""
    return frozenset(each._replace(is_default=False) for each in sockets)


def plain_sockets(servers: Sequence[ServerBlock]) -> frozenset[Socket]:
    """The sockets without TLS of these servers."""
    return bare(each for server in servers for each in server.sockets if not each.is_tls)


class Owners:
    """The servers of each host, one at each socket, and by address those of hosts that no server names.

    As in nginx the first server of a name at a socket has it; others are noted.
    """

    def __init__(self, servers: Sequence[ServerBlock], notes: Notes) -> None:
        self._servers = servers
        self.named: dict[str, list[ServerBlock]] = {}
        self.defaults: dict[str, ServerBlock] = {}
        self.taken: dict[tuple[str, str], ServerBlock] = {}  # of each address and host
        for server in servers:
            for name in server.names:
                if not is_pattern(name) and name not in {"_", ""}:
                    self._take(server, name, notes)
        said: dict[str, ServerBlock] = {}  # to be the default of their address
        for server in servers:
            for each in server.sockets:
                self.defaults.setdefault(each.address, server)
                if each.is_default:
                    said.setdefault(each.address, server)
        self.defaults |= said

    def _take(self, server: ServerBlock, name: str, notes: Notes) -> None:
        """Have a name's hosts belong to a server, at each of its sockets where no server has them."""
        low = expression(name[1:], ignores_case=False) if name.startswith("~") else name.lower()
        # nginx ignores all of ".name" where an earlier server has either host.
        hosts = [low[1:], f"*{low}"] if name.startswith(".") else [low]
        free = [each for each in server.addresses if not any((each, host) in self.taken for host in hosts)]
        self.taken.update({(address, host): server for address in free for host in hosts})
        if free:
            for host in hosts:
                self.named.setdefault(host, []).append(server)
        owning = [self.taken.get((each, host), server) for each in server.addresses for host in hosts]
        first = next((other for other in owning if other is not server), None)
        if first is not None:
            notes.say(server, f"the host {name!r} is line {first.line}'s, and one site's only")

    def ports_apart(self, main: ServerBlock | None) -> dict[str, ServerBlock]:
        """The ports where another server than `main` has the hosts that no server names, and that server.

        A port is left out where a server has names that stand with no port, or answers by a redirect alone.
        """
        apart = dict[str, ServerBlock]()
        for port in dict.fromkeys(port for server in self._servers for port in server.ports if port):
            here = [server for server in self._servers if port in server.ports]
            defaults = {id(own): own for address, own in self.defaults.items() if port_of(address) == port}
            if len(defaults) == 1 and all(not each.unnamed and each.moves_to is None for each in here):
                own = next(iter(defaults.values()))
                if own is not main:
                    apart[port] = own
        return apart

    def ports_of(self, host: str, server: ServerBlock) -> list[str]:
        """The ports at which a server has a host."""
        own = [address for address in server.addresses if self.taken.get((address, host)) is server]
        return [port for port in dict.fromkeys(map(port_of, sorted(own))) if port]


def listener_tables(
    sites: Sequence[tuple[str, frozenset[Socket]]], certificate: Mapping[str, str]
) -> dict[str, Any]:
    """The settings `listen` and `listen_tls`: each socket, with what it has of its own.

    `sites` are hosts[0] of each and its sockets. Without a certificate none is of TLS.
    """
    sockets = list(dict.fromkeys(each for _, own in sites for each in sorted(own, key=str)))
    tables: dict[str, list[Any]] = {"listen": [], "listen_tls": []}
    of_all = [socket for socket in sockets if all(socket in own for _, own in sites)]
    # The first socket needs no list, if its sites are at no other that has one.
    is_main = not of_all and all(len(own) == 1 or sockets[0] not in own for _, own in sites)
    for socket in sockets:
        here = [name for name, own in sites if socket in own]
        key = "listen_tls" if socket.is_tls and certificate else "listen"
        whole = len(of_all) == len(sockets) or (is_main and socket == sockets[0])
        own: dict[str, Any] = {} if whole else {"sites": here}
        own |= {"proxy_protocol": True} if socket.has_proxy_header else {}
        tables[key].append({"address": socket.address, **own} if own else socket.address)
    return {
        key: value[0] if len(value) == 1 and isinstance(value[0], str) else value
        for key, value in tables.items()
        if value or (key == "listen" and tables["listen_tls"])
    }


def certificate_of(block: Sequence[Directive], notes: Notes) -> dict[str, str]:
    """The files of the certificate and the key that directives name, where they are here."""
    files = {}
    for key, name in (("tls_cert", "ssl_certificate"), ("tls_key", "ssl_certificate_key")):
        own = [each for each in find(block, name) if each.arguments]
        if not own:
            return {}
        file = own[0].arguments[0]
        if "$" in file or not Path(file).is_file():
            notes.say(own[0], f"no such file here, so no TLS: see [server] {key}")
            return {}
        files[key] = file
    return files


def client_ca_of(server: ServerBlock, around: Sequence[Directive], notes: Notes) -> str:
    """The file of those who issue the certificates that clients of a server have to show; empty for none.

    nginx reads a list of revoked ones, which univocal does not.
    """
    block = [*server.block, *around]
    own = {each.name: each for each in reversed(block) if each.name.startswith("ssl_") and each.arguments}
    verify, issuers = own.get("ssl_verify_client"), own.get("ssl_client_certificate")
    if verify is None or verify.arguments != ["on"] or issuers is None or "ssl_crl" in own:
        return ""
    file = issuers.arguments[0]
    if "$" in file or not Path(file).is_file() or not certificate_of(block, Notes()):
        return ""
    notes.say(verify, "clients without a certificate get 403; a chain may have any length")
    return file
