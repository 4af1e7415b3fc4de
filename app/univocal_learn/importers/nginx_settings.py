"""nginx's access rules, fields, limits and rules of caching as tables of a site or a route.

An import never opens what was closed: a rule that univocal cannot express refuses every request instead, and
the rules that it can express stand beside it. It keeps apart what nginx keeps apart: the cache is bypassed by
what nginx did not store, or stored by a rule that no setting says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Any, Final

from univocal.http.field_edits import added_fault, names_clients, request_fault, response_fault, value_fault
from univocal_learn.importers.imported import Notes, Table, octets_of, words_of
from univocal_learn.importers.networks import ALL, CLOSED, Net, closed_beside, common, without, written
from univocal_learn.importers.nginx_caching import cache_table
from univocal_learn.importers.nginx_conditions import ConditionEntry, assigned, condition
from univocal_learn.importers.nginx_directives import TABLE, closes, is_refusal, leading
from univocal_learn.importers.nginx_syntax import Directive, body_size, duration, find, within

_CODINGS: Final = {"zstd": "zstd", "brotli": "br", "gzip": "gzip"}  # the best first
_INHERITED, _OF_ONE, _OF_ACCESS = (
    words_of(TABLE["directives"][kind]) for kind in ("inherited", "of_one", "of_access")
)
_COUNTING: Final = ("deny", "limit_req", "limit_conn")  # by addresses of clients
_OF_ALL: Final = ("on", "proxy_protocol")  # with these nginx passes over each of its proxies
_ZONE: Final = re.compile(r"zone=([^:]+)(?::.*)?")
_RATE: Final = re.compile(r"rate=([1-9][0-9]{0,6})r/([sm])")
_HASHED: Final = re.compile(r"[^:]+:\$(?:2[aby]\$|argon2)")  # a user, and a hash that univocal can check
_BURST: Final = re.compile(r"burst=([0-9]{1,6})")
_CLIENTS: Final = frozenset({"$binary_remote_addr", "$remote_addr"})
_USER: Final = "$remote_user"
LISTED: Final = words_of(TABLE["fields"]["listed"])
_OF_CACHES: Final = words_of(TABLE["fields"]["of_caches"])
# Fields by which an origin server is asked to let its front server send a file, which univocal does not.
_OF_FILES: Final = frozenset({"x-accel-mapping", "x-sendfile-type", "x-accel-redirect", "x-accel-buffering"})
_OF_A_PROXY: Final = "x-forwarded-"
_NAMES: Final = TABLE["names"]
_VARIABLE: Final = re.compile(rf"\$(?:({'|'.join(_NAMES)})\b|\{{({'|'.join(_NAMES)})\}})")
_NAME_IN_BRACES: Final = re.compile(r"\{[a-z_]+\}")


_SEVERAL: Final = Directive("set", [], 0)  # of a variable that more than one directive gives a value to


@dataclass(frozen=True, slots=True)
class Zones:
    """The zones of limit_req_zone and limit_conn_zone that count by client, and those by user.

    Rates are by the zones' names.
    """

    rates: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    of_users: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    connections: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """The settings in force in one block, by directive; `inside` gives those of a block within it."""

    zones: Zones = Zones()
    in_force: Mapping[str, Sequence[Directive]] = field(default_factory=dict)
    closing: Sequence[Directive] = ()  # directives that may refuse, and have no equal
    conditions: Mapping[int, ConditionEntry | None] = field(
        default_factory=dict
    )  # of these, by their identity
    given: Mapping[str, Directive] = field(default_factory=dict)  # variables with values of the file's own
    believed: tuple[str, ...] = ()  # the trusted proxies of all sites
    is_introduced: bool = False  # every listener takes PROXY headers
    authorities: Mapping[str, str] = field(default_factory=dict)  # URLs by the URIs of auth_request
    client_ca: str = ""  # the file of ssl_client_certificate, where clients have to show one

    def inside(self, block: Sequence[Directive], closing: Sequence[Directive] = ()) -> BlockSettings:
        """The settings of a block; as in nginx, a directive that may be repeated replaces all inherited.

        `closing` are the directives of it that close it.
        """
        named: dict[str, list[Directive]] = {}
        for each in block:
            named.setdefault("deny" if each.name == "allow" else each.name, []).append(each)
        inner = replace(
            self,
            in_force={**self.in_force, **{name: named[name] for name in _INHERITED & named.keys()}},
            closing=(
                *(each for each in self.closing if each.name != "satisfy" or "satisfy" not in named),
                *(each for each in closing if not self._asks_another(each)),
            ),
        )
        are_one = inner.argument("underscores_in_headers") == "on"
        if are_one or inner.argument("ignore_invalid_headers") == "off":
            return inner  # "-" and "_" are one in the names of fields
        referers = inner.listed("valid_referers")
        given = dict(self.given)
        for name, each in assigned(block):
            given[name] = each if given.get(name, each) is each else _SEVERAL
        conditions = {id(each): condition(each, referers, given) for each in closing}
        return replace(inner, conditions={**self.conditions, **conditions}, given=given)

    def within(self, closing: Sequence[Directive]) -> BlockSettings:
        """The settings that locations within a location inherit, which `closing` ones of it close."""
        own = {id(each) for each in closing if each.name in _OF_ONE}
        return replace(self, closing=[each for each in self.closing if id(each) not in own])

    def beside(self, other: BlockSettings) -> BlockSettings:
        """These settings, with what closes by `other` ones, too, and the smaller one of their bodies."""
        sizes = [each.last("client_max_body_size") for each in (self, other)]
        size = min(sizes, key=lambda each: body_size(each) or inf)
        return replace(
            self,
            closing=(*other.closing, *self.closing),
            conditions={**other.conditions, **self.conditions},
            in_force={**self.in_force, "client_max_body_size": [size] if size else []},
        )

    def guarded_with(self, other: BlockSettings) -> BlockSettings | None:
        """These settings with the guards of `other`, too; None where two of a kind differ."""
        in_force = dict(self.in_force)
        for kind, own in self._guards.items():
            others = other._guards[kind]
            ours, theirs = ([(each.name, *each.arguments) for each in some] for some in (own, others))
            if own and others and ours != theirs:
                return None
            if kind in _COUNTING:
                in_force[kind] = own or others
            else:
                in_force |= {each.name: [each] for each in own or others}
        in_force["error_page"] = [*self.listed("error_page"), *other.listed("error_page")]
        is_one = self.argument("satisfy") in {"", "all"} and other.argument("satisfy") in {"", "all"}
        return replace(self, in_force=in_force) if is_one and self.trusted == other.trusted else None

    @property
    def _guards(self) -> dict[str, Sequence[Directive]]:
        """The directives in force that guard, by their kind."""
        users = map(self.last, ("auth_basic", "auth_basic_user_file"))
        return {
            **{kind: self.listed(kind) for kind in _COUNTING},
            "auth_basic": [each for each in users if each and self._has_users],
            "auth_request": self.in_force["auth_request"][-1:] if self._authority else [],
        }

    def leading(self, status: str) -> Directive | None:
        """The error_page in force that leads those who are refused by a status elsewhere."""
        return leading(self.listed("error_page"), status)

    def takes(self, directive: Directive) -> bool:
        """Tell whether a directive is an auth_request, ssl_verify_client or a condition with an equal."""
        return self._asks_another(directive) or self.conditions.get(id(directive)) is not None

    def _asks_another(self, directive: Directive) -> bool:
        if directive.name == "ssl_verify_client":
            return directive.first == "on" and bool(self.client_ca)
        return directive.name == "auth_request" and directive.first in self.authorities

    def listed(self, name: str) -> Sequence[Directive]:
        """The directives of this name that are in force; in a dry run none is."""
        return () if self.argument(f"{name}_dry_run") == "on" else self.in_force.get(name, ())

    def last(self, name: str) -> Directive | None:
        """The last directive of this name that is in force."""
        return next(reversed(self.in_force.get(name, ())), None)

    def argument(self, name: str) -> str:
        """The first argument of the last directive in force; empty where there is none."""
        last = self.last(name)
        return last.first if last else ""

    @property
    def before_access(self) -> BlockSettings:
        """The settings in force before nginx asks who has access: a `return` is looked at earlier."""
        return replace(self, in_force={k: v for k, v in self.in_force.items() if k not in _OF_ACCESS})

    @property
    def is_guarded(self) -> bool:
        """True if not everybody has access."""
        closes = self.closing or self._authority or self.client_ca or self._has_users
        return bool(closes) or self.counts_clients

    @property
    def counts_clients(self) -> bool:
        """True if access depends on the client's address."""
        return any(map(self.listed, _COUNTING))

    @property
    def trusted(self) -> tuple[str, ...]:
        """The networks of set_real_ip_from, as univocal can use them; ("?",) where it cannot."""
        names = [each.arguments[0] for each in self.listed("set_real_ip_from") if each.arguments]
        if not names:
            return ()
        field_name = (self.argument("real_ip_header") or "X-Real-IP").lower()
        try:
            nets = [ip_network(name, strict=False) for name in names if name != "unix:"]
        except ValueError:
            return ("?",)
        # A listener without PROXY headers would believe X-Forwarded-For of these networks.
        known = field_name == "x-forwarded-for" or (field_name == "proxy_protocol" and self.is_introduced)
        return tuple(sorted(map(str, nets))) if known else ("?",)

    @property
    def _has_users(self) -> bool:
        return "auth_basic" in self.in_force and self.argument("auth_basic") != "off"

    @property
    def _authority(self) -> str:
        """The URL of the authorization server; empty for none."""
        return self.authorities.get(self.argument("auth_request"), "")

    @property
    def _granted(self) -> list[Directive]:
        """The fields of requests that are those of the same name in an authorization server's answer."""
        pairs = [each.arguments for each in self.listed("auth_request_set") if len(each.arguments) == 2]
        given = {variable: value.removeprefix("$upstream_http_") for variable, value in pairs}
        return [
            each
            for each in self.listed("proxy_set_header")
            if self._authority
            and len(each.arguments) == 2
            and given.get(each.arguments[1]) == each.arguments[0].lower().replace("-", "_")
            and not request_fault(each.arguments[0], is_set=True)
        ]

    def tables(self, notes: Notes) -> dict[str, Any]:
        """The tables `access`, `request`, `response`, `cache` and `origin` of a route, if not empty.

        Beside them stand `redirects`, `cookie_path` and `max_body`.
        """
        access = self.access(notes)
        on = {name for name in _CODINGS if (last := self.last(name)) and last.arguments == ["on"]}
        codings = [coding for name, coding in _CODINGS.items() if name in on]
        compress = {"compress": codings} if codings else {}
        guarded = bool(self.client_ca or access.keys() - {"rate", "refuse", "require"})
        granted = self._granted
        asked = [each for each in self.listed("proxy_set_header") if each not in granted]
        added, hidden = self.listed("add_header"), self.listed("proxy_hide_header")
        tables = {
            "access": access,
            "request": _request(asked, self.given, notes),
            "response": _with_expires(_response(added, hidden, notes), self.last("expires"), notes),
            "cache": {**cache_table(self.in_force, notes, is_guarded=guarded), **compress},
            "origin": self.origin(),
            "redirects": "keep" if self.argument("proxy_redirect") == "off" else "",
            "cookie_path": "map" if self.listed("proxy_cookie_path") else "",
            "max_body": body_size(self.last("client_max_body_size")),
        }
        return {name: table for name, table in tables.items() if table}

    def origin(self) -> Table:
        """The timeouts of the origin server."""
        times = {key: duration(self.argument(f"proxy_{key}")) for key in ("connect_timeout", "read_timeout")}
        return {key: time for key, time in times.items() if time}

    def access(self, notes: Notes) -> Table:
        """The table `access`; it is closed where a rule has no equal."""
        access = dict(_networks(self.listed("deny"), notes))
        closed = access == CLOSED or not self._add_conditions(access, notes)
        # Of several addresses nginx takes the last one, unless it is told to pass over its proxies.
        is_last = {self.argument("real_ip_recursive"), self.argument("real_ip_header")}.isdisjoint(_OF_ALL)
        denying = self.listed("deny")
        if denying and (self.trusted != self.believed or (self.trusted and is_last)):
            text = "the client's address is what set_real_ip_from says, as univocal cannot, so closed"
            notes.ask(denying[0], text)
            closed = True
        elif denying and not closed:
            text = "X-Forwarded-For of no trusted proxy: the client has no right by address; nginx ignores it"
            notes.say(denying[0], text)
        if self._has_users:
            closed = not self._add_users(access, notes) or closed
        if self._authority:
            access["forward"] = self._authority
            text = "the authorization server's own answer goes to clients that it refuses"
            notes.say(self.in_force["auth_request"][-1], text)
        if self.argument("satisfy") == "any" and len(access) + closed > 1:
            text = "univocal asks for every rule, never for one of them, so closed"
            notes.ask(self.in_force["satisfy"][-1], text)
            closed = True
        if granted := list(dict.fromkeys(each.first for each in self._granted)):
            access["forward_fields"] = granted
        by_user = [each for each in self.listed("limit_req") if zone_of(each) in self.zones.of_users]
        by_user = by_user if "basic" in access else []
        by_client = [each for each in self.listed("limit_req") if each not in by_user]
        rate, is_limited = _rate(by_client, self.zones.rates, notes)
        access |= {"rate": rate} if rate else {}
        if by_user:
            access["limits"] = {"rate": _rate(by_user, self.zones.of_users, notes)[0], "by": "user"}
        for each in self.listed("limit_conn"):
            if each.first not in self.zones.connections:
                notes.ask(each, "univocal counts by client alone, so closed")
                is_limited = False
        closed = closed or not is_limited
        self._note_led(access, notes, is_closed=closed)
        return closed_beside(access) if closed else access

    def _note_led(self, access: Table, notes: Notes, *, is_closed: bool) -> None:
        """Say that nginx leads those who have no access elsewhere."""
        statuses = ["401", "403"] if is_closed or access.keys() - {"rate", "limits"} else []
        statuses += ["429", "503"] if self.listed("limit_req") or self.listed("limit_conn") else []
        pages = {id(page): page for status in statuses if (page := self.leading(status))}
        text = "nginx gives those whom it refuses this answer; univocal refuses them"
        for each in pages.values():
            notes.ask(each, text)

    def _add_conditions(self, access: dict[str, Any], notes: Notes) -> bool:
        """Add the conditions that refuse to `access`; False if one of what closes has no equal."""
        is_whole = True
        for each in self.closing:
            found = self.conditions.get(id(each))
            if found is None:
                is_whole = False
                continue
            key, subject, texts = found
            own = access.setdefault(key, {})
            before = own.get(subject, [])
            if key == "require" and before not in ([], [*texts]):
                notes.ask(each, f"univocal requires one list of values of {subject}, so closed")
                is_whole = False
            else:
                own[subject] = list(dict.fromkeys([*before, *texts]))
        return is_whole

    def _add_users(self, access: dict[str, Any], notes: Notes) -> bool:
        """Add the file of users to `access`; False if there is none that univocal can read."""
        realm, file = self.in_force["auth_basic"][-1], self.argument("auth_basic_user_file")
        if fault := _users_fault(file):
            notes.ask(realm, f"{fault}, so closed")
            return False
        if "$" in self.argument("auth_basic"):
            notes.ask(realm, "univocal asks for a password where the value is off, too")
        access["basic"] = file
        text = f"{file} is relative to univocal.toml; its hashes are of bcrypt (htpasswd -B) or argon2"
        notes.say(realm, f"{text}. The origin server does not get Authorization")
        return True


