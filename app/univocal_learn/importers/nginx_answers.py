"""nginx's own answers: redirects as the setting `redirect`, pages of errors by names that univocal has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from univocal.http.problem import page_fault
from univocal_learn.importers.imported import Notes
from univocal_learn.importers.nginx_directives import CONTENT, MOVED, TABLE, closes, is_refusal, leading
from univocal_learn.importers.nginx_syntax import Directive, find, within

_OWN: Final = re.compile(r"\$\{?scheme\}?://\$\{?(?:http_)?host\}?(?=[/$?]|\Z)")
_NAMES: Final = TABLE["names_in_redirects"]
_QUERY: Final = re.compile(r"(?:\?|\$\{?is_args\}?)\$\{?(?:args|query_string)\}?")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
# Directives that nginx looks at before a `return`, or in its order.
_BEFORE: Final = frozenset({"if", "rewrite", "set", "break"})
_ORDERED: Final = _BEFORE | {"return"}
_BLOCKS: Final = frozenset({"http", "server", "location", "if"})
_LEFT_OUT: Final = "left out: see [server] error_pages"
_LARGEST: Final = 1 << 20  # bytes of a page


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


def pages_of(
    server: Sequence[Directive], around: Sequence[Directive], top: Path | None, notes: Notes
) -> dict[str, Path]:
    """The files of a server's pages by names such as "502.html"; `top` is the directory of --root."""
    own = find(server, "error_page")
    pages: dict[str, Path] = {}
    for each in own or find(around, "error_page"):
        *statuses, url = each.arguments or [""]
        names = [f"{status}.html" for status in statuses if not page_fault(f"{status}.html")]
        file = None if len(names) < len(statuses) else _file(url, server, around, top)
        if file is None:
            notes.say(each, f"{_LEFT_OUT}: no file of a page here, or another status")
            continue
        pages |= {name: file for name in names if name not in pages}
        text = "--sites copies the page: univocal shows it in its own answers, to clients that prefer HTML"
        notes.say(each, text)
    inner = [each for location in find(server, "location") for each in location.block]
    for each in within(inner, "error_page"):
        notes.say(each, f"{_LEFT_OUT}, which a route may have, too")
    return pages


def lead_on(block: list[Directive], around: Sequence[Directive] = (), name: str = "") -> None:
    """Have each `return` of a status that error_page answers elsewhere say so: it refuses nothing.

    `around` are the error_page in force outside the block, which is that of a directive `name`.
    """
    pages = find(block, "error_page") or around
    for number, each in enumerate(block):
        is_first = each.name == "return" and not find(block[:number], "return")
        if is_first and len(each.arguments) == 1 and (page := leading(pages, each.arguments[0])):
            status, place = page.arguments[-2:]
            meaning = f"{page.title}; {each.title}"
            is_named = name == "location" and place.startswith("@") and status in {"=", "=200"}
            is_stopped = any(within(block[:number], "break"))
            words = ("try_files", [place]) if is_named and not is_stopped else ("rewrite", ["^", place])
            block[number] = Directive(*words, each.line, file=each.file, meaning=meaning)
        lead_on(each.block, pages, each.name)
    if any(each.name == "try_files" and each.meaning for each in block):
        gone = CONTENT | {"error_page", "try_files"}
        block[:] = [each for each in block if each.meaning or each.name not in gone]


def _file(
    url: str, server: Sequence[Directive], around: Sequence[Directive], top: Path | None
) -> Path | None:
    """The file that nginx sends for a path; None if there is none here."""
    matching = [each for each in find(server, "location") if each.block and _matches(each, url)]
    matching.sort(key=lambda each: ("=" in each.arguments, len(each.arguments[-1])))
    inner = matching[-1].block if matching else []
    for block in (inner, server, around):
        for each in reversed(find(block, "root", "alias")):
            if each.arguments:
                rest = url.removeprefix(matching[-1].arguments[-1]) if each.name == "alias" else url
                file = Path(each.arguments[0].rstrip("/") + ("/" if rest and rest[0] != "/" else "") + rest)
                place = file if top is None else top / str(file).lstrip("/")
                return place if _is_page(file, place) else None
    return None


def _matches(location: Directive, url: str) -> bool:
    *modifiers, path = location.arguments or [""]
    return url == path if modifiers == ["="] else modifiers in ([], ["^~"]) and url.startswith(path)


def _is_page(file: Path, place: Path) -> bool:
    is_page = file.is_absolute() and file.suffix in {".html", ".htm"} and ".." not in file.parts
    return is_page and "$" not in str(file) and place.is_file() and place.stat().st_size <= _LARGEST
