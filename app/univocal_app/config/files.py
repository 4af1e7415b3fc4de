"""univocal.toml and the files that it includes: one mapping, of which each key has its place and its line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from univocal.http.errors import ConfigurationError, Objections
from univocal_app.config.values import MASK, SECRETS

# How tomllib ends its messages: "(at line 2, column 10)" or "(at end of document)".
_PLACE: Final = re.compile(r" \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$")
_TOO_LARGE: Final = "an integer has at most 64 bits"
_NAMES: Final = re.compile(r"\('([^()]*)',?\)")
# The first header of a site, or of a part of it.
_SITES: Final = re.compile(r"(?m)^[ \t]*\[+[ \t]*sites[ \t]*(\.)?")
_BETWEEN: Final = "', '"
_IN_A_SITE: Final = re.compile(r"sites\[([0-9]+)\](.*)", re.DOTALL)
# "$${" is a literal "${"; "${" that no name follows is a mistake.
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{[^}]*\}?")


class _Included(NamedTuple):
    """An included file, and which of all sites are its own."""

    file: Path
    first: int
    number: int  # of them


@dataclass(frozen=True)
class Files:
    """A configuration file with those that it includes."""

    main: Path
    settings: dict[str, Any]  # of all of them; the sites of included files follow those of the main file
    included: tuple[_Included, ...]
    # Strings with variables, before these are filled in.
    written: Mapping[KeyPath, str] = field(default_factory=dict)

    @classmethod
    def read(cls, main: Path, environ: Mapping[str, str] = os.environ) -> Files:
        """Read `main` and what it includes; `${NAME}` in a string is the variable of `environ`.

        Raises ConfigurationError with every mistake, each with its file and line.
        """
        objections, included = Objections(), list[_Included]()
        settings, written = _table(main, environ)
        sites = settings.get("sites", [])
        for file in _named(settings.get("include"), main, objections, written):
            with objections:
                own, theirs = _sites_of(file, environ)
                if isinstance(sites, list):
                    included.append(_Included(file, len(sites), len(own)))
                    for (_, number, *path), text in theirs.items():
                        written["sites", len(sites) + int(number), *path] = text
                    sites = [*sites, *own]
        objections.conclude()
        return cls(main, {**settings, "sites": sites} if sites else settings, tuple(included), written)

    def place(self, key: str) -> tuple[Path, str]:
        """The file in which a setting stands, and its dotted key there."""
        match = _IN_A_SITE.fullmatch(key)
        number = int(match[1]) if match is not None else -1
        for file, first, length in self.included:
            if match is not None and first <= number < first + length:
                return file, f"sites[{number - first}]{match[2]}"
        return self.main, key


def parsed(file: Path) -> dict[str, Any]:
    """The settings of a file and of those that it includes, not yet validated. Raises ConfigurationError."""
    return Files.read(file).settings


def placed_in(error: ConfigurationError, files: Files) -> None:
    """Add its line to an error; add the file to an error about a key of `files`."""
    if error.key and not error.line:
        if error.source == str(files.main):
            _hide(error, files)
            file, error.key = files.place(error.key)
            error.source = str(file)
        _lined(error)


def _lined(error: ConfigurationError) -> ConfigurationError:
    with suppress(OSError, ValueError):
        error.line = line_of(Path(error.source).read_text("utf-8-sig"), error.key)
    return error


def _hide(error: ConfigurationError, files: Files) -> None:
    """Show variables by their names in an error, and no value of a field that is set."""
    key = path_of(error.key)
    for path, text in files.written.items():
        if all(one == other for one, other in zip(path, key, strict=False)):
            _replace(error, _at(files.settings, path), text)
    for place, (table, part) in enumerate(pairwise(key)):
        if part in SECRETS.get(str(table), ()):
            for value in _texts(_at(files.settings, key[: place + 3])):
                _replace(error, value, MASK)


def _replace(error: ConfigurationError, value: object, text: str) -> None:
    if isinstance(value, str) and value:
        error.found = _replaced(error.found, value, text)
        for old, new in ((value, text), (repr(value)[1:-1], repr(text)[1:-1])):
            error.mistake = error.mistake.replace(old, new)
            error.allowed = error.allowed.replace(old, new)


def _replaced(found: object, value: str, text: str) -> object:
    match found:
        case str():  # which may be a part of the value
            return text if found and found in value else found.replace(value, text)
        case dict():
            return {name: _replaced(each, value, text) for name, each in found.items()}
        case list() | tuple():
            return [_replaced(each, value, text) for each in found]
    return found


def _at(settings: Any, path: KeyPath) -> Any:
    for part in path:
        try:
            settings = settings[part]
        except (KeyError, IndexError, TypeError):
            return None
    return settings


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _table(file: Path, environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The settings of one file with its variables filled in, and the strings with variables as written."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason, allowed = "bytes that are not UTF-8", "a readable TOML file in UTF-8"
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        why = f"the file cannot be read by user {os.geteuid()}: {reason}"
        mistake = why if isinstance(error, PermissionError) else ""
        raise ConfigurationError(str(file), "", reason, allowed, mistake) from None
    try:
        settings = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _invalid(file, text, str(error)) from None
    except ValueError:  # more digits than Python reads
        raise ConfigurationError(str(file), "", "", "TOML", f"invalid TOML: {_TOO_LARGE}") from None
    variables = _Variables(str(file), environ)
    filled = variables.filled(settings)
    variables.objections.errors = [*map(_lined, variables.objections.errors)]
    variables.objections.conclude()
    return filled, variables.written


def _invalid(file: Path, text: str, message: str) -> ConfigurationError:
    """The mistake that the parser names, in few words: it says where at its end."""
    first = _SITES.search(text)
    if first is not None and first[1]:
        mistake = "`[[sites.routes]]` and the like belong behind the `[[sites]]` that they are part of"
        error = ConfigurationError(str(file), "", message, "TOML", f"before the first `[[sites]]`: {mistake}")
        error.line = text[: first.start()].count("\n") + 1
        return error
    place = _PLACE.search(message)
    detail = message[: place.start()] if place else message
    detail = detail.replace("newline or end of document after a statement", "a newline")
    detail = _NAMES.sub(lambda names: f"`{names[1].replace(_BETWEEN, '.')}`", detail)  # a tuple's repr
    mistake = f"invalid TOML: {detail[:1].lower()}{detail[1:]}"
    error = ConfigurationError(str(file), "", message, "TOML", mistake)
    lines = text.splitlines() or [""]
    error.line = int(place[1]) if place and place[1] else len(lines)
    error.column = int(place[2]) if place and place[2] else len(lines[-1]) + 1
    return error


@dataclass(frozen=True)
class _Variables:
    """The environment's variables in the place of their names; a string that names some is `written` down."""

    source: str
    environ: Mapping[str, str]
    objections: Objections = field(default_factory=Objections)
    written: dict[KeyPath, str] = field(default_factory=dict)

    def filled(self, value: Any, path: KeyPath = ()) -> Any:
        """A value, which is at this place, with what its variables hold."""
        if mistake := _impossible(value):
            self.objections.errors.append(ConfigurationError(self.source, dotted(path), "", "", mistake))
        match value:
            case dict():
                return {name: self.filled(each, (*path, name)) for name, each in value.items()}
            case list():
                return [self.filled(each, (*path, number)) for number, each in enumerate(value)]
            case str() if "${" in value:
                self.written[path] = value
                return _VARIABLE.sub(lambda match: self._of(match, path), value)
        return value

    def _of(self, match: re.Match[str], path: KeyPath) -> str:
        text, name = match[0], match[1]
        if text == "$${":
            return "${"
        if name is not None and name in self.environ:
            return self.environ[name]
        mistake = f"the environment has no variable `{name}`"
        if not name:
            mistake = f"{text!r} names no variable of the environment"
        mistake = f"{mistake}; a literal `${{` is written `$${{`"
        allowed = "the name of a variable that is set"
        self.objections.errors.append(ConfigurationError(self.source, dotted(path), text, allowed, mistake))
        return ""