_TOLD: Final = {name: words_of(values) for name, values in TABLE["told"].items()}
_AUTHORITY: Final = re.compile(r"(https?://([\w.-]+(?::\d+)?))(/[\w./-]*)?")


def authorities_of(
    block: Sequence[Directive], around: Sequence[Directive], upstreams: Mapping[str, Directive]
) -> dict[str, str]:
    """The URL of the authorization server for each URI of auth_request in a server that has an equal."""
    locations = {tuple(each.arguments): each for each in find(block, "location")}
    uris = {each.first for each in within(block, "auth_request") if each.arguments}
    found = dict[str, str]()
    for uri in sorted(uris):
        own = locations.get(("=", uri))
        set_around = find(block, "proxy_set_header") or find(around, "proxy_set_header")
        url = _authority(own.block, set_around, uri) if own else ""
        if url and url.partition("://")[2].partition("/")[0].partition(":")[0] not in upstreams:
            found[uri] = url
    return found


def _authority(block: Sequence[Directive], set_around: list[Directive], uri: str) -> str:
    """The URL that a location for auth_request asks; empty if univocal would ask another question."""
    passes = [each.arguments for each in find(block, "proxy_pass")]
    matched = _AUTHORITY.fullmatch(passes[0][0]) if list(map(len, passes)) == [1] else None
    rest = [each for each in block if each.name not in {"proxy_pass", "proxy_pass_request_body", "internal"}]
    guards = {"allow", "deny", "auth_basic", "limit_req", "limit_conn", "satisfy"}
    if matched is None or any(closes(each) or each.block or each.name in guards for each in rest):
        return ""
    own = {"host": {matched[2]}, "connection": {""}, "content-length": {""}}
    for each in find(block, "proxy_set_header") or set_around:
        low, value = each.first.lower(), each.pair[1]
        known = _TOLD.get(low, {f"$http_{low.replace('-', '_')}"})
        if value not in known | own.get(low, set()):
            return ""
    return f"{matched[1]}{matched[3] or uri}"


