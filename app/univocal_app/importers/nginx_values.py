"""nginx's values as univocal's: durations and sizes."""

from __future__ import annotations

import re
from typing import Final

from univocal_app.importers.nginx_settings import SETTINGS
from univocal_app.importers.nginx_syntax import Directive

__all__ = ["READ_ELSEWHERE", "body_size", "read_timeout"]

# Directives that are taken over, wherever they stand.
READ_ELSEWHERE: Final = SETTINGS | {"proxy_read_timeout", "client_max_body_size"}

_SECONDS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|)")
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,12})([kmg]?)")


def read_timeout(block: list[Directive], inherited: float | None) -> float | None:
    """The seconds of proxy_read_timeout in a block, or what it inherits; None if no block sets it."""
    for directive in block:
        if directive.name == "proxy_read_timeout":
            parts = _DURATION.findall("".join(directive.arguments))
            if parts and "".join(number + unit for number, unit in parts) == "".join(directive.arguments):
                inherited = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    return inherited


def body_size(directive: Directive) -> int | None:
    """The bytes of client_max_body_size, 0 for no limit; None for a value that is none."""
    match = _SIZE.fullmatch("".join(directive.arguments).lower())
    return None if match is None else int(match[1]) * _BYTES[match[2]]
