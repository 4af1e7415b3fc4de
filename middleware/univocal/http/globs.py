"""Globs on bytes: "*" stands for any bytes, none included, and "?" for one."""

from __future__ import annotations

import re
from collections.abc import Iterable


def compile_globs(globs: Iterable[bytes]) -> re.Pattern[bytes] | None:
    """One expression whose full match is a match of any of `globs`; None without any.

    Each piece between stars matches at its first place, without backtracking: an attacker's text costs no
    more than another.
    """
    alternatives = []
    for glob in globs:
        start, *rest = (re.escape(piece).replace(rb"\?", b".") for piece in glob.split(b"*"))
        middle = b"".join(b"(?>.*?%b)" % piece for piece in rest[:-1])
        alternatives.append(b"%b%b.*%b" % (start, middle, rest[-1]) if rest else start)
    return re.compile(b"|".join(alternatives), re.DOTALL) if alternatives else None