def _users_fault(file: str) -> str:
    """The reason why `serve` would not start with a file of users; empty for one that is not here yet."""
    if not file or "$" in file:
        return "no file of users that univocal could read"
    if not Path(file).is_file():
        return ""
    for number, line in enumerate(Path(file).read_text("utf-8", "replace").splitlines(), 1):
        if line.strip() and not line.startswith("#") and not _HASHED.match(line):
            return f"{file}, line {number}: univocal takes hashes of bcrypt or argon2: htpasswd -B makes them"
    return ""


def refuses_all(block: Sequence[Directive], settings: BlockSettings) -> bool:
    """Tell whether a location refuses every request, so that a closed route is its equal."""
    if find(block, "internal"):
        return settings.leading("404") is None
    if any(each.meaning for each in block):
        return False
    rules = find(block, "allow", "deny")
    denied = all(each.name == "deny" for each in rules) and any(each.arguments == ["all"] for each in rules)
    is_denied = denied and settings.argument("satisfy") != "any" and settings.leading("403") is None
    return is_denied or any(map(is_refusal, block))


def _networks(rules: Sequence[Directive], notes: Notes) -> dict[str, Any]:
    """The access that allow and deny give: the first rule that matches counts. CLOSED if it has no equal."""
    left: list[Net] = list(ALL)
    allowed: list[Net] = []
    denied: list[Net] = []
    ended = False
    for rule in rules:
        try:
            nets = ALL if rule.arguments == ["all"] else (ip_network(rule.arguments[0], strict=False),)
        except (ValueError, IndexError):
            if rule.name == "allow":
                notes.say(rule, "no network; left out, so it has no access")
                continue
            notes.ask(rule, "no network, so closed")
            return CLOSED
        taken = [part for net in nets for part in common(net, left)]
        (allowed if rule.name == "allow" else denied).extend(taken)
        left = [part for each in left for part in without(each, nets)]
        ended = ended or rule.arguments == ["all"]
    if not denied:
        return {}
    if not left and ended and not allowed:
        return CLOSED
    ends_closed = ended and rules[-1].name == "deny"
    if ends_closed:
        return {"allow": written(allowed)}
    return {"deny": written(denied)}


