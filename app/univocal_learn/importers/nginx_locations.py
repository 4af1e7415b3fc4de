"""nginx's locations as routes: closed unless every directive that applies is taken over or harmless."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from univocal.http.grammar import RESERVED
from univocal.uri.profile import Profile
from univocal_learn.importers.imported import Notes, Table, octets_of
from univocal_learn.importers.networks import CLOSED
from univocal_learn.importers.nginx_answers import redirect_of
from univocal_learn.importers.nginx_conditions import groups
from univocal_learn.importers.nginx_directives import (
    CONTENT,
    TAKEN,
    answers_of,
    asks,
    closes,
    is_refusal,
    reason,
    refuses,
)
from univocal_learn.importers.nginx_patterns import covers, expression, search_of, within_path
from univocal_learn.importers.nginx_settings import BlockSettings, refuses_all
from univocal_learn.importers.nginx_syntax import Directive, find, within
from univocal_learn.importers.site_writer import NOWHERE, Mapped, Setting, has_path, literal_beginning

_CLOSED: Final = "univocal refuses these requests (403) until [sites.access] says who has access"
_REFUSES: Final = "refused here, too (403)"
_OF_ALL: Final = "its guards hold for all that it matches; in nginx, only where it is the first that matches"
_TAKES_AWAY: Final = "nginx has no try_files for requests that meet this condition"

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
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
_WEIGHT: Final = re.compile(r"weight=([0-9]{1,9})")  # of an upstream's server

# Routes are chosen by a path in which reserved bytes are as they came: an escape of one crosses routes.
_RESERVED: Final = frozenset(RESERVED) - frozenset(b"/")

_EXPRESSIONS: Final = frozenset({"~", "~*"})
_MODIFIERS: Final = ("^~", "~*", "=", "~", "@")
_ANSWERS: Final = CONTENT | {"try_files"}
_NO_PATH: Final = "~"  # no route has it: the routes in its place are written
_WITHIN: Final = "(?=)"  # before an expression below a path that no route says
# A rewrite in a location that replaces its prefix: ^/api/(.*)$ by /$1.
_STRIPPED: Final = re.compile(r"\^(/[\w./-]*?)(/\?)?\((/)?\.\*\)\$?")


@dataclass(frozen=True, slots=True)
class LocationReading:
    """The directives in force at one place of the file; the routes and notes that are found there."""

    upstreams: Mapping[str, Directive]
    profile: Profile
    notes: Notes
    host: str
    settings: BlockSettings
    named: Mapping[str, Directive] = field(default_factory=dict)  # locations by their names
    base: str = "/"  # the location that this is in
    in_expression: bool = False  # that one is an expression
    in_final: bool | None = None  # that one goes before expressions, as prefixes in it do; None in a server
    level: tuple[str, ...] = ()  # "=" paths and prefixes of this level, and of those around it
    before: tuple[str, ...] = ()  # those that nginx takes before the location that this is in
    routes: list[Mapped] = field(default_factory=list)
    has_expressions: bool = False  # that go before prefixes, and forward or redirect
    constants: Mapping[str, str] = field(default_factory=dict)  # the server's variables of fixed values
    server: LocationReading | None = None  # of the server, in which named locations are

    def inside(
        self, block: list[Directive], closers: Sequence[Directive] = (), host: str = "", base: str = ""
    ) -> LocationReading:
        """The reading of a block within, which `closers` close; the routes of a location are its server's."""
        return replace(
            self,
            host=host_field(block, host or self.host),
            settings=self.settings.inside(block, closers),
            base=base or self.base,
            routes=self.routes if base else [],
        )

    @property
    def own_access(self) -> Table | None:
        """The access rules of a location that nginx answers by itself; None if more than these guards it."""
        settings = self.settings
        kept = [each for each in settings.closing if is_refusal(each) or each.name not in _ANSWERS]
        access = replace(settings, closing=kept).access(Notes())
        return None if access.get("deny") == CLOSED["deny"] else access

    @property
    def is_nowhere(self) -> bool:
        """True for a location of which only access rules are written, since expressions take some of it."""
        return self.has_expressions and not self.in_expression and self.own_access is not None

    def nowhere(self, path: str, line: int) -> Mapped:
        """The route of requests that nginx answers by itself: without a guard of all that it matches."""
        access = self.own_access
        tables = {"access": access} if access else {}
        return Mapped(path, line, NOWHERE, tables=tables, is_nowhere=True)

    def close(
        self, path: str, line: int, *, is_implied: bool = False, is_final: bool = False, star: str = ""
    ) -> None:
        """Have no route at a path that forwards; with a `star`, at all that begin so."""
        literal, star = literal_beginning(path, star)
        spelled = _spelled(literal, self.profile) + star
        route = Mapped(spelled, line, is_closed=True)
        if self.is_nowhere:
            # A guard would hold for what expressions match, too.
            route = replace(self.nowhere(spelled, line), is_final=is_final)
        self.routes.append(replace(route, is_implied=is_implied))

    def closed_expression(
        self, text: str, line: int, *, ignores_case: bool, is_nowhere: bool = False
    ) -> Mapped:
        """The route that refuses what an expression matches, or those of what its matches begin with.

        With `is_nowhere` there is no guard, which would hold for what other locations take of it, too.
        """
        pattern = expression(text, ignores_case=ignores_case)
        instead: list[Mapped] = []
        for each in covers(text, ignores_case=ignores_case):
            begin = each if each.startswith(self.base) else self.base
            spelled = _spelled(begin.rstrip("*"), self.profile)
            path = spelled if spelled.endswith("/") else f"{spelled}*"
            instead.append(Mapped(path, line, is_closed=True, holds_below=True))
        closed = Mapped(pattern or _NO_PATH, line, is_closed=True)
        own = self.nowhere(closed.path, line) if is_nowhere else closed
        return replace(own, instead=tuple(instead), kind=f"~ {text.removeprefix(_WITHIN)}")


