"""nginx's directives by what they may do: closed is the default, and these lists say what stays open.

A directive is *taken over*, or *harmless* (it refuses no request and keeps no people apart), or it closes
what it applies to: a directive of an unknown module may be a guard.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Final

from univocal_learn.importers.imported import words_of
from univocal_learn.importers.nginx_syntax import Directive

TABLE: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    (files("univocal_learn.importers") / "nginx.toml").read_text("utf-8")
)
"""nginx's directives, fields and variables by kinds: lists of words."""

_KINDS: Final = {kind: words_of(text) for kind, text in TABLE["directives"].items()}
TAKEN: Final = _KINDS["taken"]
CONTENT: Final = _KINDS["content"]
_FAMILIES: Final = tuple(_KINDS["families"])
_HARMLESS_VALUES, _ASKED = (
    {name: words_of(text) for name, text in TABLE[kind].items()} for kind in ("values", "asked")
)

HARMLESS_FILES: Final = re.compile(
    r"(?:.*/)?(?:(?:fastcgi|uwsgi|scgi)_params|fastcgi(?:-php)?\.conf|mime\.types|koi-(?:utf|win)|win-utf"
    r"|options-ssl-nginx\.conf|ssl-params\.conf)"
)

MOVED: Final = frozenset({"301", "302", "303", "307", "308"})
_TARGET: Final = re.compile(
    r"(https?|\$scheme)://(\$\{?(?:host|http_host|server_name)\}?|[\w.-]+)(?::\d+)?\$request_uri"
)
_OF_A_HOST: Final = re.compile(r"\(?\s*\$(?:http_)?host\s*=\s*([^\s)]*)\s*\)?")
# Of hosts that a condition names: a redirect to the first name of the server, or to another port.
_ABOUT_HOSTS: Final = re.compile(r"\(?\s*\$(?:http_)?host\b")
_ELSEWHERE: Final = re.compile(r"//\$\{?server_name|//[^/]*?:\d")
_ABOUT_A_PLACE: Final = re.compile(
    r"\(?\s*\$(?:scheme|https|server_port|ssl_protocol|http_x_forwarded_proto|host|http_host)"
    r"\s*(?:!?=|!?~\*?)\s*[^)]*\)?"
)
_OPTIONS: Final = re.compile(r"\(?\s*\$request_method\s*=\s*OPTIONS\s*\)?")
_ANSWERED: Final = re.compile(r"20[0-6]")
_LED: Final = re.compile(r"=(?:[23][0-9]{2})?")  # by an error_page that gives another status

_NOT_OURS: Final = "not part of a profile or a route"
_MOVES: Final = (
    "nginx redirects these requests, univocal serves them: see [server] https_redirect, aliases of sites"
)
_OF_OPTIONS: Final = "nginx answers these requests by itself; univocal sends them to the origin server"
_WHY: Final = {name: why for why, names in TABLE["reasons"].items() for name in words_of(names)}


def reason(directive: Directive) -> str:
    """The reason why a directive has no place in a profile or a route."""
    if closes(directive):
        return _WHY.get(directive.name, f"{_NOT_OURS}, and it may guard what nginx serves")
    if directive.name == "if" and (rest := answers_of(directive)):
        return _OF_OPTIONS if _ANSWERED.fullmatch(rest[0].arguments[0]) else _MOVES
    if directive.name in _HARMLESS_VALUES:
        return "refuses nothing and withholds nothing, with this value"
    return TABLE["reasons_of_harmless"].get(directive.name) or _WHY.get(directive.name, _NOT_OURS)


def closes(directive: Directive) -> bool:
    """Tell whether a directive may refuse requests, or keep people apart, in a way that has no equal here."""
    name, arguments = directive.name, directive.arguments
    if name in _HARMLESS_VALUES:
        return not (arguments and arguments[0] in _HARMLESS_VALUES[name])
    if name == "if":
        return not _is_harmless_if(directive)
    if changes_query(directive):
        return True
    if name == "include":
        return not all(HARMLESS_FILES.fullmatch(each) for each in arguments)
    is_of_family = name.startswith(_FAMILIES) and name not in _KINDS["never_harmless"]
    return not (name in TAKEN or name in _KINDS["harmless"] or is_of_family)


def asks(directive: Directive) -> bool:
    """Tell whether a directive that closes nothing has no equal that is as safe for clients."""
    return directive.name in _ASKED and _ASKED[directive.name].isdisjoint(directive.arguments)


def changes_query(directive: Directive) -> bool:
    """Tell whether the origin server gets another query than the client sent."""
    return directive.name == "set" and directive.arguments[:1] == ["$args"]


def answers_of(directive: Directive) -> list[Directive]:
    """The directives of an `if` that do not let the request pass."""
    return [
        each for each in directive.block if each.name not in _KINDS["harmless_in_if"] or changes_query(each)
    ]


def refuses(directive: Directive) -> bool:
    """Tell whether an `if` or another guard refuses all that it keeps from the origin server."""
    return directive.name != "if" or all(map(is_refusal, answers_of(directive)))


def _is_harmless_if(directive: Directive) -> bool:
    """Tell whether an `if` lets the request pass, moves a whole site, or answers OPTIONS."""
    rest, condition = answers_of(directive), " ".join(directive.arguments)
    if not rest:
        return True
    if len(rest) != 1 or rest[0].name != "return" or not rest[0].arguments:
        return False
    if _OPTIONS.fullmatch(condition):
        return _ANSWERED.fullmatch(rest[0].arguments[0]) is not None
    if _ABOUT_HOSTS.match(condition) and _ELSEWHERE.search(rest[0].arguments[-1]):
        return False
    scheme, host = target_of(rest[0]) or ("", "")
    own = _OF_A_HOST.fullmatch(condition)
    is_own = host.startswith("$") or (own is not None and scheme == "https" and host == own[1])
    return is_own and _ABOUT_A_PLACE.fullmatch(condition) is not None


def target_of(directive: Directive) -> tuple[str, str] | None:
    """The scheme and the host of a redirect that keeps the request's target; None for any other answer."""
    if directive.name != "return" or not directive.arguments:
        return None
    *status, url = directive.arguments
    if status and status[0] not in MOVED:
        return None
    matched = _TARGET.fullmatch(url)
    return (matched[1], matched[2]) if matched else None


def leading(pages: Iterable[Directive], status: str) -> Directive | None:
    """The error_page by which nginx gives another answer than the refusal that a status is; None for none."""
    for each in pages:
        *statuses, url = each.arguments or [""]
        if status in statuses:
            is_elsewhere = _LED.fullmatch(statuses[-1]) or url.startswith(("http://", "https://"))
            return each if is_elsewhere else None
    return None


def is_refusal(directive: Directive) -> bool:
    """Tell whether a `return` or `internal` refuses, so that a closed route is its equal."""
    if directive.name == "internal":
        return True
    status = directive.first
    is_whole = directive.name == "return" and not directive.meaning
    return is_whole and len(status) == 3 and status.isdigit() and status >= "400"
