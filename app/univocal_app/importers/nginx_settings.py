"""nginx's access rules, fields and compression as tables of a site or a route; what has no equal is closed.

An import never opens what was closed: a rule that univocal cannot express refuses every request instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any, Final, TypeAlias

from univocal.http.field_edits import request_fault, response_fault, value_fault
from univocal_app.importers.imported import Note, Table
from univocal_app.importers.nginx_syntax import Directive
from univocal_app.importers.sites import CLOSED

__all__ = ["SETTINGS", "BlockSettings", "is_guard", "rates_of", "refuses_all"]

# Directives that `BlockSettings` takes over, or says why not.
SETTINGS: Final = frozenset(
    {"allow", "deny", "auth_basic", "auth_basic_user_file", "limit_req", "limit_req_zone", "gzip", "brotli"}
) | {"zstd", "proxy_set_header", "add_header", "proxy_hide_header"}
_CODINGS: Final = {"zstd": "zstd", "brotli": "br", "gzip": "gzip"}  # the best first

# Guards without an equal here. A file that is included may hold some.
_GUARDS: Final = frozenset({"internal", "limit_except", "include", "return", "ssl_verify_client"})
_GUARD_PREFIXES: Final = ("auth_", "access_by_lua")
_TAKEN: Final = frozenset({"auth_basic", "auth_basic_user_file"})
_HARMLESS_FILES: Final = re.compile(r"(?:.*/)?(?:proxy|fastcgi|uwsgi|scgi)_params|(?:.*/)?mime\.types")
_HARMLESS_IN_IF: Final = frozenset({"set", "break", "add_header", "access_log", "expires", "limit_rate"})
_WHOLE_URL: Final = re.compile(r"https?://[^$]*(?:\$(?:host|http_host|server_name))?\$request_uri")

_ZONE: Final = re.compile(r"zone=([^:]+)(?::.*)?")
_RATE: Final = re.compile(r"rate=([1-9][0-9]{0,6})r/([sm])")
_BURST: Final = re.compile(r"burst=([0-9]{1,6})")
_CLIENTS: Final = frozenset({"$binary_remote_addr", "$remote_addr"})
# Fields with one line for each value: `set` would take the origin server's away.
_LISTS: Final = frozenset({"set-cookie", "link", "www-authenticate"})

Net: TypeAlias = IPv4Network | IPv6Network
_ALL: Final[Sequence[Net]] = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """The settings in force in one block, by directive; `inside` gives those of a block within it."""

    rates: Mapping[str, str]  # by zones of limit_req_zone
    networks: Sequence[Directive] = ()
    realm: Directive | None = None
    users: Directive | None = None
    limits: Sequence[Directive] = ()
    request_fields: Sequence[Directive] = ()
    added_fields: Sequence[Directive] = ()
    hidden_fields: Sequence[Directive] = ()
    codings: frozenset[str] = frozenset()
    is_closed: bool = False

    def inside(self, block: list[Directive]) -> BlockSettings:
        """The settings of a block; as in nginx, a directive that may be repeated replaces all inherited."""
        named: dict[str, list[Directive]] = {}
        for each in block:
            named.setdefault("deny" if each.name == "allow" else each.name, []).append(each)
        codings = {name: named[name][-1].arguments == ["on"] for name in _CODINGS if name in named}
        kept = self.codings - {name for name, is_on in codings.items() if not is_on}
        return replace(
            self,
            networks=named.get("deny", self.networks),
            realm=named.get("auth_basic", [self.realm])[-1],
            users=named.get("auth_basic_user_file", [self.users])[-1],
            limits=named.get("limit_req", self.limits),
            request_fields=named.get("proxy_set_header", self.request_fields),
            added_fields=named.get("add_header", self.added_fields),
            hidden_fields=named.get("proxy_hide_header", self.hidden_fields),
            codings=kept | {name for name, is_on in codings.items() if is_on},
            is_closed=self.is_closed or any(is_guard(each) for each in block),
        )

    @property
    def is_guarded(self) -> bool:
        """True if not everybody has access."""
        return self.is_closed or self._has_users or bool(self.networks)

    @property
    def _has_users(self) -> bool:
        return self.realm is not None and self.realm.arguments != ["off"]

    def tables(self, notes: list[Note]) -> dict[str, Table]:
        """The tables `access`, `request`, `response` and `cache` of a route, those that are not empty."""
        codings = [coding for name, coding in _CODINGS.items() if name in self.codings]
        tables = {
            "access": self._access(notes),
            "request": _request(self.request_fields, notes),
            "response": _response(self.added_fields, self.hidden_fields, notes),
            "cache": {"compress": codings} if codings else {},
        }
        return {name: table for name, table in tables.items() if table}

    def _access(self, notes: list[Note]) -> Table:
        if self.is_closed:
            return CLOSED
        access = _networks(self.networks, notes)
        if access is CLOSED:
            return access
        if self.realm is not None and self._has_users:
            file = self.users.arguments[0] if self.users and self.users.arguments else ""
            if not file or "$" in file:
                text = f"{self.realm.written()}: no file of users that univocal could read, so closed"
                notes.append(Note(self.realm.line, text, is_open_question=True))
                return CLOSED
            access["basic"] = file
            text = f"{file} is relative to univocal.toml; its hashes are of bcrypt (htpasswd -B) or argon2"
            notes.append(Note(self.realm.line, f"{self.realm.written()}: {text}"))
        rate = _rate(self.limits, self.rates, notes)
        return access | ({"rate": rate} if rate else {})


def is_guard(directive: Directive) -> bool:
    """Tell whether a directive refuses some requests in a way that univocal cannot express."""
    name, arguments = directive.name, directive.arguments
    if name == "if":
        return not all(_is_harmless(each) for each in directive.block or [])
    if name == "include":
        return not all(_HARMLESS_FILES.fullmatch(each) for each in arguments)
    if name == "ssl_verify_client":
        return arguments == ["on"]
    guards = name in _GUARDS or name.startswith(_GUARD_PREFIXES)
    return guards and name not in _TAKEN and arguments != ["off"]


def _is_harmless(directive: Directive) -> bool:
    """Tell whether a directive in an `if` lets the request pass, or redirects the whole site."""
    arguments = directive.arguments
    if directive.name == "return":
        return bool(arguments) and _WHOLE_URL.fullmatch(arguments[-1]) is not None
    return directive.name in _HARMLESS_IN_IF


def refuses_all(block: list[Directive]) -> bool:
    """Tell whether a location refuses every request, so that a closed route is its equal."""
    rules = [each for each in block if each.name in {"allow", "deny"}]
    denied = bool(rules) and all(each.name == "deny" for each in rules)
    return (denied and any(each.arguments == ["all"] for each in rules)) or any(
        each.name == "internal" or (each.name == "return" and each.arguments[:1] >= ["400"]) for each in block
    )


def _networks(rules: Sequence[Directive], notes: list[Note]) -> dict[str, Any]:
    """The access that allow and deny give: the first rule that matches counts. CLOSED if it has no equal."""
    left: list[Net] = list(_ALL)
    allowed: list[Net] = []
    denied: list[Net] = []
    ended = False
    for rule in rules:
        try:
            nets = _ALL if rule.arguments == ["all"] else (ip_network(rule.arguments[0], strict=False),)
        except (ValueError, IndexError):
            if rule.name == "allow":
                notes.append(Note(rule.line, f"{rule.written()}: no network; left out, so it has no access"))
                continue
            notes.append(Note(rule.line, f"{rule.written()}: no network, so closed", is_open_question=True))
            return CLOSED
        taken = [part for net in nets for part in _common(net, left)]
        (allowed if rule.name == "allow" else denied).extend(taken)
        left = [part for each in left for part in _without(each, nets)]
        ended = ended or rule.arguments == ["all"]
    if not denied:
        return {}
    if not left and ended and not allowed:
        return CLOSED
    ends_closed = ended and rules[-1].name == "deny"
    if ends_closed:
        return {"allow": _written(allowed)}
    return {"deny": _written(denied)}


def _common(net: Net, among: Iterable[Net]) -> Iterator[Net]:
    for each in among:
        if each.version == net.version and each.overlaps(net):
            yield net if net.prefixlen >= each.prefixlen else each


def _without(net: Net, taken: Iterable[Net]) -> list[Net]:
    left = [net]
    for each in taken:
        kept: list[Net] = []
        for part in left:
            if part.version != each.version or not part.overlaps(each):
                kept.append(part)
            elif each.prefixlen > part.prefixlen:
                kept.extend(part.address_exclude(each))  # type: ignore[arg-type]  # one version, as asked above
        left = kept
    return left


def _written(nets: Sequence[Net]) -> list[str]:
    four = collapse_addresses(each for each in nets if isinstance(each, IPv4Network))
    six = collapse_addresses(each for each in nets if isinstance(each, IPv6Network))
    return [str(each) for each in (*four, *six)]


def rates_of(zones: Iterable[Directive], notes: list[Note]) -> dict[str, str]:
    """The rates of limit_req_zone that count a client's requests, by the names of their zones."""
    rates: dict[str, str] = {}
    for zone in zones:
        key, *parameters = zone.arguments or [""]
        names = [match[1] for each in parameters if (match := _ZONE.fullmatch(each))]
        written = [f"{match[1]}/{match[2]}" for each in parameters if (match := _RATE.fullmatch(each))]
        if key in _CLIENTS and names and written:
            rates[names[0]] = written[0]
        else:
            notes.append(Note(zone.line, f"{zone.written()}: [sites.access] rate counts by client; left out"))
    return rates


