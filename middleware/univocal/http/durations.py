"""Durations as settings have them: numbers of seconds, or texts with a unit."""

from __future__ import annotations

import re
from typing import Final

DURATIONS: Final = 'a number of seconds, or a text such as "500ms", "15s", "5m", "2h" or "1d"'

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TEXT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d)?")


def seconds(value: object) -> object:
    """The seconds that a text means: an int where they are whole. Any other value is returned as it is.

    Raises ValueError for a text that is no duration.
    """
    if not isinstance(value, str):
        return value
    match = _TEXT.fullmatch(value)
    if match is None:
        raise ValueError(DURATIONS)
    number = float(match[1]) * _UNITS[match[2] or "s"]
    return int(number) if number.is_integer() else number
