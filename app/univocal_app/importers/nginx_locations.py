"""nginx's locations as routes: where a prefix and a proxy_pass amount to one, and why they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from univocal.http.grammar import RESERVED
from univocal.uri.profile import Profile
from univocal_app.importers.imported import Note
from univocal_app.importers.nginx_settings import BlockSettings, is_guard, refuses_all
from univocal_app.importers.nginx_syntax import Directive
from univocal_app.importers.nginx_values import READ_ELSEWHERE, read_timeout
from univocal_app.importers.sites import Mapped, Setting, literal_beginning

__all__ = ["LocationReading", "host_field", "is_guarding", "left_out", "read_server"]

_NOT_OURS: Final = "not part of a profile or a route"
_REWRITES: Final = "changes what a URL means; [[rewrite]] knows substrings only (docs/profiles.md)"
_SERVES: Final = "nginx answers this by itself; univocal maps paths to origin servers only"
_GUARDS: Final = "guards what nginx serves, by what univocal has no equal for"
_CLOSED: Final = "univocal refuses these requests (403) until [sites.access] says who has access"
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ssl_certificate", "ssl_certificate_key"), "[server] tls_cert, tls_key"),
    **dict.fromkeys(("gzip_types", "gzip_min_length", "gzip_vary"), "[cache] compress"),
    **dict.fromkeys(("proxy_cache", "proxy_cache_valid", "proxy_cache_path"), "[cache]"),
    "keepalive": "[origin] max_idle",
    "http2": "[server] http2",
    "access_log": "[server] access_log",
    "error_page": "[server] error_pages",
}


def _in_lua(*phases: str) -> list[str]:
    """The directives that run a script in these phases."""
    return [f"{phase}_by_lua{form}" for phase in phases for form in ("", "_block", "_file")]


_WHY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rewrite", "if", "set", "map", "try_files", "break"), _REWRITES),
    **dict.fromkeys(("return", "root", "alias", "index", "autoindex", "fastcgi_pass", "uwsgi_pass"), _SERVES),
    **dict.fromkeys(("scgi_pass", "grpc_pass", "memcached_pass", "random_index", "empty_gif"), _SERVES),
    **dict.fromkeys(("auth_request", "internal", "limit_except", "ssl_verify_client"), _GUARDS),
    **dict.fromkeys(("limit_conn", "valid_referers", "secure_link"), _GUARDS),
    "satisfy": "univocal asks for every rule, never for one of them",
    **{name: f"left out: see {keys}" for name, keys in _ELSEWHERE.items()},
    **dict.fromkeys(_in_lua("content"), _SERVES),
    **dict.fromkeys(_in_lua("rewrite", "set", "server_rewrite", "balancer"), _REWRITES),
    **dict.fromkeys(_in_lua("access"), _GUARDS),
    "include": "the other file is not read, and may hold access rules; put its lines here",
    "listen": "where univocal listens is [server] listen, or --listen",
    "proxy_redirect": "univocal leaves Location as the origin server sent it",
}

# The three ways of proxy_pass: the target as it came, the path put into a template, the prefix replaced.
# Arguments of proxy_pass: no URLs yet where they have variables.
_ORIGIN: Final = r"https?://[^/$]+"
_AS_RECEIVED: Final = re.compile(rf"({_ORIGIN})(?:\$request_uri)?")
_TEMPLATE: Final = re.compile(rf"({_ORIGIN}(?:/[^$?]*)?)\$(?:document_)?uri(\$is_args\$args)?")
_REPLACED: Final = re.compile(rf"{_ORIGIN}/[^$]*")
# A socket stands in URLs as a host until they are written: nginx ends its path with a colon.
_SOCKET: Final = re.compile(r"http://unix:(/[^:$]+):?")
_AS_HOST: Final = re.compile(r"http://unix(%2F[^/{]+)(.*)")
_TLS_SOCKET: Final = "https://unix:"
_WEIGHT: Final = re.compile(r"weight=([0-9]{1,9})")  # of an upstream's server

# Routes are chosen by a path in which reserved bytes are as they came: an escape of one crosses routes.
_RESERVED: Final = frozenset(RESERVED) - frozenset(b"/")

_OF_PREFIXES: Final[Sequence[list[str]]] = ([], ["^~"])  # modifiers of a location
_LEFT_OUT_KINDS: Final = {"=": "one path", "~": "a regular expression", "~*": "a regular expression"}


# What a regular expression of paths begins with, up to the last slash before anything special.
_LITERAL: Final = re.compile(r"\^(/(?:[\w-]+/)+)")


class _Server(NamedTuple):
    """A server of an upstream."""

    weight: int = 1
    is_backup: bool = False

    def members(self) -> dict[str, int]:
        """The keys of its table that are not the default."""
        weight = {"weight": self.weight} if self.weight != 1 else {}
        return weight | ({"backup": True} if self.is_backup else {})


@dataclass(frozen=True, slots=True)
class LocationReading:
    """The directives in force at one place of the file; the routes and notes that are found there."""

    upstreams: Mapping[str, Directive]
    profile: Profile
    notes: list[Note]
    host: str
    settings: BlockSettings
    read_timeout: float | None = None
    base: str = "/"  # the location that this is in
    routes: list[tuple[Mapped, str]] = field(default_factory=list)

    def inside(self, block: list[Directive], host: str = "", base: str = "") -> LocationReading:
        """The reading of a block within; the routes of a location are those of its server."""
        return replace(
            self,
            host=host_field(block, host or self.host),
            settings=self.settings.inside(block),
            read_timeout=read_timeout(block, self.read_timeout),
            base=base or self.base,
            routes=self.routes if base else [],
        )

    def close(self, path: str, line: int, *, is_implied: bool = False, star: str = "") -> None:
        """Have no route at a path, and none below it, that forwards; with a `star`, at all that begin so."""
        literal, star = literal_beginning(path, star)
        spelled = _spelled(literal, self.profile) + star
        route = Mapped(spelled, None, "canonical", line, is_closed=True)
        self.routes.append((replace(route, is_implied=is_implied), self.host))

    def note(self, directive: Directive, text: str) -> None:
        """Say of a directive that it is not taken over, and why."""
        self.notes.append(Note(directive.line, f"{directive.written()}: {text}"))


def left_out(directive: Directive) -> Note:
    """The note that a directive has no place in a profile or a route, and why."""
    why = _WHY.get(directive.name, _NOT_OURS)
    if is_guard(directive):
        return Note(directive.line, f"{directive.written()}: {why}; {_CLOSED}", is_open_question=True)
    return Note(directive.line, f"{directive.written()}: {why}")


def host_field(block: list[Directive], inherited: str) -> str:
    """The Host that is sent; as in nginx, a block with any proxy_set_header of its own inherits none."""
    own = [each for each in block if each.name == "proxy_set_header"]
    hosts = [each.arguments[1] for each in own if each.is_host_field]
    return hosts[-1] if hosts else "$proxy_host" if own else inherited


def read_server(block: list[Directive], reading: LocationReading) -> None:
    """The routes of a server's locations, and notes on what else is in it."""
    for directive in block:
        if directive.name == "location":
            _location(directive, reading)
        elif directive.name == "proxy_pass":
            _pass(directive, "/", reading)
        elif directive.name not in {"server_name", "merge_slashes", *READ_ELSEWHERE}:
            reading.notes.append(left_out(directive))