def zones_of(directives: Iterable[Directive], notes: Notes) -> Zones:
    """The zones that count by client: rates, and requests under way at once."""
    rates: dict[str, tuple[int, str]] = {}
    of_users: dict[str, tuple[int, str]] = {}
    connections: set[str] = set()
    for zone in directives:
        key, *parameters = zone.arguments or [""]
        names = [match[1] for each in parameters if (match := _ZONE.fullmatch(each))]
        written = [(int(match[1]), match[2]) for each in parameters if (match := _RATE.fullmatch(each))]
        if key in _CLIENTS and names and zone.name == "limit_conn_zone":
            connections.add(names[0])
        elif key in {*_CLIENTS, _USER} and names and written:
            (of_users if key == _USER else rates)[names[0]] = written[0]
        else:
            notes.say(zone, "[sites.access] rate counts by client; left out")
    return Zones(rates, of_users, frozenset(connections))


def zone_of(limit: Directive) -> str:
    """The name of the zone of a limit_req."""
    return next((match[1] for each in limit.arguments if (match := _ZONE.fullmatch(each))), "")


def _rate(
    limits: Sequence[Directive], rates: Mapping[str, tuple[int, str]], notes: Notes
) -> tuple[str, bool]:
    """The rate that is as strict as all of limit_req, and whether every one of them has an equal.

    nginx's burst is beyond one request.
    """
    known: list[tuple[float, str, int]] = []
    is_complete = True
    for limit in limits:
        if zone_of(limit) not in rates:
            notes.ask(limit, "left out: see [sites.access] rate; so closed")
            is_complete = False
            continue
        bursts = [int(match[1]) for each in limit.arguments if (match := _BURST.fullmatch(each))]
        count, unit = rates[zone_of(limit)]
        known.append((count / (60 if unit == "m" else 1), f"{count}/{unit}", (bursts or [0])[0] + 1))
    if not known:
        return "", is_complete
    return f"{min(known)[1]} burst {min(burst for *_, burst in known)}", is_complete


