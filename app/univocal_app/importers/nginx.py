"""nginx's servers and locations as a profile, sites and routes; what they do besides is said line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import parse
from univocal_app.importers.imported import Imported, Note, Source
from univocal_app.importers.nginx_locations import (
    LocationReading,
    host_field,
    is_guarding,
    left_out,
    read_server,
)
from univocal_app.importers.nginx_settings import BlockSettings, rates_of, refuses_all
from univocal_app.importers.nginx_syntax import Directive
from univocal_app.importers.nginx_syntax import parse as parse_directives
from univocal_app.importers.nginx_values import READ_ELSEWHERE as TAKEN_OVER
from univocal_app.importers.nginx_values import body_size, read_timeout
from univocal_app.importers.sites import SiteWriter

__all__ = ["read"]

_HOSTS: Final = {"$host": "site", "$http_host": "site", "$proxy_host": "upstream"}
_OF_A_SERVER: Final = frozenset({"location", "proxy_pass", "server_name"})
_READ_ELSEWHERE: Final = frozenset({"merge_slashes", "upstream", *TAKEN_OVER})


def read(source: Source) -> Imported:
    """The profile of nginx as `source` sets it, and the sites of its servers. Raises ConfigurationError."""
    directives = parse_directives(source)
    if not directives:
        raise source.error(0, "no directive", "a server, a location or a proxy_pass of nginx")
    notes: list[Note] = []
    upstreams = {each.arguments[0]: each for each in _all(directives, "upstream") if each.arguments}
    servers = _picked(source, list(_servers(directives, "$proxy_host", notes)))
    merging = _merge_slashes(source, directives, [server for server, _ in servers])
    text = 'extends = "nginx"\n' + ("" if merging else "[path]\nmerge_slashes = false\n")
    writer = SiteWriter(parse({"imported": text}, builtin_profiles())["imported"], notes)
    http = [each for block in (directives, *_blocks(directives, "http")) for each in block]
    rates = rates_of(_all(directives, "limit_req_zone"), notes)
    everywhere = LocationReading(
        upstreams, writer.profile, notes, "", BlockSettings(rates).inside(http), read_timeout(http, None)
    )
    for server, inherited in servers:
        _server(server, writer, everywhere.inside(server.block or [], host=inherited))
    writer.close_unwritten()
    return Imported(
        summary="Imported from a configuration of nginx",
        extends="nginx",
        path={} if merging else {"merge_slashes": False},
        notes=notes,
        sites=writer.sites,
        server=_server_table(directives, notes),
    )


def _blocks(directives: list[Directive], name: str) -> list[list[Directive]]:
    return [each.block or [] for each in directives if each.name == name]


def _server_table(directives: list[Directive], notes: list[Note]) -> dict[str, int]:
    """The largest client_max_body_size, 0 for no limit: univocal has one for all sites."""
    sizes = [(each, body_size(each)) for each in _all(directives, "client_max_body_size")]
    known = [size for _, size in sizes if size is not None]
    if not known:
        return {}
    largest = 0 if 0 in known else max(known)
    for directive, size in sizes:
        if size != largest:
            notes.append(Note(directive.line, f"{directive.written()}: one limit for all sites; the largest"))
    return {"max_body": largest}


def _all(directives: list[Directive], name: str) -> Iterator[Directive]:
    for directive in directives:
        if directive.name == name:
            yield directive
        yield from _all(directive.block or [], name)


def _servers(
    directives: list[Directive], inherited: str, notes: list[Note]
) -> Iterator[tuple[Directive, str]]:
    """Each server, and the Host field that it inherits; locations that stand alone are one, too."""
    inherited = host_field(directives, inherited)
    alone = any(each.name in _OF_A_SERVER for each in directives)
    if alone:
        block = [each for each in directives if each.name not in {"server", "http", *_READ_ELSEWHERE}]
        yield Directive("server", [], directives[0].line, block), inherited
    for directive in directives:
        if directive.name == "server":
            yield directive, inherited
        elif directive.name == "http":
            yield from _servers(directive.block or [], inherited, notes)
        elif not (alone or directive.name in _READ_ELSEWHERE or directive.is_host_field):
            notes.append(left_out(directive))


def _picked(source: Source, servers: list[tuple[Directive, str]]) -> list[tuple[Directive, str]]:
    if source.pick is None:
        return servers
    picked = [pair for pair in servers if source.pick in (*_names(pair[0]), f"line {pair[0].line}")]
    if not picked:
        names = [name for server, _ in servers for name in _names(server) or [f"line {server.line}"]]
        raise source.error(0, f"no server {source.pick}", f"--pick with one of: {', '.join(names[:40])}")
    return picked


def _names(server: Directive) -> list[str]:
    return [name for each in server.block or [] if each.name == "server_name" for name in each.arguments]


def _merge_slashes(source: Source, directives: list[Directive], servers: list[Directive]) -> bool:
    """True if slashes are merged, which is one setting for all sites of a profile; nginx does by default."""
    own = [[each for each in server.block or [] if each.name == "merge_slashes"] for server in servers]
    owned = {id(each) for block in own for each in block}
    outside = [each for each in _outside_servers(directives) if id(each) not in owned]
    default = _flag(source, outside[-1]) if outside else True
    flags = {_flag(source, block[-1]) if block else default for block in own} or {default}
    if len(flags) > 1:
        names = ", ".join((_names(server) or [f"line {server.line}"])[0] for server in servers)
        raise source.error(0, "servers with merge_slashes on and off", f"--pick with one of: {names}")
    return flags.pop()


def _outside_servers(directives: list[Directive]) -> Iterator[Directive]:
    for directive in directives:
        if directive.name == "merge_slashes":
            yield directive
        elif directive.name == "http":
            yield from _outside_servers(directive.block or [])


def _flag(source: Source, directive: Directive) -> bool:
    if directive.arguments not in (["on"], ["off"]):
        raise source.error(directive.line, directive.written(), "merge_slashes on | off")
    return directive.arguments == ["on"]


def _server(server: Directive, writer: SiteWriter, reading: LocationReading) -> None:
    read_server(server.block or [], reading)
    forwarding = [(route, host) for route, host in reading.routes if not route.is_closed]
    hosts = [host for _, host in sorted(forwarding, key=lambda pair: pair[0].path != "/")]
    for other in [host for host in dict.fromkeys(hosts) if host != hosts[0]]:
        where = ", ".join(route.path for route, host in forwarding if host == other)
        writer.notes.append(Note(server.line, f"Host {other} at {where}: a site has one origin_host"))
    origin_host = _origin_host(hosts[0] if hosts else "$proxy_host", server, writer.notes)
    routes = [route for route, _ in reading.routes]
    redirects = any(each.name == "return" and not refuses_all([each]) for each in server.block or [])
    closed = reading.settings.is_guarded and not redirects
    if closed or is_guarding(server.block or []):
        for name in filter(_is_pattern, _names(server)):
            writer.lose_hosts(server.line, name)
    writer.add(server.line, list(_hosts(server, writer.notes)), routes, origin_host, is_guarded=closed)


def _origin_host(value: str, server: Directive, notes: list[Note]) -> str:
    if value in _HOSTS or "$" not in value:
        return _HOSTS.get(value, value)
    notes.append(Note(server.line, f"Host {value}: a variable; the site's own host is sent"))
    return "site"


def _hosts(server: Directive, notes: list[Note]) -> Iterator[str]:
    names = _names(server)
    if not names:
        yield "*"
    for name in names:
        if _is_pattern(name):
            notes.append(Note(server.line, f"server_name {name}: hosts are names, or *.name"))
        elif name.startswith("."):
            yield from (name[1:], f"*{name}")
        else:
            yield "*" if name in {"_", ""} else name


def _is_pattern(name: str) -> bool:
    """Tell whether a server_name stands for hosts that no site here can name."""
    return name.startswith("~") or "$" in name or name.endswith(".*")