def is_guarding(block: list[Directive]) -> bool:
    """Tell whether a block, or a location in it, refuses requests; a redirect refuses none."""
    kept = [each for each in block if each.name != "return" or refuses_all([each])]
    own = BlockSettings({}).inside(kept)
    return own.is_guarded or any(is_guarding(each.block or []) for each in kept if each.name == "location")


def _location(location: Directive, reading: LocationReading) -> None:
    *modifier, path = location.arguments or [""]
    if modifier not in _OF_PREFIXES or not path.startswith("/") or path.endswith("*"):
        _no_prefix(location, "".join(modifier), path, reading)
        return
    block = location.block or []
    inner = reading.inside(block, base=path)
    before = len(reading.routes)
    for directive in block:
        if directive.name == "proxy_pass":
            _pass(directive, path, inner)
        elif directive.name not in {"location", *READ_ELSEWHERE}:
            reading.notes.append(left_out(directive))
    is_mapped = len(reading.routes) > before
    if not is_mapped:
        reading.note(
            location, "no proxy_pass that could be taken over: univocal refuses these requests (403)"
        )
        inner.close(path, location.line)
    for directive in block:
        if directive.name == "location":
            _location(directive, inner)
    _note_ends(location, path, inner, is_mapped=is_mapped)


def _note_ends(location: Directive, path: str, inner: LocationReading, *, is_mapped: bool) -> None:
    """Note where nginx's prefix of bytes and a route of segments differ; a guard holds at both."""
    is_guarded = not is_mapped or inner.settings.is_guarded
    if path == "/":
        return
    if not path.endswith("/"):
        text = f"is of {path}x, too, in nginx"
        if not is_guarded:
            inner.note(location, f"{text}; a route is of whole segments")
            return
        if not is_mapped:
            inner.close(path, location.line, is_implied=True, star="*")
        inner.note(location, f"{text}, and guarded there: so is the route {path}*")
        return
    if is_guarded:
        inner.close(path[:-1], location.line, is_implied=True)
    if is_mapped:
        inner.note(location, f"nginx sends {path[:-1]} to {path} with 301; here it is not of this route")