def leave_out(directive: Directive, notes: Notes, *, is_closing: bool = False) -> None:
    """Note that a directive has no place in a profile or a route, and why."""
    why = _TAKES_AWAY if is_closing and not closes(directive) else reason(directive)
    if is_refusal(directive):
        notes.say(directive, f"{why}; {_REFUSES}")
    else:
        text = f"{why}; {_CLOSED}" if is_closing else why
        notes.say(directive, text, is_open_question=is_closing or asks(directive))


def host_field(block: list[Directive], inherited: str) -> str:
    """The Host that is sent; as in nginx, a block with any proxy_set_header of its own inherits none."""
    own = find(block, "proxy_set_header")
    hosts = [each.arguments[1] for each in own if each.is_host_field]
    return hosts[-1] if hosts else "$proxy_host" if own else inherited


def closing(block: list[Directive], *, is_location: bool = False) -> list[Directive]:
    """The directives of a block that may refuse, and have no equal; rewrites are not among them."""
    passes = find(block, "proxy_pass")
    tries = is_location and any(each.name == "try_files" and not each.meaning for each in block)
    found = []
    for each in block:
        if each.name in {"rewrite", "location", "server", "proxy_pass"}:
            continue
        if each.name in CONTENT and each.name != "return":
            harmless = {"root", "alias", "autoindex"}
            if is_location and (not passes or each.name in harmless):
                continue  # what answers is looked at with the location
        elif each.name == "try_files" and (not is_location or _named_fallback(each, block)):
            continue
        # An `if` without an answer of its own takes its requests away from try_files.
        if closes(each) or (tries and not passes and each.name == "if" and not answers_of(each)):
            found.append(each)
    return found


def read_server(block: list[Directive], reading: LocationReading) -> None:
    """The routes of a server's locations, and notes on what else is in it."""
    closers = {id(each) for each in closing(block)}
    level, has_expressions = _places(block)
    reading = replace(reading, has_expressions=has_expressions, constants=constants_of(block, {}))
    reading = replace(reading, server=reading, level=level)
    for directive in _in_order(block, reading):
        if directive.name == "rewrite":
            _rewrite(directive, reading)
        elif directive.name == "location":
            _location(directive, reading)
        elif directive.name == "proxy_pass":
            mapped = _pass(directive, "/", reading)
            if mapped is not None:
                reading.routes.append(mapped)
        elif directive.name not in TAKEN:
            _say(directive, reading, is_closing=id(directive) in closers)
    _close_rewritten(block, reading)


