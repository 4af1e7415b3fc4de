"""Traffic Server's remap rules with two sets of bytes, as Wikimedia's normalize-path script has them.

    map http://en.example http://127.0.0.1:9000 @plugin=tslua.so \\
        @pparam=normalize-path.lua @pparam="3A 2F 40" @pparam="5B 5D"

The first set is decoded, the second encoded; bytes are two hexadecimal digits. Rules are read from
remap.config, or from YAML with a line each for `type`, `target`, `replacement` and every parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Final, NamedTuple, TypeAlias

from univocal.http.grammar import DEFAULT_PORTS, Absolute, split_absolute
from univocal.uri.percent_encoding import DECODE, ENCODE, RINGS, DecoderRing
from univocal.uri.profile import Profile, parse
from univocal_app.terminal import printable
from univocal_learn.importers.imported import Imported, Note, Notes, Source, Table, octets_of, words_of
from univocal_learn.importers.nginx_patterns import search_of
from univocal_learn.importers.rings import corrected, path_settings
from univocal_learn.importers.site_writer import Mapped, SiteWriter, literal_beginning

_KINDS: Final = words_of("map map_with_recv_port map_with_referer reverse_map redirect redirect_temporary")
# A word between blanks, with its quotation marks.
_WORD: Final = re.compile(r"""(?:[^\s"'\\]|\\.?|"[^"]*"?|'[^']*'?)+""")
_FIELD: Final = re.compile(r"-?\s*(type|target|replacement):\s*(\S.*)")
_SET: Final = re.compile(r"\s*(?:[0-9A-Fa-f]{2}(?:\s+|\Z))*")
# Rules of which the first that matches has a request, those of a listener's port before all others.
_RECEIVED: Final = "map_with_recv_port"
_LOOKED_UP: Final = frozenset({"map", _RECEIVED, "map_with_referer"})
_PORT: Final = re.compile(r":\d+\Z")
_SCRIPT: Final = "normalize-path"
_UNWELCOME: Final = re.compile(r"[?#\s]")
# A rule's target: Traffic Server compares no query. A pattern may have "?" in its host.
_TARGET: Final = re.compile(r"(?:([A-Za-z][\w+.-]*)://(?:[^/?#]*@)?([^/?#]*))?([^?#]*)(?:[?#].*)?", re.DOTALL)
_PATTERN: Final = re.compile(r"(?:([A-Za-z][\w+.-]*)://([^/]*))?([^?#]*)(?:[?#].*)?", re.DOTALL)
_AS_HTTP: Final = {"ws": "http", "wss": "https"}
_NAME: Final = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?", re.ASCII)

_ALWAYS: Final = (
    "unreserved bytes are decoded, too (%41 is A), and bytes that may not stand bare are escaped",
    "dot segments, slashes, parameters and fragments are as in the profile rfc3986: the sets are of bytes",
)
# A plugin's own work, beside sets of bytes.
_PLUGINS: Final = {
    "tslua.so": "a script in Lua; what it does is not taken over",
    "header_rewrite.so": "changes fields, or answers by itself; univocal does not",
    "regex_remap.so": "maps by regular expressions of a file of its own, which is not read",
    "conf_remap.so": "settings of Traffic Server for this rule; see a site's settings",
    "cachekey.so": "changes the cache key; the profile does that here",
}
# Lines, options of a rule and plugins guard rules, all but these.
_HARMLESS_LINES: Final = words_of(".definefilter .deffilter .defflt .deletefilter .delfilter .delflt")
_HARMLESS_OPTIONS: Final = frozenset({"action=allow", "volume", "strategy", "plugin", "pparam"})
_GUARDS: Final = words_of("access_control.so authproxy.so uri_signing.so url_sig.so geoip_acl.so")
# Plugins that neither refuse requests nor keep people apart.
_HARMLESS_PLUGINS: Final = frozenset(
    {"cachekey.so", "compress.so", "conf_remap.so", "gzip.so", "prefetch.so", "slice.so", "xdebug.so"}
)
# Their parameters that keep no clients apart.
_HARMLESS_PARAMETERS: Final = {
    "cachekey.so": re.compile(r"(?!.*(?:header|cookie|--ua-)).*"),
    "conf_remap.so": re.compile(r"proxy\.config\.(?!http\.cache\.).*"),
}
_OTHER_PLUGIN: Final = "a plugin; what it does is not taken over"

# The hosts of regex_map that a site can have: all, or all below a name. "$1" is what its group matches.
_ANY: Final = r"(?:\(?(?:\.[*+]|\[\^\.\][*+]|\[a-z0-9-\][*+])\)?)"
_ALL_HOSTS: Final = re.compile(rf"\^?{_ANY}\$?")
_BELOW: Final = re.compile(rf"\^?{_ANY}((?:\\?\.[A-Za-z0-9-]+)+(?::[0-9]+)?)\$?")
_SUBSTITUTE: Final = re.compile(r"\$([0-9])")

_HOST: Final = 'the Host sent is the upstream\'s; where pristine_host_hdr is on, set origin_host = "site"'
_PORTS: Final = "a site whose host has no port is for every port in Host; a rule of Traffic Server is for one"


_Pair: TypeAlias = tuple[frozenset[int], frozenset[int]]


class _Place(NamedTuple):
    """The requests of a rule: their scheme, "" for any, their host or its pattern, "" for all, and a path."""

    scheme: str
    host: str
    path: str


@dataclass(slots=True)
class _Plugin:
    line: int
    name: str  # "" for parameters before which no plugin is named
    parameters: list[tuple[int, str]] = field(default_factory=list)

    @property
    def base(self) -> str:
        """Its name without a directory."""
        return self.name.rpartition("/")[2]


@dataclass(slots=True)
class _Rule:
    line: int
    kind: str = ""
    target: str = ""
    replacement: str = ""
    options: list[tuple[int, str]] = field(default_factory=list)
    plugins: list[_Plugin] = field(default_factory=list)
    sets: _Sets | None = None  # with which it is taken over
    profile: str = ""
    file: str = ""

    @property
    def title(self) -> str:
        return self.target or f"line {self.line}"

    @property
    def is_pattern(self) -> bool:
        return self.kind.startswith("regex_")

    @property
    def is_received(self) -> bool:
        """True if the port of the listener counts, whatever Host says."""
        return self.kind.endswith(_RECEIVED)

    @property
    def place(self) -> _Place:
        """The requests that it is for, whatever becomes of them."""
        matched = (_PATTERN if self.is_pattern else _TARGET).fullmatch(self.target)
        scheme, host, path = matched.groups("") if matched else ("", "?", "")
        scheme = scheme.lower()
        if not self.is_pattern:
            port = DEFAULT_PORTS.get(_AS_HTTP.get(scheme, scheme).encode())
            host = host.lower().removesuffix(f":{port}").rstrip(".")
        if self.is_received:
            host = _PORT.sub("", host)
        return _Place(scheme, host, f"/{path.lstrip('/')}")

    @property
    def host(self) -> str:
        """Its hosts as a site has them; empty where no site can name them."""
        host = self.place.host
        if not self.is_pattern:
            return (host if _NAME.fullmatch(host) else "") or ("" if host else "*")
        below = _BELOW.fullmatch(host)
        return "*" + below[1].replace("\\", "") if below else "*" if _ALL_HOSTS.fullmatch(host) else ""


@dataclass(frozen=True, slots=True)
class _Sets:
    decode: bytes
    encode: bytes
    lines: dict[int, int]  # of each byte in them
    used: tuple[_Plugin, int, int]  # the plugin that gets them, and the first and last of its parameters

    @property
    def pair(self) -> _Pair:
        """The two sets, whatever their order."""
        return frozenset(self.decode), frozenset(self.encode)

    @property
    def is_of_known_script(self) -> bool:
        """True if the known script gets them, which refuses nothing. Options begin with "-"."""
        reader, _, last = self.used
        texts = [text for _, text in reader.parameters[: last - 1]]
        names = [text.rpartition("/")[2] for text in texts if not text.startswith("-")]
        is_one = len(names) == 1 and _SCRIPT in names[0] and reader.base == "tslua.so"
        return is_one or not reader.name


def read(source: Source) -> Imported:
    """The profile of the pair of sets in `source`, and the sites of its rules. Raises ConfigurationError."""
    notes = Notes()
    rules = list(_rules(source.text, notes))
    chosen = _chosen(source, rules)
    names: dict[_Pair, str] = {}  # of profiles
    paths: dict[str, Table] = {}
    profiles: dict[str, Profile] = {}
    for rule, sets in chosen:
        if sets.pair not in names:
            name = names[sets.pair] = f"-{len(names) + 1}" if names else ""
            ring = _ring(sets, notes)
            paths[name] = path_settings(ring)
            profiles[name] = parse({"imported": f"[path]\nring = {list(ring.forms)}\n"})["imported"]
        rule.profile, rule.sets = names[sets.pair], sets
    writer = SiteWriter(profiles[""], others=profiles)
    lines = {note.text.split()[0].rstrip(":") for note in notes if note.text[:1] == "."}
    filtered = bool(lines - _HARMLESS_LINES)
    for rule in rules:
        if rule.sets is None:
            text = f"{rule.kind} {rule.target}".strip() or "a rule"
            notes.say(rule.line, f"{text}: without these sets; left out, and its plugins")
    for rule, sets in chosen:
        notes += _of_plugins(rule, sets)
    found = _Sites(writer, filtered)
    for rule in sorted(rules, key=lambda rule: not rule.is_received):
        found.add(rule)
    found.write(rules)
    if writer.sites:
        notes += [Note(0, _HOST), Note(0, _PORTS)]
    return Imported(
        summary=f"Imported from a remap rule: {printable(octets_of(chosen[0][0].title))}",
        extends="rfc3986",
        path=paths.pop(""),
        others=paths,
        notes=[*(Note(0, text) for text in _ALWAYS), *notes, *writer.notes],
        sites=writer.sites,
    )


def _of_plugins(rule: _Rule, sets: _Sets) -> Iterator[Note]:
    """A note for each parameter of the rule's plugins besides the two sets."""
    reader, first, last = sets.used
    for plugin in rule.plugins:
        if plugin is not reader or not sets.is_of_known_script:
            why = _PLUGINS.get(plugin.base, _OTHER_PLUGIN)
            words = [f"@plugin={plugin.name}", *(f"@pparam={text}" for _, text in plugin.parameters)]
            yield Note(plugin.line, f"{' '.join(words)}: {why}")
            continue
        for number, (line, text) in enumerate(plugin.parameters):
            if not first <= number <= last:
                yield Note(line, f"@pparam={text}: a parameter besides the two sets; not taken over")


def _rules(text: str, notes: Notes) -> Iterator[_Rule]:
    rule: _Rule | None = None
    continued = is_comment = False
    for number, line in enumerate(text.split("\n"), start=1):
        # The script's own documentation shows a rule behind Lua's comment signs.
        code_line = line.strip().removeprefix("--").strip()
        is_comment = is_comment if continued else code_line.startswith("#")
        words = [] if is_comment else [word for word in _WORD.findall(code_line) if word != "\\"]
        code = list(takewhile(lambda word: not word.startswith("#"), words))
        named = _FIELD.match(" ".join(code))
        words = code if named or words[:1] == ["-"] else words  # remap.config has no comment behind a rule
        kind = "" if continued else "".join(words[:1]).lower()
        starts = kind in _KINDS or kind.startswith("regex_")
        is_bare = rule is None and any("@pparam=" in word for word in words)
        if starts or is_bare or (named and named[1] == "type"):
            if rule is not None:
                yield rule
            rule = _Rule(number)
        if words and words[0].startswith(".") and not continued:
            notes.say(number, f"{' '.join([kind, *words[1:]])}: not part of a profile or a route")
        elif rule is not None and words:
            _read_into(rule, number, words, named, starts=starts)
        continued = line.endswith("\\")
    if rule is not None:
        yield rule


def _read_into(
    rule: _Rule, line: int, words: list[str], named: re.Match[str] | None, *, starts: bool
) -> None:
    if named:
        slot = "kind" if named[1] == "type" else named[1]
        setattr(rule, slot, named[2].strip("'\""))
        return
    if starts:
        kind, rule.target, rule.replacement = ([word.strip("'\"") for word in words] + ["", ""])[:3]
        rule.kind, words = kind.lower(), words[3:]
        if rule.target[:1] != "/" and "://" not in rule.target:
            rule.target = f"http://{rule.target}"  # as Traffic Server reads it
    for word in words:
        text = word.strip("'").removeprefix("@")
        key, _, value = text.partition("=")
        key = key.lower()
        if key == "plugin":
            rule.plugins.append(_Plugin(line, value.strip("\"'")))
        elif key == "pparam":
            if not rule.plugins:
                rule.plugins.append(_Plugin(line, ""))
            rule.plugins[-1].parameters.append((line, value.strip("\"'")))
        elif word.strip("'").startswith("@"):
            rule.options.append((line, word))


def _sets(source: Source, rule: _Rule) -> _Sets | None:
    """The two sets of a rule: those behind the script's name, else the first two that follow one another."""
    for plugin in rule.plugins:
        for number, (line, value) in enumerate(plugin.parameters):
            if _SCRIPT in value:
                pair = plugin.parameters[number + 1 : number + 3]
                wrong = [(at, text) for at, text in pair if not _SET.fullmatch(text)]
                if wrong or len(pair) < 2:
                    at, text = wrong[0] if wrong else (line, f"{len(pair)} set after {value}")
                    allowed = "two sets of bytes, each two hexadecimal digits, between blanks"
                    raise source.error(at, text, allowed)
                return _sets_of(plugin, number + 1)
    for plugin in rule.plugins:
        for number, (first, second) in enumerate(pairwise(plugin.parameters)):
            texts = (first[1], second[1])
            if all(_SET.fullmatch(text) for text in texts) and any(text.strip() for text in texts):
                return _sets_of(plugin, number)
    return None


def _sets_of(plugin: _Plugin, number: int) -> _Sets:
    """The sets that a plugin gets as its parameters `number` and the next; its script stands before them."""
    (line, decode), (other, encode) = plugin.parameters[number : number + 2]
    octets = (bytes.fromhex(decode), bytes.fromhex(encode))
    lines = dict.fromkeys(octets[0], line) | dict.fromkeys(octets[1], other)
    return _Sets(*octets, lines, (plugin, max(0, number - 1), number + 1))


def _chosen(source: Source, rules: list[_Rule]) -> list[tuple[_Rule, _Sets]]:
    """The rules with sets, or those of them that are picked."""
    having = [(rule, sets) for rule in rules if (sets := _sets(source, rule))]
    if not having:
        allowed = 'two @pparam of hexadecimal bytes, such as @pparam="3A 2F" @pparam="5B 5D"'
        raise source.nothing("no rule with two sets", allowed)
    picked = [each for each in having if source.pick in (None, each[0].title, f"line {each[0].line}")]
    if not picked:
        names = ", ".join(dict.fromkeys(rule.title for rule, _ in having[:40]))
        raise source.error(0, f"no rule {source.pick}", f"--pick with one of: {names}")
    return picked


def _ring(sets: _Sets, notes: Notes) -> DecoderRing:
    forms = bytearray(RINGS["rfc3986"].forms)
    for octet in sets.decode:
        forms[octet] = DECODE
    for octet in sets.encode:
        forms[octet] = ENCODE
    ring = corrected(bytes(forms), lambda octet: sets.lines.get(octet, 0), notes)
    for octet in sorted(set(sets.decode) & set(sets.encode)):
        notes.say(sets.lines[octet], f"{octet:02X} is in both sets: encoded, since the script encodes last")
    return ring


def _url(text: str) -> Absolute | None:
    """An http or https URL with a host, and at most a path."""
    url = split_absolute(octets_of(text))
    if url is None or url.scheme not in DEFAULT_PORTS or not url.authority:
        return None
    return None if _UNWELCOME.search(text) else url


@dataclass(slots=True)
class _Sites:
    """A site for each host that rules map, with a route for each of their paths; guarded ones are closed.

    So are the paths of rules that are left out: they would fall to the rule around them.
    """

    writer: SiteWriter
    is_filtered: bool
    routes: dict[str, tuple[int, list[Mapped]]] = field(default_factory=dict)  # of each host
    before: list[_Rule] = field(default_factory=list)  # the first rule of a file that matches has the request
    schemes: dict[str, set[str]] = field(default_factory=dict)

    def add(self, rule: _Rule) -> None:
        """Have the routes of the next rule of the file."""
        is_taken = rule.sets is not None
        is_guarded = self._is_guarded(rule)
        if not rule.target:
            return
        first = [each for each in self.before if _covers(each, rule)]
        self.before += [rule] if rule.kind.removeprefix("regex_") in _LOOKED_UP else []
        place = rule.place
        mapping = _mapping(rule, self.writer.notes)
        if mapping is None:
            mapping = _left_out(rule, self.writer, is_guarded=is_guarded)
            is_guarded, is_taken = True, False
        if mapping is None:
            return
        mapped = replace(mapping, profile=rule.profile)
        if is_taken and _keeps_apart(rule):
            self.writer.notes.say(rule, "a plugin keeps responses apart: the route bypasses the cache")
            mapped = replace(mapped, tables={"cache": {"bypass": ["*"]}})
        alike = [each for each in first if mapped.path.startswith(each.place.path)]
        same = [each.line for each in alike if each.place[:2] == place[:2]]
        if same and is_taken and not is_guarded:
            self.writer.notes.say(rule, f"left out: line {same[0]} is before it")
            return
        if any(each.place.host != place.host for each in alike):
            is_taken = False  # a rule of another pattern has its hosts
        if not (is_guarded or is_taken):
            self.writer.notes.ask(rule, "left out, so univocal refuses these requests (403)")
            is_guarded = True
        own = [] if mapped.path.endswith("*") else [mapped]  # a route's "*" would be of any bytes
        if is_guarded:
            own = self._guarded(mapped, is_taken=is_taken)
        others = [each for each in first if each.place.host != place.host and each not in alike]
        for each in others:
            text = f"line {each.line} is before it: univocal refuses {each.place.path} of its hosts (403)"
            self.writer.notes.ask(rule, text)
            own += self._guarded(Mapped(each.place.path, rule.line, is_closed=True), is_taken=False)
        host = rule.host or place.host
        self.routes.setdefault(host, (rule.line, []))[1].extend(own)
        self.schemes.setdefault(host, set()).update({_AS_HTTP.get(place.scheme, place.scheme)} - {""})
        self.writer.notes += _of_prefixes(mapped, is_guarded=is_guarded)

    def _is_guarded(self, rule: _Rule) -> bool:
        """Tell whether a rule may refuse requests, and say what of it is not taken over."""
        is_guarded = self.is_filtered or _is_guarded(rule)
        if is_guarded:
            text = "univocal refuses these requests (403) until [sites.access] says who has access"
            self.writer.notes.ask(rule, text)
        for line, word in rule.options:
            self.writer.notes.say(line, f"{word}: not part of a profile or a route")
        return is_guarded

    def _guarded(self, mapped: Mapped, *, is_taken: bool) -> list[Mapped]:
        """The routes of a guarded rule: longer names, such as /adminx, have the same guard and are closed."""
        spelled = self.writer.others[mapped.profile].ring.canonical(octets_of(mapped.path)).decode()
        own = replace(mapped.guarded() if is_taken else mapped.closed(), path=spelled)
        literal, star = literal_beginning(spelled)
        if literal != spelled:
            return [replace(mapped.closed(), path=literal + star)]
        if literal.endswith("/"):
            return [own]
        return [own, replace(mapped.closed(), path=f"{literal}*", is_implied=True)]

    def write(self, rules: list[_Rule]) -> None:
        """Write the sites; that of every host only if all `rules` have theirs."""
        if "*" in self.routes and any(not each.host and each.kind != "reverse_map" for each in rules):
            line, _ = self.routes.pop("*")
            text = "hosts of other rules have no site, so this one, for every host, is left out"
            self.writer.notes.ask(line, text)
        is_rest = any(rule.target and not rule.place.host for rule in self.before)
        for host, (line, routes) in self.routes.items():
            if is_rest and host != "*" and all(route.path != "/" for route in routes):
                text = f"{host}: rules without a host have all other paths; univocal answers them with 502"
                self.writer.notes.ask(line, text)
            made = _of_schemes(host, line, routes, self.schemes[host], self.writer)
            self.writer.add(line, [host], made, "upstream")
        self.writer.close_unwritten()


def _of_schemes(
    host: str, line: int, routes: list[Mapped], schemes: set[str], writer: SiteWriter
) -> list[Mapped]:
    """The routes of a host, which are for both schemes: all are closed if rules of one guard anything."""
    if schemes == {"https"}:
        writer.notes.say(line, f"{host}: a rule for https alone; here listeners without TLS serve it, too")
    if len(schemes) < 2 or not any(route.is_closed or "access" in route.tables for route in routes):
        return routes
    text = "rules of one scheme guard, and a route is for both: univocal refuses these requests (403)"
    writer.notes.ask(line, f"{host}: {text}")
    return [route.closed() for route in routes]


def _covers(first: _Rule, rule: _Rule) -> bool:
    """Tell whether a rule before another may have a host of it, by what is known of patterns.

    A rule without a host has the requests that no other rule has.
    """
    host, other = first.place.host, rule.place.host
    if first.is_received:
        other = _PORT.sub("", other)
    if host == other or first.host == rule.host == "*":
        return True
    if not first.is_pattern:
        return False
    if not rule.is_pattern:
        search = search_of(host)
        return search is None or search(octets_of(other.partition(":")[0]))
    below, inner = _BELOW.fullmatch(host), _BELOW.fullmatch(other)
    if below and _ALL_HOSTS.fullmatch(other):
        return False  # the narrower site has them here, too
    return not (below and inner) or inner[1].endswith(below[1])


def _left_out(rule: _Rule, writer: SiteWriter, *, is_guarded: bool) -> Mapped | None:
    """The path of a rule that becomes no route, which univocal refuses; None where it is of no request here.

    Of requests for WebSockets without a guard all go where others go.
    """
    is_websocket = rule.place.scheme in _AS_HTTP
    if rule.kind == "reverse_map" or (is_websocket and not is_guarded):
        return None
    why = "so univocal refuses these requests (403)" if rule.host else "no site has its hosts"
    writer.notes.ask(rule, f"left out, {why}")
    return Mapped(rule.place.path, rule.line) if rule.host else None


def _is_guarded(rule: _Rule) -> bool:
    """Tell whether a filter or a plugin decides who has access to a rule, for all that is known of it."""
    words = [word.strip("'").lstrip("@").lower() for _, word in rule.options]
    if not all({word, word.partition("=")[0]} & _HARMLESS_OPTIONS for word in words):
        return True
    others = [plugin for plugin in rule.plugins if rule.sets and plugin is not rule.sets.used[0]]
    is_known = rule.sets is None or rule.sets.is_of_known_script
    is_known = is_known and all(plugin.base in _HARMLESS_PLUGINS for plugin in others)
    return not is_known or any(plugin.base in _GUARDS for plugin in rule.plugins)


def _keeps_apart(rule: _Rule) -> bool:
    """Tell whether a parameter of a rule's plugins may keep what one client gets from others."""
    return any(
        not _HARMLESS_PARAMETERS[plugin.base].fullmatch(text)
        for plugin in rule.plugins
        if plugin.base in _HARMLESS_PARAMETERS
        for _, text in plugin.parameters
    )


def _mapping(rule: _Rule, notes: Notes) -> Mapped | None:
    """The route that a rule amounts to; None, with a note, where it is none."""
    whole = f"http://any.invalid{rule.target}" if rule.target.startswith("/") else rule.target
    target, to = _url(whole), _url(rule.replacement)
    if rule.kind not in {"map", "regex_map"} or target is None or to is None:
        text = f"{rule.kind} {rule.target}: only `map` from one http(s) URL to another becomes a route"
        notes.say(rule.line, text)
        return None
    replacement = _of_pattern(rule, to, notes) if rule.is_pattern else rule.replacement
    return None if replacement is None else Mapped(rule.place.path, rule.line, replacement)


def _of_pattern(rule: _Rule, to: Absolute, notes: Notes) -> str | None:
    """The upstream of a regular expression's hosts, with places for "$0" and "$1"."""
    pattern, host = rule.place.host, rule.host
    if not host:
        text = f"regex_map {rule.target}: hosts are all, or all below a name: (.*)\\.example; left out"
        notes.ask(rule.line, text)
        return None
    if b"$" in to.authority:
        notes.say(rule.line, f"{rule.replacement}: an upstream's host is one for all requests; left out")
        return None
    places = {"0": "{host}", "1": "{1}" if host != "*" else "{host}"}
    if "(" not in pattern:
        del places["1"]
    unknown = [each for each in _SUBSTITUTE.findall(rule.replacement) if each not in places]
    if unknown:
        notes.say(rule.line, f"{rule.replacement}: no group is ${unknown[0]}; left out")
        return None
    if _SUBSTITUTE.search(rule.replacement):
        text = f"{rule.replacement}: Traffic Server 9.2 fills in no $0 and $1 in a path; here they are"
        notes.say(rule.line, text)
    if host != "*" and not pattern.endswith("$"):
        notes.say(rule.line, f"{pattern} matches at the beginning of longer hosts, too; {host} does not")
    if "[" in pattern:
        notes.say(rule.line, f"{pattern} is of one label there; {host} is of several, too")
    return _SUBSTITUTE.sub(lambda match: places[match[1]], rule.replacement)


def _of_prefixes(mapped: Mapped, *, is_guarded: bool) -> Iterator[Note]:
    """How a prefix of bytes and one of segments differ."""
    path, upstream = mapped.path, str(mapped.upstream or mapped.path)
    if path != "/" and path.endswith("/") != upstream.endswith("/"):
        text = f"{path} and {upstream} do not both end with '/': here whole segments are replaced"
        yield Note(mapped.line, text)
    if path.endswith("*"):
        kept = "closed" if is_guarded else "left out"
        yield Note(mapped.line, f'{path} is {kept}: there "*" stands for itself, in a route for any bytes')
    elif not path.endswith("/"):
        text = f"{path} is a prefix of bytes there; here of whole segments: not of {path}x"
        if is_guarded:
            text = f"{path} is of {path}x, too, and guarded there: the route {path}* is closed"
        yield Note(mapped.line, text)