def _request(directives: Sequence[Directive], given: Mapping[str, Directive], notes: Notes) -> Table:
    """The fields of requests. A client's field that nginx replaces with a variable is removed.

    `given` are the variables that the file gives values to: no field of a client is in these.
    """
    made: dict[str, tuple[str, str]] = {}  # by names in lower case
    removed: dict[str, str] = {}
    for each in directives:
        name, written = each.pair
        low, value = name.lower(), _with_names(written)
        own = f"$http_{low.replace('-', '_')}"
        if each.is_host_field or (written.lower() == own and own not in given):
            continue
        if request_fault(name, is_set=False):
            notes.say(each, _own_field(low))
        elif low in made or low in removed:
            notes.say(each, "the field is set twice; left out")
        elif low in _OF_FILES:
            removed[low] = name
            notes.say(each, "univocal sends no files for an origin server, so it removes the field")
        elif "$" in value or (value and (request_fault(name, is_set=True) or value_fault(value))):
            removed[low] = name
            notes.say(each, "no fixed value, so univocal removes the field; no client can set it")
        elif value:
            made[low] = name, value
            if names_clients(value):
                text = "sent with requests past the cache, and left out where others may get the response"
                notes.say(each, text)
        else:
            removed[low] = name
    return _edits(made, removed)


