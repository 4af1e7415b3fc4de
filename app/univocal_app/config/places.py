"""A setting's place in a TOML file: its dotted key leads to a line, and to the table that holds it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias

Place: TypeAlias = tuple[str | int, ...]

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


def path_of(key: str) -> Place:
    """The names and numbers of a dotted key."""
    return tuple(int(number) if number else name for number, name in _PART.findall(key))


def dotted(location: tuple[str | int, ...]) -> str:
    """A place in the file as its reader writes it: `sites[0].routes[1].path`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location if part != "[key]")
    return "".join(parts).removeprefix(".")


def _statements(text: str) -> Iterator[tuple[int, Place]]:
    """Each header and each `key = value` with the line on which it begins and the whole path it names.

    TOML is a sequence of statements that can be parsed one by one: the parser says where each ends.
    """
    lines, number = text.split("\n"), 0
    table: Place = ()
    counts = dict[Place, int]()
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


def _header(names: tuple[str, ...], is_array: bool, counts: dict[Place, int]) -> Place:
    """The path of a header; `counts` knows how many tables each array of tables has so far."""
    path: Place = ()
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