def _places(block: list[Directive]) -> tuple[tuple[str, ...], bool]:
    """The paths of locations that are no expressions; whether an expression, at any depth, answers.

    Those of one path have "=" before it.
    """
    static, has_expressions = list[str](), False
    for location in find(block, "location"):
        (modifier, path), inner = _split(location), location.block
        if modifier in _EXPRESSIONS:
            answers = find(inner, "proxy_pass", "try_files") or redirect_of(inner, has_group=True)
            has_expressions = has_expressions or bool(answers)
        elif modifier in {"", "^~", "="} and path:
            static.append(f"{'=' if modifier == '=' else ''}{path}")
        has_expressions = _places(inner)[1] or has_expressions
    return tuple(dict.fromkeys(static)), has_expressions


def _in_order(block: list[Directive], reading: LocationReading) -> Iterator[Directive]:
    """A block's directives, expressions last: nginx asks those within a prefix before those beside it."""
    expressions: dict[tuple[str, str], Directive] = {}
    for each in block:
        place = _split(each) if each.name == "location" else ("", "")
        if place[0] not in _EXPRESSIONS:
            yield each
        elif place in expressions:
            text = "nginx never comes here: the same expression before it has these requests"
            reading.notes.say(each, text)
        else:
            expressions[place] = each
    yield from expressions.values()


def _unreached(modifier: str, path: str, reading: LocationReading) -> str:
    """The reason why no request comes to a location; empty where one may."""
    if modifier in _EXPRESSIONS:
        return ""
    if modifier not in {"", "^~", "="} or path[:1] not in ({"/"} if modifier == "=" else {"", "/"}):
        return "each path begins with /"
    if "//" in path and reading.profile.merge_slashes:
        return "it merges slashes"
    is_taken = f"{modifier}{path}" in reading.before if modifier == "=" else not path and "/" in reading.level
    prefixes = tuple(each for each in reading.before if not each.startswith("="))
    if is_taken or (path and path.startswith(prefixes)):
        return "a longer location beside the outer one has these paths"
    return ""


def _place_fault(modifier: str, whole: str, reading: LocationReading) -> str:
    """The reason why a location within another one can be no route of its own; empty for none.

    nginx asks the expressions within a prefix before those beside it, and those within a final one, too. A
    final prefix within another goes before the expressions beside it alone.
    """
    if reading.in_expression or not whole:
        return "univocal has no route within another one that its path does not say"
    if modifier == "^~" and reading.in_final is False and reading.has_expressions:
        return "it goes before the expressions beside it alone"
    if modifier in _EXPRESSIONS and (reading.in_final or _may_meet(whole, reading.before, modifier)):
        return "univocal would look at it after a final prefix, or before a longer location"
    return ""


def _may_meet(text: str, paths: Sequence[str], modifier: str) -> bool:
    """Tell whether an expression may match one of these paths, or what lies below it."""
    begins = covers(text, ignores_case=modifier == "~*")
    named = [each.removeprefix("=") for each in paths]
    return any(path.startswith(begin) or begin.startswith(path) for begin in begins for path in named)


def _rewrite(directive: Directive, reading: LocationReading) -> None:
    """Refuse what a rewrite matches: nginx answers it by a redirect, or elsewhere, where a guard may be."""
    reading.notes.ask(directive, f"{reason(directive)}; {_CLOSED}")
    reading.routes.append(reading.closed_expression(directive.first, directive.line, ignores_case=False))


def _close_rewritten(block: list[Directive], reading: LocationReading) -> None:
    """Close the routes of one path, and final prefixes, that a server's rewrites may match before them."""
    texts = [each.first for each in find(block, "rewrite")]
    # The guard of an expression that univocal has holds for final prefixes, too.
    foreign = [text for text in texts if not expression(text, ignores_case=False)]
    begins = tuple(begin for text in foreign for begin in covers(text, ignores_case=False))
    searches = [search_of(text) for text in texts]
    for number, mapped in enumerate(reading.routes):
        path = unquote(mapped.path)
        octets = octets_of(path[1:])
        is_met = path.startswith("=") and any(search is None or search(octets) for search in searches)
        if is_met or (mapped.is_final and path.startswith(begins)):
            reading.routes[number] = mapped.guarded()


def _split(location: Directive) -> tuple[str, str]:
    """The modifier and the path of a location, which may stand in one word."""
    *modifiers, path = location.arguments or [""]
    modifier = "".join(modifiers)
    if not modifiers:
        modifier = next((each for each in _MODIFIERS if path.startswith(each)), "")
        path = path.removeprefix(modifier)
    return modifier, path


