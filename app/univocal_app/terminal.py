"""Text for a terminal: columns, octets that it does not obey, and profiles as their files have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from univocal.uri.profile import Profile

__all__ = ["describe", "printable", "table", "written"]


def table(rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two blanks apart."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def printable(octets: bytes) -> str:
    """Octets as text that no terminal obeys: unprintable ones are escaped."""
    text = octets.decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def describe(profile: Profile) -> str:
    """A profile as a file that would make it, with everything that it extends written out."""
    lines = [f"# {profile.name}, digest {profile.digest.decode()}"]
    plain = {
        key: value for key, value in profile.settings.items() if not _is_table(value) and key != "extends"
    }
    lines += [f"{key} = {written(value)}" for key, value in plain.items()]
    for name, value in profile.settings.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {written(each)}" for key, each in value.items())]
        elif _is_table(value):
            for member in value:
                lines += ["", f"[[{name}]]", *(f"{key} = {written(each)}" for key, each in member.items())]
    return "\n".join(lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    )


def written(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{json.dumps(str(key))} = {written(each)}" for key, each in value.items())
            + " }"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, bytes):
        value = value.decode()
    # TOML's basic strings, integers and booleans are written as JSON's.
    return json.dumps(value, ensure_ascii=False)
