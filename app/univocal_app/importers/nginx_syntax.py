"""nginx's configuration as directives: words, `;`, blocks, comments and quotes, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from univocal_app.importers.imported import Source

__all__ = ["Directive", "parse"]

_TOKEN: Final = re.compile(
    r"""\#[^\n]*|(?P<end>[;{}])"""
    r"""|"(?P<double>(?:[^"\\]|\\.)*+)(?P<closed>"?)|'(?P<single>(?:[^'\\]|\\.)*+)(?P<shut>'?)"""
    r"""|(?P<word>(?:\$\{|\\.|[^\s;{}\\])(?:\$\{\w*\}|\\.|[^\s;{\\])*)""",
    re.DOTALL,
)
_QUOTED: Final = re.compile(r"""\\(["'\\])""")
_DEEPEST: Final = 16


@dataclass(slots=True)
class Directive:
    """A name, its arguments without quotation marks, and what stands between its braces, if anything."""

    name: str
    arguments: list[str]
    line: int
    block: list[Directive] | None = None

    @property
    def is_host_field(self) -> bool:
        """True if it sets the Host field of requests."""
        return self.name == "proxy_set_header" and [each.lower() for each in self.arguments[:-1]] == ["host"]

    def written(self) -> str:
        """The directive on one line, shortened."""
        text = " ".join([self.name, *self.arguments])
        return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(slots=True)
class _Open:
    directive: Directive
    inside: list[Directive] = field(default_factory=list)


def parse(source: Source) -> list[Directive]:
    """The directives of a fragment, which may stand at any depth. Raises ConfigurationError."""
    stack = [_Open(Directive("", [], 0))]
    words: list[str] = []
    begun = 0
    for line, mark, word in _tokens(source):
        if not mark:
            begun = begun if words else line
            words.append(word)
        elif mark == "}":
            _close(source, stack, words, line)
        elif not words:
            raise source.error(line, f"{mark!r} without a directive before it", "a directive of nginx")
        else:
            directive = Directive(words[0], words[1:], begun)
            stack[-1].inside.append(directive)
            if mark == "{":
                directive.block = []
                stack.append(_Open(directive, directive.block))
            words = []
        if len(stack) > _DEEPEST:
            raise source.error(line, f"blocks {_DEEPEST} deep", "fewer blocks inside one another")
    if words or len(stack) > 1:
        line, found = (begun, words[0]) if words else (stack[-1].directive.line, stack[-1].directive.name)
        raise source.error(line, found, "a directive that ends with ';', or a block that ends with '}'")
    return stack[0].inside


def _close(source: Source, stack: list[_Open], words: list[str], line: int) -> None:
    if words:
        raise source.error(line, f"'}}' after {words[0]!r}", "a ';' before it")
    if len(stack) == 1:
        raise source.error(line, "'}' without a block", "a '}' for each '{'")
    stack.pop()


def _tokens(source: Source) -> Iterator[tuple[int, str, str]]:
    """The line, `;`, `{` or `}` if it is one of them, and else a word."""
    line, counted = 1, 0
    for token in _TOKEN.finditer(source.text):
        line, counted = line + source.text.count("\n", counted, token.start()), token.start()
        double, single, word = token["double"], token["single"], token["word"]
        if (double is not None and not token["closed"]) or (single is not None and not token["shut"]):
            raise source.error(line, "a quotation mark that nothing closes", "words of nginx's configuration")
        if token["end"]:
            yield line, token["end"], ""
        elif double is not None or single is not None:
            yield line, "", _QUOTED.sub(r"\1", double if double is not None else single)
        elif word is not None:
            yield line, "", word
