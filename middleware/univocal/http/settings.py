"""Settings of files: each field of a class has its default, and the function that reads its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, Final, NamedTuple

DURATIONS: Final = 'a number of seconds, or a text such as "500ms", "15s", "5m", "2h" or "1d"'

_TIMES: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d)?")
_SIZES: Final = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SIZE: Final = re.compile(r"([0-9]{1,15})(?: ?(B|[kMG]B|[KMG]iB))?")


class SettingError(ValueError):
    """A setting cannot be: the place within its value ("": all of it), the value there, what may be."""

    def __init__(self, place: str, value: object, allowed: str) -> None:
        super().__init__(allowed)
        self.place, self.value, self.allowed = place, value, allowed


class Setting(NamedTuple):
    """A setting that files may have: its default as they write it, and what reads its value.

    Reading raises ValueError, which says what is allowed. The default None stands for no value, and `...`
    for a setting that has to be there.
    """

    default: Any
    read: Callable[[object], Any]
    key: str = ""  # its name in files, where the field has another
    keeps: bool = False  # it is shown as the file has it, and not as it is read

    def field(self) -> Any:
        """A dataclass's field that has this setting."""
        metadata = {"setting": self}
        if self.default is ...:
            return field(metadata=metadata)
        value = self.default if self.default is None else self.read(self.default)
        if isinstance(value, dict):
            return field(default_factory=value.copy, metadata=metadata)
        return field(default=value, metadata=metadata)


def setting(default: Any, read: Callable[[object], Any], key: str = "", *, keeps: bool = False) -> Any:
    """A dataclass's field that files set: `read` makes its value of a file's, as Setting has it."""
    return Setting(default, read, key, keeps).field()


def settings_in(kind: type[Any]) -> Mapping[str, Setting]:
    """The settings of a dataclass by the names of its fields."""
    named = {each.name: each.metadata["setting"] for each in fields(kind) if "setting" in each.metadata}
    return {name: setting._replace(key=setting.key or name) for name, setting in named.items()}


def seconds(value: object) -> object:
    """The seconds that a text means: an int where they are whole. Any other value is returned as it is.

    Raises ValueError for a text that is no duration.
    """
    if not isinstance(value, str):
        return value
    match = _TIME.fullmatch(value)
    if match is None:
        raise ValueError(DURATIONS)
    number = float(match[1]) * _TIMES[match[2] or "s"]
    return int(number) if number.is_integer() else number


def number(value: object) -> float:
    """A number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number")
    if not value >= 0:
        raise ValueError("greater than or equal to 0")
    if value == float("inf"):
        raise ValueError("a finite number")
    return float(value)


def duration(value: object) -> float:
    """Seconds, more than 0."""
    given = seconds(value)
    if given == 0 or (isinstance(given, int | float) and given < 0):
        raise ValueError("greater than 0")
    return number(given)


def duration_or_none(value: object) -> float:
    """Seconds; 0 where there is no such time."""
    return number(seconds(value))


def size(value: object) -> int:
    """Bytes from a number, or from a text with a unit."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * _SIZES[match[2] or ""]
    raise ValueError('a number of bytes, or a text such as "256 MiB" (units: B, kB, MB, GB, KiB, MiB, GiB)')


def count(value: object, least: int = 0) -> int:
    """An integer that is `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("an integer")
    if value < least:
        raise ValueError(f"greater than or equal to {least}")
    return value


def positive(value: object) -> int:
    """An integer that is more than 0."""
    return count(value, 1)


def flag(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise SettingError("", value, "true or false")


def one_of(*choices: str) -> Callable[[object], str]:
    """One of some texts."""

    def one(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        *others, last = map(repr, choices)
        raise SettingError("", value, f"{', '.join(others)} or {last}")

    return one


def texts(value: object) -> tuple[str, ...]:
    """An array of texts."""
    if not isinstance(value, list):
        raise SettingError("", value, "an array")
    for place, text in enumerate(value):
        if not isinstance(text, str):
            raise SettingError(f"[{place}]", text, "a text")
    return tuple(value)