def _rate(limits: Sequence[Directive], rates: Mapping[str, str], notes: list[Note]) -> str:
    """The rate of the first limit_req whose zone counts by client. nginx's burst is beyond one request."""
    written = ""
    for limit in limits:
        named = [match[1] for each in limit.arguments if (match := _ZONE.fullmatch(each))]
        if not named or named[0] not in rates or written:
            notes.append(Note(limit.line, f"{limit.written()}: left out: see [sites.access] rate"))
            continue
        bursts = [int(match[1]) for each in limit.arguments if (match := _BURST.fullmatch(each))]
        written = f"{rates[named[0]]} burst {(bursts or [0])[0] + 1}"
    return written


def _request(directives: Sequence[Directive], notes: list[Note]) -> Table:
    """The fields of requests. A client's field that nginx replaces with a variable is removed."""
    made: dict[str, Any] = {}
    removed: list[str] = []
    for each in directives:
        name, value = [*each.arguments, "", ""][:2]
        if each.is_host_field or value == f"$http_{name.lower().replace('-', '_')}":
            continue
        if request_fault(name, is_set=False):
            notes.append(Note(each.line, f"{each.written()}: univocal writes this field itself"))
        elif name.lower() in {other.lower() for other in (*made, *removed)}:
            notes.append(Note(each.line, f"{each.written()}: the field is set twice; left out"))
        elif "$" in value or (value and (request_fault(name, is_set=True) or value_fault(value))):
            removed.append(name)
            text = "no fixed value, so univocal removes the field; no client can set it"
            notes.append(Note(each.line, f"{each.written()}: {text}"))
        elif value:
            made[name] = value
        else:
            removed.append(name)
    return _edits(made, removed)


def _response(added: Sequence[Directive], hidden: Sequence[Directive], notes: list[Note]) -> Table:
    """The fields of responses: added ones are set, on errors, too."""
    made: dict[str, Any] = {}
    for each in added:
        name, value = [*each.arguments, "", ""][:2]
        fault = "$" in value or not value or response_fault(name, is_set=True) or value_fault(value)
        if fault or name.lower() in _LISTS or name.lower() in {other.lower() for other in made}:
            notes.append(Note(each.line, f"{each.written()}: left out: see [response] set and remove"))
            continue
        made[name] = value
        if "always" not in each.arguments[2:]:
            notes.append(Note(each.line, f"{each.written()}: univocal sets it on errors, too"))
    removed: list[str] = []
    for each in hidden:
        name = (each.arguments or [""])[0]
        if response_fault(name, is_set=False):
            notes.append(Note(each.line, f"{each.written()}: left out: see [response] set and remove"))
        elif name.lower() not in {other.lower() for other in (*made, *removed)}:
            removed.append(name)
    return _edits(made, removed)


def _edits(made: Mapping[str, Any], removed: Sequence[str]) -> Table:
    return ({"set": dict(made)} if made else {}) | ({"remove": list(removed)} if removed else {})