def _impossible(value: object) -> str:
    """The mistake in a value that no setting has; "" if there is none."""
    match value:
        case int() if not -(2**63) <= value < 2**63:
            return _TOO_LARGE
        case str() if "\0" in value:  # such as the name of a file, for which the system has no error
            return "a text cannot have the character U+0000"
    return ""


def _named(
    patterns: object, main: Path, objections: Objections, written: Mapping[KeyPath, str]
) -> list[Path]:
    """The included files, each once, in the order of the patterns; of one pattern in that of their names."""
    files = dict[Path, None]()
    for number, pattern in enumerate(patterns if isinstance(patterns, list) else []):
        if not isinstance(pattern, str):
            continue  # it is refused with the other settings
        if any(character in pattern for character in "*?["):
            names = sorted(glob(pattern, root_dir=main.parent, recursive=True))
        else:
            names = [pattern]
        for name in names:
            file = main.parent / name
            if not file.exists():
                allowed = "a file that exists; a pattern such as `sites/*.toml` may match none"
                found = written.get(("include", number), pattern)
                error = ConfigurationError(str(main), f"include[{number}]", found, allowed)
                objections.errors.append(_lined(error))
            elif file.resolve() != main.resolve():
                files[file] = None
    return list(files)


def _sites_of(file: Path, environ: Mapping[str, str]) -> tuple[list[Any], dict[KeyPath, str]]:
    """The sites of an included file, which holds nothing else, and its strings with variables.

    Raises ConfigurationError.
    """
    (settings, written), objections = _table(file, environ), Objections()
    for key, value in settings.items():
        is_sites = key == "sites"
        if is_sites and isinstance(value, list):
            continue
        mistake = (
            "`[sites]` is one table, and there may be several: write `[[sites]]`"
            if is_sites
            else f"an included file holds [[sites]] alone; `{key}` belongs in the file that includes it"
        )
        objections.errors.append(_lined(ConfigurationError(str(file), key, value, "[[sites]]", mistake)))
    objections.conclude()
    return list(settings.get("sites", [])), written


