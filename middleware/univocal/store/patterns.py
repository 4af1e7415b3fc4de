"""Patterns of URLs in RE2's syntax: to match any of them takes time linear in the URL."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from univocal.store.purge_selectors import Pattern

LONGEST: Final = 1024  # characters
# The most that RE2 may take for one pattern: bytes for its machines, and instructions. With what it takes
# beside, the worst of 8,000 patterns made at random took 68 KiB, after searches in URLs made to fill its
# memory.
MEMORY: Final = 64 << 10
INSTRUCTIONS: Final = 1_100
# Where that memory does not suffice, RE2 walks through all instructions for each byte, some 8 ns each: more
# steps than these are not taken, and the URL counts as found.
STEPS: Final = 1_000_000
_PORT: Final = re.compile(rb":[0-9]*\Z")


def compiled(expression: str, *, soft: bool = False) -> Pattern:
    """The selector of responses in whose canonical URL `expression` is found.

    One of two lines is a pattern for the host, and one for the path and query. Raises ValueError for an
    expression that RE2 does not accept, and for more than 1,024 characters or 1,100 of RE2's instructions. It
    is also raised without the extra `univocal[re2]`: Python's own `re` would let one pattern keep a processor
    busy for years.
    """
    try:
        import re2  # noqa: PLC0415  an extra
    except ImportError:
        raise ValueError("patterns need RE2: pip install 'univocal[re2]'") from None
    if not expression or len(expression) > LONGEST:
        raise ValueError(f"a pattern must have 1 to {LONGEST} characters")
    lines = expression.split("\n", 1)
    options = _options(MEMORY // len(lines))
    options.never_capture = True
    try:
        regexps = [re2.compile(line.encode("latin-1"), options) for line in lines]
    except UnicodeEncodeError:
        raise ValueError("a pattern must be ASCII, as canonical URLs are") from None
    except re2.error as error:
        raise ValueError(f"RE2 does not accept the pattern: {_text(error)}") from None
    steps = max(sum(regexp.programsize for regexp in regexps), 1)
    if steps > INSTRUCTIONS:
        raise ValueError("the pattern takes too much memory: it has too many alternatives or repetitions")
    searches: list[Callable[[bytes], object]] = [regexp.search for regexp in regexps]
    search = _in_parts(*searches) if len(searches) == 2 else searches[0]
    most = STEPS // steps
    return Pattern(expression, lambda url: len(url) > most or search(url) is not None, soft, steps)


def grouping(expression: str) -> Any:
    """RE2's object for an expression that `compiled` accepts, with its groups."""
    import re2  # noqa: PLC0415  an extra

    return re2.compile(expression.encode("latin-1"), _options(MEMORY))


def _options(memory: int) -> Any:
    import re2  # noqa: PLC0415  an extra

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    # Stubs of RE2, where they are installed, lack this name.
    options.encoding = re2.Options.Encoding.LATIN1  # type: ignore[attr-defined, unused-ignore]
    return options


def _in_parts(
    in_host: Callable[[bytes], object], in_target: Callable[[bytes], object]
) -> Callable[[bytes], object]:
    """A search for two patterns: in a URL's host, with its port or without, and in its path and query."""

    def search(url: bytes) -> object:
        authority, target = url.partition(b"://")[2].split(b"/", 1)
        if in_host(authority) is None and in_host(_PORT.sub(b"", authority)) is None:
            return None
        return in_target(b"/" + target)

    return search


def _text(error: Exception) -> str:
    """RE2's complaint without what stands after a colon: bytes of the pattern, which are the client's."""
    message = error.args[0] if error.args else error
    text = message.decode("latin-1") if isinstance(message, bytes) else str(message)
    return text.partition(":")[0]