def _location(location: Directive, reading: LocationReading) -> None:
    modifier, path = _split(location)
    if modifier == "@":
        if f"@{path}" not in reading.named:
            reading.notes.say(location, "no route leads there, so it is left out")
        return
    if fault := _unreached(modifier, path, reading):
        for each in within((location,)):
            reading.notes.say(each, f"nginx never comes here: {fault}")
        return
    is_prefix = modifier in {"", "^~"}
    path = path or ("/" if is_prefix else "^")  # all that no other location has, or all
    location = _for_clients(location, reading)
    block = location.block
    level, _ = _places(block)
    moving = [each for each in find(block, "rewrite") if not _is_stripped(each, block, path)]
    below = [each for each in moving if is_prefix and _is_below(each, path)]
    redirect = redirect_of(block, has_group=modifier in _EXPRESSIONS)
    closers = [*closing(block, is_location=True), *(each for each in moving if each not in below)]
    closers = [each for each in closers if not (redirect and each.name == "return")]
    inner = reading.inside(block, closers, base=path if is_prefix else reading.base)
    if redirect:
        inner = replace(inner, settings=inner.settings.before_access)
        mapped = _redirected(location, path, inner, redirect)
    else:
        mapped = _content(location, path if is_prefix or modifier == "=" else "", inner, reading)
    whole, ignores_case = path, modifier == "~*"
    if modifier in _EXPRESSIONS:
        whole = within_path(_spelled(reading.base, reading.profile), path, ignores_case=ignores_case)
        ignores_case = ignores_case and whole in {"", path}  # else it says by itself where it does
    if mapped is not None and (fault := _place_fault(modifier, whole, reading)):
        reading.notes.say(location, fault, is_open_question=bool(whole) and not reading.in_expression)
        mapped = None
    path = whole or f"{_WITHIN}{path}"  # no route's path: what is around it is closed
    answering = "return" if redirect else "try_files" if mapped is not None else ""
    is_before = modifier == "^~" and (reading.in_final is None or not reading.has_expressions)
    is_final = is_prefix and (is_before or bool(reading.in_final))
    found = _Found(location, path, mapped, inner, is_final, ignores_case)
    if is_prefix and path in level:
        reading.notes.say(location, "nginx never comes here: a location within it has the same path")
        _ends_outside(found)
    else:
        _say_rest(block, below, closers, answering, inner)
        write = _expression if modifier in _EXPRESSIONS else _exact if modifier == "=" else _prefix
        write(found)
    in_expression = reading.in_expression or modifier in _EXPRESSIONS
    begins = (inner.base, f"={inner.base}")  # few do, of thousands
    some = ((each, each.removeprefix("=")) for each in reading.level if each.startswith(begins))
    longer = tuple(each for each, path in some if path != inner.base and path.startswith(inner.base))
    inner = replace(
        inner,
        settings=inner.settings.within(closers),
        in_expression=in_expression,
        in_final=is_final,
        level=(*reading.level, *level),
        before=longer if is_prefix else reading.before,
    )
    for directive in _in_order(block, inner):
        if directive.name == "location":
            _location(directive, inner)


def _passes(location: Directive) -> bool:
    """Tell whether a server behind nginx answers in a location, by any protocol."""
    return any(each.name.endswith("_pass") for each in location.block)


def _for_clients(location: Directive, reading: LocationReading) -> Directive:
    """A location as clients find it: of an internal one that auth_request asks they get nothing."""
    modifier, path = _split(location)
    if modifier != "=" or path not in reading.settings.authorities:
        return location
    internal = find(location.block, "internal")
    return replace(location, block=internal or location.block)


def _say_rest(
    block: list[Directive],
    below: list[Directive],
    closers: list[Directive],
    told: str,
    inner: LocationReading,
) -> None:
    """Refuse what rewrites match `below` a location, and note what has no equal; that of `told` is said."""
    below_ones, closing_ones = ({id(each) for each in some} for some in (below, closers))
    for directive in block:
        is_closing = id(directive) in closing_ones
        if id(directive) in below_ones:
            _rewrite(directive, inner)
        elif is_closing or directive.name not in {"location", "rewrite", told, *TAKEN}:
            _say(directive, inner, is_closing=is_closing)


def _say(directive: Directive, reading: LocationReading, *, is_closing: bool) -> None:
    """Note that a directive has no equal, or what becomes of those whom it sends elsewhere."""
    if directive.name == "internal" and (page := reading.settings.leading("404")):
        reading.notes.ask(page, f"nginx leads requests of an internal location there; {_CLOSED}")
    elif not reading.settings.takes(directive):
        leave_out(directive, reading.notes, is_closing=is_closing)
    elif is_closing and not closes(directive):
        reading.notes.say(directive, f"{_TAKES_AWAY}; {_REFUSES}")
    elif not refuses(directive):
        reading.notes.ask(directive, "univocal refuses the requests that meet this condition (403)")


