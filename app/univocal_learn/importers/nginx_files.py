"""The files of an nginx.conf: those that it includes, or that `nginx -T` prints one after another."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from univocal_learn.importers.imported import Source, text_of, words_of
from univocal_learn.importers.nginx_directives import HARMLESS_FILES, TABLE, changes_query, closes
from univocal_learn.importers.nginx_syntax import Directive, parse

LARGEST: Final = 2**20  # bytes of a file that is included
MOST_FILES: Final = 1000
_DEEPEST: Final = 16  # files that include one another

# The line that `nginx -T` writes before each file.
_HEADER: Final = re.compile(r"^# configuration file (/.*):$", re.MULTILINE)
# Nothing but comments, and what nginx says of its test, stands before the first of them.
_BEFORE: Final = re.compile(r"(?:(?:nginx:.*|[ \t]*(?:\#.*)?)\n)*")
_HOMES: Final = ("/etc/nginx", "/usr/local/etc/nginx", "/usr/local/nginx/conf", "/opt/nginx/conf")
_GLOB: Final = re.compile(r"[*?\[]")
# Directives that name a file, which is found as those are that are included.
_FILES: Final = words_of(TABLE["directives"]["of_files"])
# The directives that distributions have in the files of HARMLESS_FILES.
_DISTRIBUTED: Final = words_of(TABLE["directives"]["distributed"])
# Debian's file of this name: what it sets, where it is not there to be read.
_PROXY_PARAMS: Final = re.compile(r"(?:.*/)?proxy_params")
_DEBIANS: Final = "proxy_set_header Host $http_host; proxy_set_header X-Real-IP $remote_addr;"


@dataclass(slots=True)
class _Files:
    """The files that are read so far; `dumped` are those of one text, by their paths."""

    source: Source
    dumped: Mapping[str, str]
    read: int = 0
    open: list[str] = field(default_factory=list)

    def included(self, directives: list[Directive], own: str) -> list[Directive]:
        """The directives with those of included files in the place of each `include` that can be read."""
        made: list[Directive] = []
        for each in directives:
            if each.name == "include" and len(each.arguments) == 1:
                made += self._contents(each, own)
            else:
                if each.name in _FILES and each.arguments:
                    each.arguments = [self._absolute(each.arguments[0], own), *each.arguments[1:]]
                if not each.name.startswith(("map", "geo", "types", "split_clients")):
                    each.block = self.included(each.block, own)
                made.append(each)
        return made

    def _absolute(self, name: str, own: str) -> str:
        """The path of a file that a directive names, where it is here; else its name."""
        found = [] if self.dumped or "$" in name or _GLOB.search(name) else self._found(name, own)
        return str(Path(found[0]).absolute()) if found else name

    def _contents(self, include: Directive, own: str) -> list[Directive]:
        found = self._found(include.arguments[0], own)
        if found is None:
            if _PROXY_PARAMS.fullmatch(include.arguments[0]):
                known = parse(Source("proxy_params", _DEBIANS))
                return [replace(each, line=include.line, file=include.file) for each in known]
            return [include]
        is_known = HARMLESS_FILES.fullmatch(include.arguments[0]) is not None
        made: list[Directive] = []
        for path in found:
            text = self._text(path)
            if text is None or path in self.open or len(self.open) >= _DEEPEST:
                return [include]
            self.open.append(path)
            inner = parse(Source(path, text), file=path)
            made += self.included(inner, path)
            self.open.pop()
        # A user may have added guards to such a file, or given its name to another file.
        return [include] if is_known and all(map(_is_distributed, made)) else made

    def _found(self, name: str, own: str) -> list[str] | None:
        """The files that an include means, in order; None: they are not here."""
        if "\0" in name or "\\" in name or "[:" in name:
            return None  # no file has the first; escapes and classes of letters are of glob(3) alone
        name = name.replace("[^", "[!")
        is_glob = _GLOB.search(name) is not None
        if self.dumped:
            whole = name if name.startswith("/") else f"{next(iter(self.dumped)).rpartition('/')[0]}/{name}"
            dumped = sorted(each for each in self.dumped if _is_of(each, whole))
            return dumped if dumped or is_glob else None
        is_there = False
        for home, rest in self._places(name, own):
            here = (home / each for each in glob.glob(rest, root_dir=home))
            if matching_files := sorted(str(each) for each in here if each.is_file()):
                return matching_files
            is_there = is_there or (is_glob and (home / rest).parent.is_dir())
        return [] if is_there else None

    def _places(self, name: str, own: str) -> Iterator[tuple[Path, str]]:
        """The directories in which files of a name may be, and the name there."""
        root, main = self.source.root, Path(self.source.name).parent
        if not name.startswith("/"):
            homes = [] if root is None else [root, *(root / home[1:] for home in _HOMES)]
            yield from ((home, name) for home in (*homes, main, Path(own).parent, main.parent))
            return
        yield Path("/") if root is None else root, name[1:]
        for home in _HOMES:
            if root is not None and name.startswith(home + "/"):
                yield root, name.removeprefix(home + "/")

    def _text(self, path: str) -> str | None:
        """The text of a file; None for one that cannot be read, or of a size that no configuration has."""
        if path in self.dumped:
            return self.dumped[path]
        self.read += 1
        if self.read > MOST_FILES:
            return None
        try:
            with open(path, "rb") as opened:
                octets = opened.read(LARGEST + 1)
        except OSError:
            return None
        return text_of(octets) if len(octets) <= LARGEST else None


def _is_of(path: str, pattern: str) -> bool:
    """Tell whether a path matches a glob, of which "*" crosses no slash."""
    names, globs = path.split("/"), pattern.split("/")
    return len(names) == len(globs) and all(map(fnmatch.fnmatchcase, names, globs))


def directives_of(source: Source) -> list[Directive]:
    """The directives of a file and of all that it includes, as far as they can be read.

    An `include` that cannot stays one directive. Raises ConfigurationError.
    """
    dumped = _dumped(source.text)
    if not dumped:
        return _Files(source, {}).included(parse(source), source.name)
    main = next(iter(dumped))
    files = _Files(source, dumped)
    return files.included(parse(Source(main, dumped[main]), file=main), main)


def _dumped(text: str) -> dict[str, str]:
    """The files of a dump by their paths, the first of which includes the others; empty if it is none."""
    headers = list(_HEADER.finditer(text))
    if headers and not _BEFORE.fullmatch(text, 0, headers[0].start()):
        headers = []  # comments of a file
    ends = [*(each.start() for each in headers[1:]), len(text)]
    return {each[1]: text[each.end() : end] for each, end in zip(headers, ends, strict=False)}


def _is_distributed(directive: Directive) -> bool:
    if directive.name == "include":
        return not closes(directive)
    return directive.name in _DISTRIBUTED and not changes_query(directive)
