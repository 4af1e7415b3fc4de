"""Text for a terminal: columns, lines with their time, bytes that it does not obey, profiles as in files."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from univocal.http import errors

if TYPE_CHECKING:
    from univocal.uri.profile import Profile

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # a key without quotation marks


def table(rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two blanks apart."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def printable(octets: bytes) -> str:
    """Bytes as text that no terminal obeys: unprintable ones are escaped."""
    text = octets.decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def describe(profile: Profile) -> str:
    """A profile as a file that would make it, with everything that it extends written out."""
    lines = [f"# {profile.name}, digest {profile.digest.decode()}"]
    settings = profile.settings
    plain = {key: value for key, value in settings.items() if not _is_table(value) and key != "extends"}
    lines += [f"{key} = {written(value)}" for key, value in plain.items()]
    for name, value in settings.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {written(each)}" for key, each in value.items())]
        elif _is_table(value):
            for member in value:
                lines += ["", f"[[{name}]]", *(f"{key} = {written(each)}" for key, each in member.items())]
    return "\n".join(lines)


def _is_table(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Mapping)


def written(value: Any) -> str:
    """A value as TOML has it, in one line: tomli-w has each list in several, and writes no comments."""
    if isinstance(value, Mapping):
        members = ", ".join(f"{_key(str(key))} = {written(each)}" for key, each in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, bytes):
        value = value.decode()
    # TOML's integers and booleans are written as JSON's.
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    # A basic string of TOML is written as JSON's, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class StampedFormatter(logging.Formatter):
    """Writes each line of a record, those of a traceback included, with the record's time and level."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record."""
        return stamped(record.levelname, super().format(record), record.created)


def stamped(level: str, text: str, seconds: float | None = None) -> str:
    """Each line of `text` with a level and a time, in seconds since the epoch; without one it is now."""
    at = time.time() if seconds is None else seconds
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    before = f"{moment}.{int(at * 1000) % 1000:03d}Z {level} univocal: "
    return "\n".join(before + line for line in text.splitlines() or [""])


def version_text() -> str:
    """The program's name, its version, and whether the library is compiled or pure."""
    from importlib.metadata import version  # noqa: PLC0415 - slow, and for this alone

    form = "pure" if errors.__file__.endswith(".py") else "compiled"
    return f"univocal {version('univocal')} ({form})"
