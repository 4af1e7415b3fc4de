"""nginx's conditions as `refuse` and `require` of a table `access`: none that meets one is served."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from univocal.judge.access import condition_of
from univocal.judge.orders import PURGES
from univocal_learn.importers.nginx_patterns import expression
from univocal_learn.importers.nginx_syntax import Directive

_VARIABLE: Final = re.compile(r"\$(?:(http|cookie)_([a-z0-9_]+)|(request_(?:method|uri)))", re.IGNORECASE)
# Fields that univocal reads by rules of its own: the site, and the client.
_OWN: Final = ("header:host", "header:x-forwarded-", "header:forwarded", "header:x-real-ip")
# A name in valid_referers, and what is no page of the web in nginx: anything short, or of another scheme.
_HOST: Final = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*", re.ASCII)
_NO_PAGE: Final = ".{0,10}$|[^h]|h[^t]|ht[^t]|htt[^p]|http[^s:]|https[^:]|https?:[^/]|https?:/[^/]"
_GROUP: Final = re.compile(r"\(\?P?[<'](\w+)[>']")
# A value is true in nginx unless it is empty or "0".
_TRUE: Final = "^(?:[^0]|0.)"


class ConditionEntry(NamedTuple):
    """An entry of a table of conditions: its key there is `refuse` or `require`."""

    key: str
    subject: str
    texts: tuple[str, ...]


def assigned(block: Iterable[Directive]) -> Iterator[tuple[str, Directive]]:
    """The variables that directives of a block, or in it, give values to: these are no request's any more."""
    for each in block:
        yield from ((name, each) for name in groups(each))
        if each.name in {"map", "geo", "split_clients"}:
            yield from ((name.lower(), each) for name in each.arguments[-1:])
            yield from ((name, row) for row in each.block for name in groups(row))
            continue
        if "set" in each.name:
            yield from ((name.lower(), each) for name in each.arguments[:1])
        if each.name.startswith("$"):  # as in a block of geoip2
            yield each.name.lower(), each
        yield from assigned(each.block)


def groups(directive: Directive) -> list[str]:
    """The variables that the named groups of a directive's expressions give values to."""
    words = (directive.name, *directive.arguments)
    return [f"${name.lower()}" for word in words for name in _GROUP.findall(word)]


def condition(
    directive: Directive, referers: Sequence[Directive], given: Mapping[str, Directive]
) -> ConditionEntry | None:
    """The condition of an `if` or a limit_except; None if univocal has no equal.

    `referers` are the valid_referers in force, `given` the variables that the file gives values to.
    """
    is_of_methods = directive.name == "limit_except"
    found = _of_methods(directive) if is_of_methods else _of_an_if(directive, referers, given)
    if found is None or _is_of_purges(found):
        return None
    try:
        condition_of(found.subject, found.texts, is_required=True)
    except ValueError:
        return None
    return found


def _is_of_purges(condition: ConditionEntry) -> bool:
    """Tell whether a condition refuses a method of univocal's orders, for which `[purge]` has the rules."""
    refuses = condition.key == "refuse" and condition.subject == "method"
    return refuses and any(text.encode() in PURGES for text in condition.texts)


def _of_methods(directive: Directive) -> ConditionEntry | None:
    if [(each.name, each.arguments) for each in directive.block] != [("deny", ["all"])]:
        return None
    methods = {each.upper() for each in directive.arguments}
    methods |= {"HEAD"} if "GET" in methods else set()
    return ConditionEntry("require", "method", (f"~^(?:{'|'.join(sorted(methods))})$",))


def _of_an_if(
    directive: Directive, referers: Sequence[Directive], given: Mapping[str, Directive]
) -> ConditionEntry | None:
    if directive.name != "if":
        return None
    variable, *operation = words_of_condition(directive.arguments)
    variable = variable.lower()
    if not operation and variable == "$invalid_referer":
        return _of_referers([word for each in referers for word in each.arguments])
    if not operation and variable in given and given[variable].name == "map":
        return _of_map(given[variable], given)
    subject, text = _subject(variable, given), _text(*operation) if len(operation) in {0, 2} else None
    if not subject or text is None:
        return None
    return ConditionEntry(
        "require" if operation and operation[0].startswith("!") else "refuse", subject, (text,)
    )


def _subject(variable: str, given: Mapping[str, Directive]) -> str:
    """The name that univocal has for a variable; empty where it has none."""
    matched = _VARIABLE.fullmatch(variable)
    if matched is None or variable.lower() in given:
        return ""
    kind, name, line = ((each or "").lower() for each in matched.groups())
    if line:
        return "target" if line == "request_uri" else "method"
    subject = f"header:{name.replace('_', '-')}" if kind == "http" else f"cookie:{name}"
    return "" if subject.startswith(_OWN) else subject


def _of_map(directive: Directive, given: Mapping[str, Directive]) -> ConditionEntry | None:
    """The condition that a map's variable is true, where nothing but its default is false, or true."""
    rows = [(each.name, each.arguments) for each in directive.block]
    values = {key: arguments[0] for key, arguments in rows if len(arguments) == 1 and "$" not in arguments[0]}
    subject, is_whole = _subject(directive.arguments[0], given), len(values) == len(rows)
    is_true = {key: value not in {"", "0"} for key, value in values.items()}
    default = is_true.pop("default", False)
    texts = tuple(_key_text(key) for key in is_true)
    if not (subject and is_whole and texts and all(texts)) or default in is_true.values():
        return None
    return ConditionEntry("require" if default else "refuse", subject, texts)


def _key_text(key: str) -> str:
    """The value or expression of a map's key, which ignores case; empty where univocal has no equal."""
    if key.startswith("~"):
        return expression(key[1:].removeprefix("*"), ignores_case=key.startswith("~*"))
    if key == "include" or key.startswith("\\"):
        return ""
    return f"~(?i)^{re.escape(key)}$"


def _of_referers(words: Sequence[str]) -> ConditionEntry | None:
    """The pages of which links lead here, where links without a page and those of other schemes do, too."""
    names = [word for word in words if word not in {"none", "blocked"}]
    known = "server_names" not in names and all(map(_HOST.fullmatch, names))
    if not known or not {"none", "blocked"} <= {*words}:
        return None
    hosts = [f"[^/:]+{re.escape(name[1:])}" if name[0] == "*" else re.escape(name) for name in names]
    pages = "|".join([_NO_PAGE, *(f"https?://{host}(?:[/:]|$)" for host in hosts)])
    return ConditionEntry("require", "header:Referer", (f"~(?i)^(?:{pages})",))


def words_of_condition(arguments: list[str]) -> list[str]:
    """The words between the parentheses of a condition, of which either may stand by itself."""
    if not arguments or not arguments[0].startswith("("):
        return [""]
    words = arguments[1:] if arguments[0] == "(" else [arguments[0][1:], *arguments[1:]]
    last = words.pop() if words else ""
    return [*words, last.removesuffix(")")] if last != ")" else words


def _text(operator: str = "", value: str = "") -> str | None:
    """The value or expression of a condition; None where univocal has no equal."""
    kind = operator.removeprefix("!")
    if not operator:
        return f"~{_TRUE}"
    if kind in {"~", "~*"}:
        return expression(value, ignores_case=kind == "~*") or None
    return value if kind == "=" and "$" not in value and not value.startswith("~") else None