def _redirected(location: Directive, path: str, inner: LocationReading, redirect: Table) -> Mapped | None:
    """The route of a location that redirects: it asks for no access, and nothing else is set or stored."""
    access = inner.settings.access(inner.notes)
    tables = {"access": access} if access else {}
    spelled = _spelled(path, inner.profile) if path.startswith("/") else path
    return Mapped(spelled, location.line, tables=tables, redirect=redirect)


def _is_below(rewrite: Directive, path: str) -> bool:
    """Tell whether all that a rewrite matches is below a path, so that it can be refused by itself."""
    begins = covers(rewrite.first, ignores_case=False)
    return all(each.startswith(path) and each != "/" for each in begins)


def _content(
    location: Directive, path: str, inner: LocationReading, around: LocationReading
) -> Mapped | None:
    """The route of what answers a location's requests; None where univocal has none.

    A named location has what is in force in the server `around` both.
    """
    block = location.block
    passes = find(block, "proxy_pass")
    if passes:
        return _pass(_filled(_stripping(passes[-1], block, path), block, inner), path, inner)
    tries = find(block, "try_files")
    fallback = _named_fallback(tries[-1], block) if tries else ""
    if not fallback or fallback not in inner.named:
        return None
    named = inner.named[fallback].block
    after = find(named, "proxy_pass")
    if not after:
        return None
    closers = [*closing(named, is_location=True), *find(named, "rewrite")]
    closers = [each for each in closers if each.name != "internal"]  # as each named location is
    own = (around.server or around).inside(named, closers, base=inner.base)
    # By try_files nginx asks for access twice: in the location, and in the named one.
    settings = own.settings if tries[-1].meaning else own.settings.guarded_with(inner.settings)
    if settings is None:
        text = "its guards, and others of the named location: univocal has no two of a kind"
        inner.notes.say(tries[-1], text)
        return None
    files = "" if tries[-1].meaning else "univocal has no files: "
    inner.notes.say(tries[-1], f"{files}all goes to the origin server of the named location")
    for each in closers:
        _say(each, own, is_closing=True)
    own = replace(own, settings=settings.beside(inner.settings))
    found = _pass(_filled(after[-1], named, inner), "", own)
    return None if found is None else replace(found, path=_spelled(path, inner.profile))


def constants_of(block: list[Directive], around: Mapping[str, str]) -> dict[str, str]:
    """The variables that have one fixed value for each request of a block, of its own or from `around`."""
    inner = [each for one in find(block, "if") for each in one.block]
    sets = [each.arguments for each in find((*block, *inner), "set") if len(each.arguments) == 2]
    names = [name for name, _ in sets]
    names += [name for each in within(block) for name in groups(each)]  # expressions give it another one
    kept = {name: value for name, value in around.items() if name not in names}
    if find((*block, *inner), "rewrite", "break"):
        return kept
    conditional = {each.first for each in find(inner, "set")}
    single = {name: value for name, value in sets if names.count(name) == 1 and name not in conditional}
    return kept | {name: value for name, value in single.items() if "$" not in value}


def _filled(directive: Directive, block: list[Directive], reading: LocationReading) -> Directive:
    """A proxy_pass with values in the places of variables that have one, where no path comes after them."""
    known = constants_of(block, reading.constants)
    url = directive.first
    filled = _VARIABLE.sub(lambda match: known.get(f"${match[1]}", match[0]), url)
    is_known = _AS_RECEIVED.fullmatch(filled) or _TEMPLATE.fullmatch(filled)
    return replace(directive, arguments=[filled]) if is_known else directive


def _named_fallback(directive: Directive, block: list[Directive]) -> str:
    """The named location of a try_files, in a block that answers by nothing else; else empty."""
    last = (directive.arguments or [""])[-1]
    others = any(each.name in CONTENT - {"root", "alias", "autoindex"} for each in block)
    return last if last.startswith("@") and not others else ""