KeyPath: TypeAlias = tuple[str | int, ...]

_PART: Final = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")
LONGEST: Final = 1000  # lines of one value

# Stands in for what others need to be judged by themselves; no two are one host or one prefix.
_NEEDED: Final[Mapping[str, Callable[[int], object]]] = {
    "hosts": lambda number: [f"substitute-{number}.invalid"],
    "upstream": lambda _: "http://127.0.0.1",
    "url": lambda _: "http://127.0.0.1",
    "path": lambda number: f"/substitute-{number}/",
    "sites": lambda _: [{"hosts": ["substitute.invalid"], "upstream": "http://127.0.0.1"}],
}


def line_of(text: str, key: str) -> int:
    """The line, from 1, on which the setting `key` begins, or the nearest table around it; 0 for none.

    `text` is TOML that the parser takes.
    """
    steps, best, begin = path_of(key), 0, 0
    for line, path in _statements(text):
        common = min(len(path), len(steps))
        if path[:common] == steps[:common] and common > best:
            best, begin = common, line
    return begin


def substituted(settings: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A copy of `settings` with nothing, or something harmless, in place of what `keys` lead to."""
    rest: dict[str, Any] = deepcopy(dict(settings))
    for number, key in enumerate(keys):
        table: Any = rest
        holder, name = rest, ""
        for part in path_of(key):
            if isinstance(part, str) and isinstance(table, dict):
                holder, name = table, part
            try:
                table = table[part]
            except (KeyError, IndexError, TypeError):
                break
        holder.pop(name, None)
        if name in _NEEDED:
            holder[name] = _NEEDED[name](number)
    return rest


def path_of(key: str) -> KeyPath:
    """The names and numbers of a dotted key."""
    return tuple(int(number) if number else name for number, name in _PART.findall(key))


def dotted(location: tuple[str | int, ...]) -> str:
    """A place in the file as its reader writes it: `sites[0].routes[1].path`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location if part != "[key]")
    return "".join(parts).removeprefix(".")


def _statements(text: str) -> Iterator[tuple[int, KeyPath]]:
    """Each header and each `key = value` with the line on which it begins and the whole path it names.

    TOML is a sequence of statements that can be parsed one by one: the parser says where each ends.
    """
    lines, number = text.split("\n"), 0
    table: KeyPath = ()
    counts = dict[KeyPath, int]()
    while number < len(lines):
        begun, statement = number, ""
        parsed: dict[str, Any] | None = None
        while parsed is None and number < min(len(lines), begun + LONGEST):
            statement += lines[number] + "\n"
            number += 1
            try:
                parsed = tomllib.loads(statement)
            except tomllib.TOMLDecodeError:
                continue
        if not parsed:
            continue
        names = _names(parsed)
        if statement.lstrip().startswith("["):
            table = _header(names, statement.lstrip().startswith("[["), counts)
            yield begun + 1, table
        else:
            yield from ((begun + 1, (*table, *names[:depth])) for depth in range(1, len(names) + 1))


def _header(names: tuple[str, ...], is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """The path of a header; `counts` knows how many tables each array of tables has so far."""
    path: KeyPath = ()
    for depth, name in enumerate(names, 1):
        path += (name,)
        if is_array and depth == len(names):
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path += (counts[path] - 1,)
    return path


def _names(parsed: dict[str, Any]) -> tuple[str, ...]:
    """The dotted name that a statement begins with: the parser makes a table of one member for each part."""
    names = list[str]()
    value: Any = parsed
    while isinstance(value, dict) and len(value) == 1:
        ((name, value),) = value.items()
        names.append(name)
    return tuple(names)
