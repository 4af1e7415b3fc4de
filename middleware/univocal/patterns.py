"""Patterns of URLs in RE2's syntax, whose matching takes time linear in the URL, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable

from .cache.selectors import Pattern

__all__ = ["compiled"]

LONGEST = 1024  # characters
MEMORY = 1 << 20  # octets that one compiled pattern may take


def compiled(expression: str, *, soft: bool = False) -> Pattern:
    """The selector of responses in whose canonical URL `expression` is found.

    Raises ValueError for what RE2 does not accept, for more than 1,024 characters, and where the extra
    `univocal[re2]` is not installed: Python's own `re` would let one pattern keep a processor busy for years.
    """
    try:
        import re2  # noqa: PLC0415  an extra
    except ImportError:
        raise ValueError("patterns need RE2: pip install 'univocal[re2]'") from None
    if not expression or len(expression) > LONGEST:
        raise ValueError(f"a pattern has 1 to {LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        search: Callable[[bytes], object] = re2.compile(expression.encode("latin-1"), options).search
    except UnicodeEncodeError:
        raise ValueError("a pattern is ASCII, as canonical URLs are") from None
    except re2.error as error:
        raise ValueError(f"RE2 does not accept the pattern: {_text(error)}") from None
    return Pattern(expression, lambda url: search(url) is not None, soft)


def _text(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode("latin-1") if isinstance(said, bytes) else str(said)