def _stripping(directive: Directive, block: list[Directive], path: str) -> Directive:
    """A proxy_pass with the path that a `rewrite … break` beside it gives to its requests."""
    strips = [each for each in find(block, "rewrite") if _is_stripped(each, block, path)]
    if not strips:
        return directive
    begin = strips[-1].arguments[1].removesuffix("$1") or "/"
    url = directive.arguments[0].rstrip("/") + begin
    return replace(directive, arguments=[url])


def _is_stripped(directive: Directive, block: list[Directive], path: str) -> bool:
    """Tell whether a rewrite does no more than replace the prefix of its location."""
    if len(directive.arguments) != 3 or directive.arguments[2] != "break" or any(within(block, "break")):
        return False
    if len(find(block, "rewrite")) != 1 or not path.endswith("/") or path == "/":
        return False
    passes = [each.first for each in find(block, "proxy_pass") if each.arguments]
    matched = _STRIPPED.fullmatch(directive.arguments[0])
    if matched is None or len(passes) != 1 or not re.fullmatch(_ORIGIN, passes[0]):
        return False
    begin, optional, inner = matched.groups()
    target = directive.arguments[1]
    if not (target.endswith("$1") and "$" not in target[:-2]):
        return False
    whole = f"{begin}{'/' if optional or inner else ''}" if not begin.endswith("/") else begin
    before = target.removesuffix("$1")
    return whole == path and (
        before.endswith("/") if not inner else not before.endswith("/") and before != ""
    )


class _Found(NamedTuple):
    """A location of a path or an expression; what answers its requests: None for nothing here."""

    location: Directive
    path: str
    mapped: Mapped | None
    inner: LocationReading
    is_final: bool
    ignores_case: bool

    @property
    def is_guarded(self) -> bool:
        """True if not everybody has access."""
        return self.mapped is None or self.inner.settings.is_guarded or "access" in self.mapped.tables


def _prefix(found: _Found) -> None:
    """The routes of a prefix. nginx's is of bytes: what else begins so has the same guards and rules."""
    location, path, mapped, inner, is_final, _ = found
    if "*" in path:
        # In nginx "*" is a letter like others, and in a route's path it stands for any bytes.
        text, literal = 'nginx reads "*" as it is, a route as any bytes: left out', path[: path.index("*")]
        if found.is_guarded:
            inner.close(f"{literal}*", location.line)
            text = f"{text}; univocal refuses all below {literal} (403), since it guards something"
        inner.notes.ask(location, text)
        return
    is_nowhere = mapped is None and inner.is_nowhere
    if found.is_guarded and inner.has_expressions and not (is_final or is_nowhere):
        inner.notes.say(location, "its guards hold for what expressions match below it, too; not so in nginx")
    if mapped is None:
        _note_closed(location, inner, 502 if is_nowhere else 403)
        inner.close(path, location.line, is_final=is_final)
    else:
        route = replace(mapped, is_final=is_final)
        has_ends = not (path.endswith("/") or has_path(route.upstream))
        inner.routes.append(replace(route, path=f"{route.path}*") if has_ends else route)
    _ends(found)


def _note_closed(location: Directive, inner: LocationReading, status: int = 403) -> None:
    """Say that a location is closed, and whether that is what nginx does."""
    if refuses_all(location.block, inner.settings):
        inner.notes.say(location, f"nginx refuses these requests; {_REFUSES}")
        return
    text = f"no proxy_pass that could be taken over: univocal refuses these requests ({status})"
    inner.notes.ask(location, text)


def _ends(found: _Found) -> None:
    """Have routes where nginx's prefix of bytes and one of segments differ, and say so."""
    location, path, mapped, inner, is_final, _ = found
    if path == "/":
        return
    if path.endswith("/"):
        if not _passes(location):
            return  # nginx leaves the path without the slash to another location
        if found.is_guarded:
            inner.close(path[:-1], location.line, is_implied=True)
        elif mapped is not None:
            # The last slash of a path is one of its readings, so what holds for one holds for both.
            tables = {key: table for key, table in mapped.tables.items() if key in {"access", "cache"}}
            own = Mapped(f"={_spelled(path[:-1], inner.profile)}", location.line, tables=tables)
            to = {"redirect": f"{_spelled(path, inner.profile)}{{query}}"}
            inner.routes.append(replace(own, is_implied=True, redirect=to))
        return
    if mapped is None:
        inner.close(path, location.line, is_implied=True, is_final=is_final, star="*")
    elif has_path(mapped.upstream):
        beside = replace(mapped.closed(), path=f"{mapped.path}*", is_implied=True, is_final=is_final)
        inner.routes.append(replace(beside, is_apart=not found.is_guarded))
        text = f"is of {path}x, too, in nginx; an upstream with a path is for whole segments"
        inner.notes.say(location, f"{text}, so {path}x is refused" if found.is_guarded else text)


