"""Patterns of URLs in RE2's syntax: to match any of them takes time linear in the URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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


def compiled(expression: str, *, soft: bool = False) -> Pattern:
    """The selector of responses in whose canonical URL `expression` is found.

    Raises ValueError for an expression that RE2 does not accept, and for more than 1,024 characters or 1,100
    of RE2's instructions. It is also raised without the extra `univocal[re2]`: Python's own `re` would let
    one pattern keep a processor busy for years.
    """
    try:
        import re2  # noqa: PLC0415  an extra
    except ImportError:
        raise ValueError("patterns need RE2: pip install 'univocal[re2]'") from None
    if not expression or len(expression) > LONGEST:
        raise ValueError(f"a pattern must have 1 to {LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    options.never_capture = True
    # Stubs of RE2, where they are installed, lack this name.
    options.encoding = re2.Options.Encoding.LATIN1  # type: ignore[attr-defined, unused-ignore]
    try:
        regexp = re2.compile(expression.encode("latin-1"), options)
    except UnicodeEncodeError:
        raise ValueError("a pattern must be ASCII, as canonical URLs are") from None
    except re2.error as error:
        raise ValueError(f"RE2 does not accept the pattern: {_text(error)}") from None
    steps: int = regexp.programsize
    if steps > INSTRUCTIONS:
        raise ValueError("the pattern takes too much memory: it has too many alternatives or repetitions")
    search: Callable[[bytes], object] = regexp.search
    most = STEPS // max(steps, 1)
    return Pattern(expression, lambda url: len(url) > most or search(url) is not None, soft, steps)


def _text(error: Exception) -> str:
    """RE2's complaint without what stands after a colon: bytes of the pattern, which are the client's."""
    message = error.args[0] if error.args else error
    text = message.decode("latin-1") if isinstance(message, bytes) else str(message)
    return text.partition(":")[0]
