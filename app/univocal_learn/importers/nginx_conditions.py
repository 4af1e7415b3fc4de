"""nginx's conditions that refuse, as `refuse` and `require` of a table `access`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from univocal.judge.access import condition_of
from univocal_learn.importers.nginx_directives import HARMLESS_IN_IF, is_refusal
from univocal_learn.importers.nginx_patterns import expression
from univocal_learn.importers.nginx_syntax import Directive

_VARIABLE: Final = re.compile(r"\$(?:(http|cookie)_([a-z0-9_]+)|(request_(?:method|uri)))", re.IGNORECASE)
# Fields that univocal reads by rules of its own: the site, and the client.
_OWN: Final = ("header:host", "header:x-forwarded-", "header:forwarded", "header:x-real-ip")
# A name in valid_referers, and what is no page of the web in nginx: anything short, or of another scheme.
_HOST: Final = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*", re.ASCII)
_NO_PAGE: Final = ".{0,10}$|[^h]|h[^t]|ht[^t]|htt[^p]|http[^s:]|https[^:]|https?:[^/]|https?:/[^/]"
# What nginx takes for true: neither nothing nor "0".
_TRUE: Final = "^(?:[^0]|0.)"


class Condition(NamedTuple):
    """An entry of a table of conditions: its key there is `refuse` or `require`."""

    key: str
    subject: str
    text: str


def assigned(block: Iterable[Directive]) -> Iterator[str]:
    """The variables that directives of a block, or in it, give values to: these are no request's any more."""
    for each in block:
        if each.name in {"map", "geo", "split_clients"}:
            yield from each.arguments[-1:]
        elif "set" in each.name:
            yield from each.arguments[:1]
        yield from assigned(each.block or [])


def condition(
    directive: Directive, referers: Sequence[Directive] = (), known: Collection[str] = ()
) -> Condition | None:
    """The condition by which an `if` or a limit_except refuses; None if there is none that univocal has.

    `referers` are the valid_referers in force, `known` variables have values of the file's own.
    """
    found = (
        _of_methods(directive) if directive.name == "limit_except" else _of_an_if(directive, referers, known)
    )
    if found is None:
        return None
    try:
        condition_of(found.subject, [found.text], is_required=True)
    except ValueError:
        return None
    return found


def _of_methods(directive: Directive) -> Condition | None:
    if [(each.name, each.arguments) for each in directive.block or []] != [("deny", ["all"])]:
        return None
    methods = {*directive.arguments, *(["HEAD"] if "GET" in directive.arguments else [])}
    return Condition("require", "method", f"~^(?:{'|'.join(sorted(methods))})$")


def _of_an_if(
    directive: Directive, referers: Sequence[Directive], known: Collection[str]
) -> Condition | None:
    rest = [each for each in directive.block or [] if each.name not in HARMLESS_IN_IF]
    if directive.name != "if" or not rest or not all(map(is_refusal, rest)):
        return None
    variable, *operation = _words(directive.arguments)
    if variable == "$invalid_referer" and not operation:
        return _of_referers([word for each in referers for word in each.arguments])
    matched = _VARIABLE.fullmatch(variable)
    text = _text(*operation) if len(operation) in {0, 2} else None
    if matched is None or text is None or variable in known:
        return None
    kind, name, line = matched.groups()
    subject = "target" if (line or "").lower() == "request_uri" else "method"
    if kind:
        name = name.replace("_", "-") if kind.lower() == "http" else name
        subject = f"{'header' if kind.lower() == 'http' else 'cookie'}:{name}"
    if subject.lower().startswith(_OWN):
        return None
    return Condition("require" if operation and operation[0].startswith("!") else "refuse", subject, text)


def _of_referers(words: Sequence[str]) -> Condition | None:
    """The pages of which links lead here, where links without a page and those of other schemes do, too."""
    names = [word for word in words if word not in {"none", "blocked"}]
    if not {"none", "blocked"} <= {*words} or not all(map(_HOST.fullmatch, names)):
        return None
    hosts = [f"[^/:]+{re.escape(name[1:])}" if name[0] == "*" else re.escape(name) for name in names]
    return Condition(
        "require", "header:Referer", f"~(?i)^(?:{_NO_PAGE}|https?://(?:{'|'.join(hosts)})(?:[/:]|$))"
    )


def _words(arguments: list[str]) -> list[str]:
    """The words between the parentheses of a condition, of which either may stand by itself."""
    words = ["(", *arguments] if not arguments else [arguments[0][:1], arguments[0][1:], *arguments[1:]]
    if words[0] != "(":
        return [""]
    words = words[2:] if not words[1] else words[1:]
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