def _ends_outside(found: _Found) -> None:
    """Have the redirect of a location with one of the same path in it, where that one has none."""
    same = [each for each in found.location.block if _split(each)[1] == found.path]
    if found.path.endswith("/") and not any(map(_passes, same)):
        _ends(found)


def _exact(found: _Found) -> None:
    """The route of one path; where univocal has none, a guarded one closes all below it."""
    location, path, mapped, inner, _, _ = found
    spelled = _spelled(path, inner.profile)
    literal, star = literal_beginning(spelled[: spelled.index("*") + 1] if "*" in spelled else spelled)
    if star or literal != spelled:
        if found.is_guarded:
            _note_closed(location, inner)
            inner.close(literal + star, location.line)
        return
    closed = Mapped(literal + star, location.line, is_closed=True)
    if mapped is None:
        _note_closed(location, inner)
    instead = (closed,) if found.is_guarded else ()
    own = replace(mapped or closed, path=f"={spelled}", instead=instead, is_apart=True, kind=f"= {path}")
    inner.routes.append(own)


def _expression(found: _Found) -> None:
    """The route of an expression; where univocal has none, a guarded one closes all that it may match."""
    location, path, mapped, inner, _, ignores_case = found
    is_alone = not (inner.in_expression or inner.in_final)
    is_nowhere = mapped is None and is_alone and inner.own_access is not None
    own = inner.closed_expression(path, location.line, ignores_case=ignores_case, is_nowhere=is_nowhere)
    if found.is_guarded and not is_nowhere:
        inner.notes.say(location, _OF_ALL)
    if mapped is None:
        _note_closed(location, inner, 502 if is_nowhere else 403)
    else:
        instead = own.instead if found.is_guarded or mapped.redirect else ()
        own = replace(mapped, path=own.path, instead=instead, kind=own.kind, is_apart=True)
    inner.routes.append(own)


def _pass(directive: Directive, path: str, reading: LocationReading) -> Mapped | None:
    """The route of a proxy_pass at a path ("" where none is replaced), and the Host that it sends."""
    resolved = _resolved(directive, reading)
    if resolved is None:
        return None
    url, host, servers = resolved
    upstream, forward = url, "canonical"
    if as_received := _AS_RECEIVED.fullmatch(url):
        upstream, forward = as_received[1], "received"
    elif template := _TEMPLATE.fullmatch(url):
        # By itself $uri is the whole target: what an upstream without a path gets.
        upstream = template[1] + ("{path}" if template[1].count("/") > 2 else "")
        if template[2] is None:
            reading.notes.say(directive, "nginx drops the query; here it goes on")
    elif not _REPLACED.fullmatch(url) or not path:
        text = "variables other than $uri at the end, or $request_uri by itself; left out"
        reading.notes.say(directive, text)
        return None
    elif not _replaces_segments(path, url, directive, reading):
        return None
    elif (socket := _AS_HOST.fullmatch(url)) and socket[2] == path:
        upstream = url.removesuffix(path)  # what is replaced with itself
    spelled = _spelled(path, reading.profile)
    if set(spelled.encode()) & _RESERVED:
        reading.notes.say(directive, f"{spelled} is taken in this spelling only; with escapes it is refused")
    setting = _setting(upstream, servers, directive, reading)
    if setting is None:
        return None
    tables = reading.settings.tables(reading.notes)
    origin = _origin(directive, url, reading) | dict(tables.pop("origin", {}))
    return Mapped(spelled, directive.line, setting, forward, host, origin, tables)


def _origin(directive: Directive, url: str, reading: LocationReading) -> dict[str, Any]:
    """The settings of connections to an origin server: nginx verifies no certificate unless it is told to."""
    made: dict[str, Any] = {}
    host = re.split(r"[/:$]", directive.first.partition("://")[2])[0]
    upstream = reading.upstreams.get(host)
    for each in find(upstream.block, "keepalive") if upstream else []:
        if each.first.isdigit():
            made["max_idle"] = int(each.first)
    if not url.startswith("https://"):
        return made
    if reading.settings.argument("proxy_ssl_verify") != "on":
        text = "nginx does not verify the certificate, nor does univocal: tls_verify = false"
        reading.notes.say(directive, text)
        return made | {"tls_verify": False}
    file = reading.settings.argument("proxy_ssl_trusted_certificate")
    return made | {"tls_verify": True} | ({"tls_ca": file} if file else {})


