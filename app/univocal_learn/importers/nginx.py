"""nginx's servers and locations as a profile, sites and routes; what they do besides is said line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import parse
from univocal_app.config.site_reader import is_tested
from univocal_learn.importers.imported import Imported, Notes, Source, Table
from univocal_learn.importers.nginx_answers import end, lead_on, pages_of
from univocal_learn.importers.nginx_caching import cookies_of_maps
from univocal_learn.importers.nginx_directives import TAKEN, closes
from univocal_learn.importers.nginx_files import directives_of
from univocal_learn.importers.nginx_locations import (
    LocationReading,
    closing,
    host_field,
    leave_out,
    read_server,
)
from univocal_learn.importers.nginx_servers import (
    Owners,
    ServerBlock,
    Socket,
    bare,
    certificate_of,
    client_ca_of,
    everywhere,
    listener_tables,
    part,
    plain_sockets,
    port_of,
)
from univocal_learn.importers.nginx_settings import BlockSettings, authorities_of, zone_of, zones_of
from univocal_learn.importers.nginx_syntax import LARGEST_BODY, Directive, body_size, find, within
from univocal_learn.importers.site_writer import Mapped, SiteWriter

_HOSTS: Final = {"$host": "site", "$http_host": "site", "$proxy_host": "upstream"}
_OF_A_SERVER: Final = frozenset({"location", "proxy_pass", "server_name", "return", "rewrite"})
_MACHINE: Final = "$hostname"  # a server_name: it precedes all but equal ones
# Blocks of the main context that hold nothing of HTTP.
_NOT_HTTP: Final = frozenset({"events", "stream", "mail", "rtmp"})


def read(source: Source) -> Imported:
    """The profile of nginx as `source` sets it, and the sites of its servers. Raises ConfigurationError."""
    directives = directives_of(source)
    if not directives:
        raise source.nothing("no directive", "a server, a location or a proxy_pass of nginx")
    if all(each.name == "include" for each in directives):
        names = ", ".join(" ".join(each.arguments) for each in directives)
        allowed = "files that are here, by --root DIR, or in their place"
        raise source.nothing(f"includes alone: {names}", allowed)
    return _Import(source, directives).imported()


class _Import:
    """One file on its way into sites."""

    def __init__(self, source: Source, directives: list[Directive]) -> None:
        self._source, self._directives = source, directives
        self._notes = Notes()
        end(directives, self._notes)
        part(directives, self._notes)
        blocks = [each.block for each in find(directives, "http")]
        self._everywhere = [each for block in blocks or [directives] for each in block]
        self._all = [ServerBlock(*found) for found in self._servers(directives, "$proxy_host")]
        self._picked = _picked(source, self._all)
        merging = _merge_slashes(source, directives, self._picked)
        self._path: Table = {} if merging else {"merge_slashes": False}
        text = 'extends = "nginx"\n' + ("" if merging else "[path]\nmerge_slashes = false\n")
        self._writer = SiteWriter(parse({"imported": text}, builtin_profiles())["imported"], self._notes)
        self._sockets: list[tuple[dict[str, Any], frozenset[Socket]]] = []
        self._pages: dict[str, dict[str, Path]] = {}  # of errors, by their directories

    def imported(self) -> Imported:
        """The profile, the sites and the server's settings."""
        zones = zones_of(within(self._directives, "limit_req_zone", "limit_conn_zone"), self._notes)
        http = self._everywhere
        apart = {*_NOT_HTTP, *_OF_A_SERVER, "http"}
        outside = [each for each in closing(http) if each.name not in apart]
        if find(self._directives, *_OF_A_SERVER):
            outside = []  # they are read as those of the one server
        cookies_of_maps(self._directives)
        lead_on(self._directives)
        introduced = all(each.has_proxy_header for server in self._picked for each in server.sockets)
        settings = BlockSettings(zones, is_introduced=introduced).inside(http, outside)
        trusted = self._trusted(settings)
        settings = replace(settings, believed=trusted)
        upstreams = {each.first: each for each in within(self._directives, "upstream") if each.arguments}
        everywhere = LocationReading(upstreams, self._writer.profile, self._notes, "", settings)
        owners = Owners(self._picked, self._notes)
        for server in self._picked:
            if server.moves_to is None:
                self._add(server, everywhere, owners)
        moved = [server for server in self._picked if server.moves_to is not None]
        for server in moved:
            for each in server.kept:
                self._notes.say(each, "univocal sends these requests to the site's own origin server")
            if server.moves_to:
                self._add_aliases(server, server.moves_to)
        self._writer.close_unwritten()
        server_table = {
            **self._listeners([server for server in moved if not server.moves_to]),
            "trusted_proxies": list(trusted),
            **self._bounds(zones.connections, settings),
        }
        if not self._writer.sites:
            server_table = {}
        self._note_proxy_headers(trusted)
        self._note_zones(settings)
        return Imported(
            summary="Imported from a configuration of nginx",
            extends="nginx",
            path=self._path,
            notes=self._notes,
            sites=self._writer.sites,
            server=server_table,
            pages=self._pages,
            is_empty=bool(self._all) and not self._writer.sites and not _outside_servers(self._directives),
        )

    def _servers(self, directives: list[Directive], inherited: str) -> Iterator[tuple[Directive, str]]:
        """Each server, and the Host field that it inherits; locations that stand alone are one, too."""
        inherited = host_field(directives, inherited)
        alone = bool(find(directives, *_OF_A_SERVER))
        is_outside = bool(find(directives, "http"))
        if alone:
            apart = {"server", "http", "upstream", "merge_slashes"}
            block = [each for each in directives if each.name not in apart]
            yield Directive("server", [], directives[0].line, block, directives[0].file), inherited
        for directive in directives:
            if directive.name == "server":
                yield directive, inherited
            elif directive.name == "http":
                yield from self._servers(directive.block, inherited)
            elif not (alone or directive.name in TAKEN):
                is_main = is_outside or directive.name in _NOT_HTTP
                if is_main and closes(directive):
                    self._notes.say(directive, "not part of a profile or a route")
                else:
                    leave_out(directive, self._notes, is_closing=closes(directive))

    def _trusted(self, settings: BlockSettings) -> tuple[str, ...]:
        """The networks that every address rule of the file trusts to name the client; none if they differ."""
        found = [each for server in self._picked for each in _settings_in(server.block, settings)]
        counting = [each.trusted for each in found if each.counts_clients] or [each.trusted for each in found]
        trusted = set(counting)
        return trusted.pop() if len(trusted) == 1 and "?" not in next(iter(trusted), ()) else ()

    def _add(self, server: ServerBlock, everywhere: LocationReading, owners: Owners) -> None:
        """The site of a server: the hosts that are its own, and its locations."""
        block = server.block
        reached = {each.arguments[-1] for each in within(block, "try_files") if each.arguments}
        named = {each.first: each for each in find(block, "location") if each.first in reached}
        authorities = authorities_of(block, self._everywhere, everywhere.upstreams)
        client_ca = client_ca_of(server, self._everywhere, self._notes)
        settings = replace(everywhere.settings, authorities=authorities, client_ca=client_ca)
        around = replace(everywhere, settings=settings)
        reading = replace(around.inside(block, closing(block), host=server.host), named=named)
        read_server(block, reading)
        routes = reading.routes
        if find(block, "return"):
            routes = [Mapped("/", server.line, is_closed=True)]
        if not any(route.is_stored for route in routes):
            routes = [route for route in routes if not (route.is_implied and route.is_apart)]
        hosts, is_default = self._hosts(server, owners)
        if not hosts and not server.refuses:
            is_reached = any(each is server for each in (*owners.taken.values(), *owners.defaults.values()))
            whose = "another server has the site of its hosts" if is_reached else "no request has its hosts"
            self._notes.say(server, f"{whose}: no site is written", is_open_question=is_reached)
        if not hosts:
            return
        extra: dict[str, Any] = {"default": True} if is_default and hosts != ["*"] else {}
        extra |= {"tls_client_ca": client_ca} if client_ca else {}
        if pages := pages_of(block, self._everywhere, self._source.root, self._notes):
            extra["error_pages"] = self._directory(pages)
        site = self._writer.add(server.line, hosts, routes, self._origin_host(server, reading), extra)
        if site is not None:
            self._sockets.append((site, bare(server.sockets)))

    def _directory(self, pages: dict[str, Path]) -> str:
        """The directory of a site's pages of errors, which is that of another site with the same."""
        number = len(self._pages) + 1
        names = (name for name, own in self._pages.items() if own == pages)
        name = next(names, "error_pages" if number == 1 else f"error_pages-{number}")
        self._pages[name] = pages
        return name

    def _origin_host(self, server: ServerBlock, reading: LocationReading) -> str:
        forwarding = [route for route in reading.routes if route.is_forwarded]
        hosts = [route.host for route in sorted(forwarding, key=lambda route: route.path != "/")]
        meant = {host: _HOSTS.get(host, host) for host in hosts}
        for other in [host for host in meant if meant[host] != meant[hosts[0]]]:
            where = ", ".join(route.path for route in forwarding if route.host == other)
            text = "univocal sends one Host for all of a site (origin_host)"
            self._notes.say(server, f"Host {other} at {where}: {text}")
        value = hosts[0] if hosts else "$proxy_host"
        if value in _HOSTS or "$" not in value:
            return _HOSTS.get(value, value)
        self._notes.say(server, f"Host {value}: a variable; the site's own host is sent")
        return "site"

    def _hosts(self, server: ServerBlock, owners: Owners) -> tuple[list[str], bool]:
        """The hosts of a server's site, and whether it has those that no server names, too."""
        answering = {each: owner for each, owner in owners.defaults.items() if owner.moves_to is None}
        serving = [owner for owner in answering.values() if not owner.refuses]
        is_everywhere = all(answering.get(address, server) is server for address in server.addresses)
        is_default = bool(serving) and serving[0] is server and is_everywhere
        elsewhere = owners.ports_apart(serving[0] if serving else None)
        apart = {port: each for port, each in elsewhere.items() if not each.refuses}
        own = self._named_hosts(server, owners, apart)
        at = self._picked.index(server)
        hiding = [
            name
            for number, each in enumerate(self._picked)
            if each is not server and each.addresses & server.addresses
            for name in each.patterns
            if number < at or name == _MACHINE
        ]
        signs = {"~", "*"} if _MACHINE in hiding else {"~"}
        if hiding and (hidden := [host for host in own if signs & {*host}]):
            text = f"nginx looks for {', '.join(hiding)} first, which no site has: these hosts are refused"
            self._notes.ask(server, f"server_name {', '.join(hidden)}: {text}")
            self._writer.add(server.line, hidden, [], "site")
            own = [host for host in own if host not in hidden]
        whole = [f"*:{port}" for port, each in apart.items() if each is server]
        lost = self._lost_to(server)
        is_elsewhere = any(
            owner is server and port_of(address) not in apart
            for address, owner in answering.items()
            if not owner.refuses
        )
        if (is_elsewhere and not is_default) or (is_default and lost):
            text = "hosts that no server names have another server at another socket: refused here (421)"
            if is_default:
                names = ", ".join(lost)
                text = f"server_name {names}: no site has these hosts: those that nobody names are refused"
                is_default = False
            self._notes.ask(server, text)
        hosts = [*own, *whole]
        if ports := sorted({port for host in hosts if (port := _apart(host)[1])}):
            text = f"hosts are named with port {', '.join(ports)}: without it in Host they are refused (421)"
            self._notes.say(server, text)
        elsewhere_answering = [own for address, own in answering.items() if address not in server.addresses]
        if own and server.refuses and not all(each.refuses for each in elsewhere_answering):
            text = "at another socket nginx has another server for these hosts: they are refused there, too"
            self._notes.ask(server, text)
        for name in server.patterns:
            text = f"server_name {name}: no host of a site, which is a name, *.name, name.* or an expression"
            self._notes.say(server, text, is_open_question=not (is_default or server.refuses))
        if is_default and not hosts:
            return ["*"], True
        return hosts, is_default

    def _named_hosts(
        self, server: ServerBlock, owners: Owners, apart: Mapping[str, ServerBlock]
    ) -> list[str]:
        """The hosts that a server names; with a port where another server has them at another socket."""
        hosts = list[str]()
        for host in server.exact:
            name = host if host.startswith("~") else host.lower()
            sharing = [each for each in owners.named.get(name, []) if each.moves_to is None]
            if server not in sharing:
                continue
            first, ports = sharing[0], owners.ports_of(name, server)
            if is_tested(name) or not ports or first is server:
                hosts.append(host)
            if not is_tested(name):
                own = (port in apart or (first is not server and port not in first.ports) for port in ports)
                hosts += [f"{host}:{port}" for port, is_own in zip(ports, own, strict=True) if is_own]
        return hosts

    def _lost_to(self, server: ServerBlock) -> list[str]:
        """The names of hosts that no site can name and that would be a server's, if it had all others."""
        at = self._picked.index(server)
        own = set(server.patterns)
        return [
            name
            for number, each in enumerate(self._picked)
            for name in (each.patterns if each.moves_to is None else each.unnamed)
            # The first server of a name has it, as each other name.
            if each is not server
            and each.addresses & server.addresses
            and not (number > at and name in own and each.addresses <= server.addresses)
        ]

    def _add_aliases(self, server: ServerBlock, host: str) -> None:
        """Have the names of a server that moves its clients to another as that site's aliases."""
        for site in self._writer.sites:
            exact = [name for name in site["hosts"] if "*" not in name and not name.startswith("~")]
            if host in exact and (len(exact) == len(site["hosts"]) or site["hosts"][0] == host):
                names = [name for name in server.exact if name[:1] not in "*~" and name[-1:] != "*"]
                names = [name for name in names if name not in site["hosts"]]
                site["hosts"] = [host, *(name for name in site["hosts"] if name != host)]
                site["aliases"] = [*site.get("aliases", []), *names]
                site["alias_answer"] = 301
                self._add_moved(server, host, [each for each in server.exact if each not in names], site)
                return
        text = f"it sends clients to {host}, which no site here has: these hosts are refused"
        self._notes.ask(server, text)
        self._writer.add(server.line, server.exact, [], "site")

    def _add_moved(self, server: ServerBlock, host: str, rest: list[str], to: Table) -> None:
        """Have the names of a server that are no aliases as a site of their own, which redirects."""
        hosts = [name for name in rest if name not in to["hosts"]]
        url = {"redirect": f"https://{host}{{path}}{{query}}"}
        route = Mapped("/", server.line, redirect=url)
        site = self._writer.add(server.line, hosts, [route], "site") if hosts else None
        if site is not None:
            own = next(sockets for each, sockets in self._sockets if each is to)
            self._sockets.append((site, own))

    def _listeners(self, redirecting: list[ServerBlock]) -> dict[str, Any]:
        """Where univocal listens, with certificates where they are here, and the redirect to https."""
        around = [each for each in self._everywhere if each.name.startswith("ssl_certificate")]
        certificates = [(each, certificate_of([*each.block, *around], self._notes)) for each in self._picked]
        if not any(find(server.block, "listen") for server in self._picked):
            return {}
        default = next((each for _, each in certificates if each), {})
        plain = plain_sockets(redirecting)
        serving = frozenset(each for _, sockets in self._sockets for each in sockets if not each.is_tls)
        moves = bool(plain and default) and not plain & serving
        named: list[tuple[str, frozenset[Socket]]] = []
        for site, sockets in self._sockets:
            own = sockets
            if not default:
                own = frozenset(each for each in own if not each.is_tls) or plain or own
            named.append((site["hosts"][0], own | plain if moves else own))
            its = (each for server, each in certificates if _apart(site["hosts"][0])[0] in server.exact)
            if (mine := next(its, {})) and mine != default:
                site.update(mine)
        if redirecting and not moves:
            for each in redirecting:
                self._notes.say(each, "not redirected to https here: see [server] https_redirect")
        http2 = any(
            (each.name == "http2" and each.arguments == ["on"])
            or (each.name == "listen" and "http2" in each.arguments)
            for server in self._picked
            for each in server.block
        )
        if not named:  # of servers that only refuse
            named.append(("", plain_sockets(self._picked)))
        self._close_addresses(named)
        tables = listener_tables(named, default)
        if any(isinstance(each, dict) for each in [*tables.get("listen", ()), *tables.get("listen_tls", ())]):
            text = "each listener refuses (421) the hosts of others; nginx gives them to its default server"
            self._notes.say(0, text)
        return {
            **tables,
            **default,
            **({"https_redirect": True} if moves else {}),
            **({"http2": True} if http2 and default else {}),
        }

    def _close_addresses(self, named: list[tuple[str, frozenset[Socket]]]) -> None:
        """Have addresses of servers without a site refuse, where a socket of all would serve them."""
        listening = {each.address: each for _, own in named for each in own}
        for server in self._picked:
            for socket in server.sockets:
                around = listening.get(everywhere(socket.address))
                if around is not None and socket.address not in listening:
                    own = around._replace(address=socket.address)
                    listening[socket.address] = own
                    if server.moves_to is not None:
                        text = f"univocal redirects nobody at {socket.address}: all are refused there"
                        self._notes.ask(server, text)
                    self._writer.refuse(server.line, [socket.address])
                    named.append((socket.address, frozenset({own})))

    def _limits(self, name: str, settings: BlockSettings) -> Iterator[tuple[ServerBlock, Directive]]:
        """Each server, with its limits of a kind that are in force in a block of it."""
        for server in self._picked:
            for own in _settings_in(server.block, settings):
                yield from ((server, each) for each in own.listed(name))

    def _note_zones(self, settings: BlockSettings) -> None:
        """Say that univocal counts each site and burst apart, where nginx has one count of a zone."""
        limits = self._limits("limit_req", settings)
        uses = {(zone_of(each), id(server), *each.arguments[1:2]) for server, each in limits}
        for zone in within(self._directives, "limit_req_zone"):
            if sum(name == zone_of(zone) for name, *_ in uses) > 1:
                self._notes.ask(zone, "univocal counts each site and each burst apart; nginx has one count")

    def _note_proxy_headers(self, trusted: tuple[str, ...]) -> None:
        """Say that no client may send a PROXY header, where nginx takes one from all."""
        for server in () if trusted else self._picked:
            if any(each.has_proxy_header for each in server.sockets):
                text = "univocal takes PROXY headers from trusted_proxies alone: name your proxy there"
                self._notes.ask(server, text)

    def _bounds(self, zones: frozenset[str], settings: BlockSettings) -> dict[str, Any]:
        """The bounds of requests that all sites share: the largest body, the fewest under way at once.

        A site or a route with another largest body has its own.
        """
        known = [body_size(each) for each in within(self._directives, "client_max_body_size")]
        around = find(self._everywhere, "client_max_body_size")
        if not (around or all(find(server.block, "client_max_body_size") for server in self._picked)):
            known.append(LARGEST_BODY)
        largest = 0 if 0 in known else max(known, default=LARGEST_BODY)
        for site in self._writer.sites:
            for table in (site, *site.get("routes", ())):
                if table.get("max_body") == largest:
                    del table["max_body"]
        counts = [
            (int(each.arguments[1]), each)
            for _, each in self._limits("limit_conn", settings)
            if len(each.arguments) == 2 and each.arguments[0] in zones and each.arguments[1].isdigit()
        ]
        least, limit = min(counts, key=lambda count: count[0], default=(0, None))
        fewest = {"max_requests_per_client": least} if limit is not None else {}
        if limit is not None and not any(limit is each for each in self._everywhere):
            text = "max_requests_per_client holds for all requests of a client, not for this place alone"
            self._notes.say(limit, text)
        return {"max_body": largest, **fewest}


