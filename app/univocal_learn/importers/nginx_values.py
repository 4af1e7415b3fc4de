"""nginx's values as univocal's: durations and sizes."""

from __future__ import annotations

import re
from typing import Final

from univocal_learn.importers.nginx_syntax import Directive

_SECONDS: Final = {
    "ms": 0.001,
    "": 1.0,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "M": 2592000.0,
    "y": 31536000.0,
}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|[smhdwMy]|)")
LARGEST_BODY: Final = 1 << 20  # bytes, nginx's default
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,12})([kmg]?)")


def duration(text: str) -> float | None:
    """The seconds of a time such as "1m30s"; None for a text that is none."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def body_size(directive: Directive | None) -> int:
    """The bytes of client_max_body_size, 0 for no limit; nginx's default without a value that is one."""
    match = _SIZE.fullmatch("".join(directive.arguments).lower()) if directive is not None else None
    return LARGEST_BODY if match is None else int(match[1]) * _BYTES[match[2]]