def _no_prefix(location: Directive, modifier: str, path: str, reading: LocationReading) -> None:
    """Leave a location out. If it guards something, univocal refuses more rather than less."""
    has_star = path.startswith("/") and path.endswith("*") and modifier in {"", "^~"}
    kind = 'nginx reads "*" as it is' if has_star else _LEFT_OUT_KINDS.get(modifier, "no prefix")
    text = f"{location.written()}: {kind}; routes are prefixes of paths, so it is left out"
    block = location.block or []
    own = BlockSettings(reading.settings.rates).inside(block)
    if path.startswith("@") or not own.is_guarded:
        reading.notes.append(Note(location.line, text))
        return
    begins = _LITERAL.match(path) if modifier == "~" else None
    closed = path if modifier == "=" or has_star else begins[1] if begins else reading.base
    reading.close(closed, location.line)
    is_equal = modifier == "=" and refuses_all(block)
    text = f"{text}; univocal refuses all below {closed} (403), since it guards something"
    reading.notes.append(Note(location.line, text, is_open_question=not is_equal))


def _pass(directive: Directive, path: str, reading: LocationReading) -> None:
    resolved = _resolved(directive, reading)
    if resolved is None:
        return
    url, host, servers = resolved
    upstream, forward = url, "canonical"
    if as_received := _AS_RECEIVED.fullmatch(url):
        upstream, forward = as_received[1], "received"
    elif template := _TEMPLATE.fullmatch(url):
        # By itself $uri is the whole target: what an upstream without a path gets.
        upstream = template[1] + ("{path}" if template[1].count("/") > 2 else "")
        if template[2] is None:
            reading.note(directive, "nginx drops the query; here it goes on")
    elif not _REPLACED.fullmatch(url):
        reading.note(directive, "variables other than $uri at the end, or $request_uri by itself; left out")
        return
    elif not _replaces_segments(path, url, directive, reading):
        return
    elif (socket := _AS_HOST.fullmatch(url)) and socket[2] == path:
        upstream = url.removesuffix(path)  # what is replaced with itself
    spelled = _spelled(path, reading.profile)
    if set(spelled.encode()) & _RESERVED:
        reading.note(directive, f"{spelled} is taken in this spelling only; with escapes it is refused")
    setting = _setting(upstream, servers, directive, reading)
    if setting is None:
        return
    tables = reading.settings.tables(reading.notes)
    mapped = Mapped(spelled, setting, forward, directive.line, reading.read_timeout, tables)
    reading.routes.append((mapped, host))
    if reading.settings.is_guarded and not path.endswith("/"):
        # Longer names, such as /adminx, have the same guard; they are closed if the path is replaced.
        beside = replace(mapped, path=f"{spelled}*", is_implied=True)
        reading.routes.append((beside.closed() if _has_path(upstream) else beside, host))


def _has_path(upstream: str) -> bool:
    """Tell whether an upstream's path replaces that of its location."""
    return "{path}" not in upstream and "/" in upstream.partition("://")[2]