def _with_names(value: str) -> str:
    """A value with univocal's names for nginx's variables, as far as univocal has them."""
    if not value.isascii() and octets_of(value) != value.encode("utf-8", "replace"):
        return "$"  # univocal writes UTF-8
    named = _VARIABLE.sub(lambda match: f"\0{_NAMES[match[1] or match[2]]}\1", value)
    if named == value and not _NAME_IN_BRACES.search(value):
        return value
    return named.replace("{", "{{").replace("}", "}}").replace("\0", "{").replace("\1", "}")


def _own_field(name: str) -> str:
    if name.startswith(_OF_A_PROXY) and name.removeprefix(_OF_A_PROXY) not in {"for", "host", "proto"}:
        return "univocal removes this field; X-Forwarded-For, -Host and -Proto are what it sends"
    return "univocal writes this field itself"


def _response(added: Sequence[Directive], hidden: Sequence[Directive], notes: Notes) -> Table:
    """The fields of responses: those that may stand twice are added, others are set; on errors, too."""
    made: dict[str, tuple[str, str]] = {}  # by names in lower case
    beside: dict[str, tuple[str, str]] = {}
    removed: dict[str, str] = {}
    for each in hidden:
        if response_fault(each.first, is_set=False):
            notes.say(each, "left out: see [response] set and remove")
        else:
            removed.setdefault(each.first.lower(), each.first)
    for each in added:
        name, value = each.first, _with_names(each.pair[1])
        low = name.lower()
        is_added = low in LISTED and low not in removed
        if low in _OF_CACHES and "$" in value:
            notes.say(each, "no fixed value, so univocal adds Cache-Control: private")
            name, low, value = "Cache-Control", "cache-control", "private"
            is_added = low not in removed
        fault = "$" in value or not value or value_fault(value)
        fault = fault or (added_fault(name) if is_added else response_fault(name, is_set=True))
        own = beside if is_added else made
        if not fault and low in LISTED and low in own and low != "set-cookie":
            own[low] = own[low][0], ", ".join(dict.fromkeys((own[low][1], value)))
            continue
        if fault or low in made or low in beside:
            notes.say(each, "left out: see [response] set and remove")
            continue
        own[low] = name, value
        if "always" not in each.arguments[2:]:
            notes.say(each, f"univocal {'adds' if is_added else 'sets'} it on errors, too")
        elif not is_added and low not in removed:
            notes.say(each, "it replaces the origin server's field")
    removed = {low: name for low, name in removed.items() if low not in made}
    return _edits(made, removed) | ({"add": dict(beside.values())} if beside else {})