def _apart(host: str) -> tuple[str, str]:
    """A site's host without its port, and the port; empty without one."""
    name, colon, port = ("", "", "") if is_tested(host) else host.rpartition(":")
    return (name, port) if colon and port.isdigit() else (host, "")


def _settings_in(block: list[Directive], settings: BlockSettings) -> Iterator[BlockSettings]:
    own = settings.inside(block)
    yield own
    for each in find(block, "location"):
        yield from _settings_in(each.block, own)


def _picked(source: Source, servers: list[ServerBlock]) -> list[ServerBlock]:
    if source.pick is None:
        return servers
    picked = [server for server in servers if source.pick in (*server.names, f"line {server.line}")]
    if not picked:
        names = [name for server in servers for name in server.names or (f"line {server.line}",)]
        raise source.error(0, f"no server {source.pick}", f"--pick with one of: {', '.join(names[:40])}")
    return picked


def _merge_slashes(source: Source, directives: list[Directive], servers: list[ServerBlock]) -> bool:
    """True if slashes are merged, which is one setting for all sites of a profile; nginx does by default."""
    own = [find(server.block, "merge_slashes") for server in servers]
    owned = {id(each) for block in own for each in block}
    outside = [each for each in _outside_servers(directives) if id(each) not in owned]
    default = _flag(source, outside[-1]) if outside else True
    flags = {_flag(source, block[-1]) if block else default for block in own} or {default}
    if len(flags) > 1:
        names = ", ".join((server.names or [f"line {server.line}"])[0] for server in servers)
        raise source.error(0, "servers with merge_slashes on and off", f"--pick with one of: {names}")
    return flags.pop()


def _outside_servers(directives: list[Directive]) -> list[Directive]:
    blocks = (directives, *(each.block for each in find(directives, "http")))
    return [each for block in blocks for each in find(block, "merge_slashes")]


def _flag(source: Source, directive: Directive) -> bool:
    if directive.arguments not in (["on"], ["off"]):
        raise source.error(directive.line, directive.title, "merge_slashes on | off")
    return directive.arguments == ["on"]