def _setting(
    upstream: str, servers: Mapping[str, _Server], directive: Directive, reading: LocationReading
) -> Setting | None:
    """The upstream's value: `upstream` is that of the first of `servers`, which are by URL.

    A path behind a socket, which univocal has no way to write, is left out; None if nothing else is there.
    """
    behind = upstream.removeprefix(next(iter(servers), upstream))
    written = [(_written(url + behind), server) for url, server in (servers or {upstream: _Server()}).items()]
    kept = [(url, server) for url, server in written if url]
    if len(kept) < len(written):
        reading.note(directive, "a path behind a socket; left out")
    if all(server.is_backup for _, server in kept):
        kept = [(url, _Server(server.weight)) for url, server in kept]
    if len(kept) < 2:
        return kept[0][0] if kept else None
    return [url if server == _Server() else {"url": url, **server.members()} for url, server in kept]


def _written(url: str) -> str:
    """A URL as a configuration has it; "" for a path behind a socket."""
    socket = _AS_HOST.fullmatch(url)
    if socket is None:
        return url
    return "" if socket[2] else f"unix://{unquote(socket[1])}"


def _as_host(url: str) -> str:
    return _SOCKET.sub(lambda match: "http://unix" + quote(match[1], safe=""), url)


def _spelled(path: str, profile: Profile) -> str:
    """A location, which nginx compares with decoded paths, as the profile spells it."""
    octets = path.encode()
    for octet in (b"%", b"?", b"#"):
        octets = octets.replace(octet, b"%%%02X" % ord(octet))
    return profile.ring.canonical(octets).decode()


def _replaces_segments(path: str, url: str, directive: Directive, reading: LocationReading) -> bool:
    """Tell whether nginx, which replaces bytes, replaces segments here; a doubled slash is only noted."""
    if path.endswith("/") and not url.endswith("/"):
        reading.note(directive, f"nginx makes {url}x of {path}x, not {url}/x; left out")
        return False
    if url.endswith("/") and not path.endswith("/"):
        reading.note(directive, f"nginx makes {url}/x of {path}/x; here it is {url}x")
    return True


def _resolved(directive: Directive, reading: LocationReading) -> tuple[str, str, dict[str, _Server]] | None:
    """The URL of a proxy_pass, with a server in the place of its upstream's name; the Host; all servers."""
    url = _as_host(directive.arguments[0] if directive.arguments else "")
    if url.startswith(_TLS_SOCKET):
        reading.note(directive, "TLS over a socket; left out")
        return None
    match = re.fullmatch(r"(https?://)([^/$:]+)(.*)", url, re.DOTALL)
    if match is None:
        reading.note(directive, "no http:// or https:// and a host; left out")
        return None
    upstream = reading.upstreams.get(match[2])
    if upstream is None:
        socket = _AS_HOST.match(url) and reading.host == "$proxy_host"
        return url, "localhost" if socket else reading.host, {}
    servers: dict[str, _Server] = {}
    for each in upstream.block or []:
        if each.name != "server" or not each.arguments:
            reading.notes.append(left_out(each))
        elif "down" in each.arguments[1:]:
            reading.note(each, "it is down; left out")
        elif (match[1] + each.arguments[0]).startswith(_TLS_SOCKET):
            reading.note(each, "TLS over a socket; left out")
        else:
            server, *parameters = each.arguments
            own = _as_host(match[1] + server)
            weight = _weight(parameters) + (servers[own].weight if own in servers else 0)
            is_backup = "backup" in parameters and (own not in servers or servers[own].is_backup)
            servers[own] = _Server(weight, is_backup)
            others = [each for each in parameters if each != "backup" and not _WEIGHT.fullmatch(each)]
            if others:
                reading.note(each, f"{' '.join(others)}: see choice, fails and eject of [origin]")
    if not servers:
        reading.note(upstream, "no server with a host and a port; left out")
        return None
    host = match[2] if reading.host == "$proxy_host" else reading.host
    return f"{next(iter(servers))}{match[3]}", host, servers


def _weight(parameters: Sequence[str]) -> int:
    return next((int(each[1]) for each in map(_WEIGHT.fullmatch, parameters) if each), 1)
