"""nginx's pages of errors by the names that univocal has for them, where their files are here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from univocal.http.problem import page_fault
from univocal_learn.importers.imported import Notes
from univocal_learn.importers.nginx_directives import CONTENT, leading
from univocal_learn.importers.nginx_syntax import Directive, find, within

_LEFT_OUT: Final = "left out: see [server] error_pages"
_LARGEST: Final = 1 << 20  # bytes of a page


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