def _with_expires(table: Table, expires: Directive | None, notes: Notes) -> Table:
    """The fields of responses with the Cache-Control that nginx writes by `expires`."""
    value = expires.arguments[-1] if expires is not None and expires.arguments else "off"
    if expires is None or value == "off":
        return table
    known = {"epoch": 0.0, "max": 315360000.0}
    seconds = known.get(value, duration(value.lstrip("-")))
    if seconds is None or value.startswith("@") or expires.arguments[0] == "modified":
        notes.say(expires, "left out: see [response] set")
        return table
    is_past = value == "epoch" or value.startswith("-")
    text = "no-cache" if is_past else f"max-age={int(seconds)}"
    notes.say(expires, f"univocal sets Cache-Control: {text} on errors, too, and removes Expires")
    added = dict(table.get("add", {}))
    beside = [added.pop(name) for name in [*added] if name.lower() == "cache-control"]
    made = {**table.get("set", {}), "Cache-Control": ", ".join([text, *beside])}
    removed = [*(name for name in table.get("remove", []) if name.lower() != "cache-control"), "Expires"]
    rest = {key: value for key, value in table.items() if key != "add"} | ({"add": added} if added else {})
    return {**rest, "set": made, "remove": removed}


def _edits(made: Mapping[str, tuple[str, str]], removed: Mapping[str, str]) -> dict[str, Any]:
    """The tables `set` and `remove`, of fields that are given by their names in lower case."""
    edits = {"set": dict(made.values()), "remove": list(removed.values())}
    return {key: value for key, value in edits.items() if value}
