"""nginx's `return` of a redirect as the setting `redirect`; what of its rewriting no request comes to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from univocal_learn.importers.imported import Notes
from univocal_learn.importers.nginx_directives import MOVED, TABLE, closes, is_refusal
from univocal_learn.importers.nginx_syntax import Directive, find, within

_OWN: Final = re.compile(r"\$\{?scheme\}?://\$\{?(?:http_)?host\}?(?=[/$?]|\Z)")
_NAMES: Final = TABLE["names_in_redirects"]
_QUERY: Final = re.compile(r"(?:\?|\$\{?is_args\}?)\$\{?(?:args|query_string)\}?")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
# Directives that nginx looks at before a `return`, or in its order.
_BEFORE: Final = frozenset({"if", "rewrite", "set", "break"})
_ORDERED: Final = _BEFORE | {"return"}
_BLOCKS: Final = frozenset({"http", "server", "location", "if"})


def redirect_of(block: Sequence[Directive], *, has_group: bool) -> dict[str, Any]:
    """The setting of a location that does nothing but redirect; empty if univocal does not say it.

    `has_group`: the location is an expression, whose first group "$1" means.
    """
    returns = find(block, "return")
    if len(returns) != 1 or not returns[0].arguments or any(each.name in _BEFORE for each in block):
        return {}
    if any(closes(each) or each.name == "location" for each in block if each is not returns[0]):
        return {}
    *status, url = returns[0].arguments
    is_moved = status[0] in MOVED if status else url.startswith(("http://", "https://", "$scheme"))
    if len(status) > 1 or not is_moved or set(_VARIABLE.sub("", url)) & {"{", "}"}:
        return {}
    to = _OWN.sub("", url, count=1)
    to = _QUERY.sub("{query}", to or "/")
    to = _VARIABLE.sub(lambda named: _NAMES.get(named[1] or named[2], "\0"), to)
    if "\0" in to or ("{1}" in to and not has_group):
        return {}
    code = int((status or ["302"])[0])
    return {"redirect": to if code == 301 else {"to": to, "status": code}}


def end(block: list[Directive], notes: Notes) -> None:
    """Leave out what no request comes to; of a refusal that some requests end before, say so."""
    kept, is_over, before = list[Directive](), False, ""
    for each in block:
        if each.name in _BLOCKS:
            end(each.block, notes)
        if each.name not in _ORDERED:
            kept.append(each)
            continue
        if is_over:
            notes.say(each, "nginx never comes here: what is before it ends")
            continue
        if before and any(map(is_refusal, (each, *each.block))):
            each = replace(each, meaning=f"{before} {each.title}")  # noqa: PLW2901
            if each.block:
                notes.ask(each, "univocal refuses what meets this condition, even where nginx ends before it")
        is_over = each.name in {"break", "return"}
        if any(within(each.block, "break")) or "break" in each.arguments[2:]:
            before = f"{each.title} {{ break; }}" if each.block else f"{each.title};"
        kept.append(each)
    block[:] = kept