def _setting(
    upstream: str, servers: Mapping[str, Table], directive: Directive, reading: LocationReading
) -> Setting | None:
    """The upstream's value: `upstream` is that of the first of `servers`, which are by URL.

    A path behind a socket, which univocal has no way to write, is left out; None if nothing else is there.
    """
    behind = upstream.removeprefix(next(iter(servers), upstream))
    written = [(_written(url + behind), own) for url, own in (servers or {upstream: {}}).items()]
    kept = [(url, own) for url, own in written if url]
    if len(kept) < len(written):
        reading.notes.say(directive, "a path behind a socket; left out")
    if len(kept) < 2:
        return kept[0][0] if kept else None
    if all("backup" in own for _, own in kept):
        kept = [(url, {key: own[key] for key in own if key != "backup"}) for url, own in kept]
    return [{"url": url, **own} if own else url for url, own in kept]


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
    octets = octets_of(path)
    for octet in (b"%", b"?", b"#"):
        octets = octets.replace(octet, b"%%%02X" % ord(octet))
    return profile.ring.canonical(octets).decode()


def _replaces_segments(path: str, url: str, directive: Directive, reading: LocationReading) -> bool:
    """Tell whether nginx, which replaces bytes, replaces segments here; a doubled slash is only noted."""
    if path.endswith("/") and not url.endswith("/"):
        reading.notes.say(directive, f"nginx makes {url}x of {path}x, not {url}/x; left out")
        return False
    if url.endswith("/") and not path.endswith("/"):
        reading.notes.say(directive, f"nginx makes {url}/x of {path}/x; here it is {url}x")
    return True


def _resolved(
    directive: Directive, reading: LocationReading
) -> tuple[str, str, dict[str, dict[str, Any]]] | None:
    """The URL of a proxy_pass, with a server in the place of its upstream's name; the Host; all servers."""
    url = _as_host(directive.first)
    if url.startswith(_TLS_SOCKET):
        reading.notes.say(directive, "TLS over a socket; left out")
        return None
    match = re.fullmatch(r"(https?://)([^/$:]+)(.*)", url, re.DOTALL)
    if match is None:
        reading.notes.say(directive, "no http:// or https:// and a host; left out")
        return None
    upstream = reading.upstreams.get(match[2])
    if upstream is None:
        socket = _AS_HOST.match(url) and reading.host == "$proxy_host"
        return url, "localhost" if socket else reading.host, {}
    if closers := [each for each in upstream.block if closes(each)]:
        for each in closers:
            leave_out(each, reading.notes, is_closing=True)
        return None
    servers = _servers_of(upstream, match[1], reading)
    if not servers:
        reading.notes.say(upstream, "no server with a host and a port; left out")
        return None
    host = match[2] if reading.host == "$proxy_host" else reading.host
    return f"{next(iter(servers))}{match[3]}", host, servers


def _servers_of(upstream: Directive, scheme: str, reading: LocationReading) -> dict[str, dict[str, Any]]:
    """The servers of an upstream by their URLs, each with its settings."""
    servers: dict[str, dict[str, Any]] = {}
    for each in upstream.block:
        if each.name == "keepalive":
            continue
        if each.name != "server" or not each.arguments:
            leave_out(each, reading.notes)
        elif "down" in each.arguments[1:]:
            reading.notes.say(each, "it is down; left out")
        elif (scheme + each.arguments[0]).startswith(_TLS_SOCKET):
            reading.notes.say(each, "TLS over a socket; left out")
        else:
            server, *parameters = each.arguments
            own = _as_host(scheme + server)
            weight = next((int(each[1]) for each in map(_WEIGHT.fullmatch, parameters) if each), 1)
            weight += servers[own].get("weight", 1) if own in servers else 0
            is_backup = "backup" in parameters and (own not in servers or "backup" in servers[own])
            servers[own] = {"weight": weight} if weight != 1 else {}
            servers[own] |= {"backup": True} if is_backup else {}
            if others := [each for each in parameters if each != "backup" and not _WEIGHT.fullmatch(each)]:
                reading.notes.say(each, f"{' '.join(others)}: see choice, fails and eject of [origin]")
    return servers
