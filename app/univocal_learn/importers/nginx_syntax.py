"""nginx's configuration as directives: words, `;`, blocks, comments and quotes, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from univocal_learn.importers.imported import Source, words_of

_TOKEN: Final = re.compile(
    r"""\#[^\n]*|(?P<end>[;{}])"""
    r"""|"(?P<double>(?>(?:[^"\\]|\\.)*))(?P<closed>"?)|'(?P<single>(?>(?:[^'\\]|\\.)*))(?P<shut>'?)"""
    r"""|(?P<word>(?:\$\{|\\.|[^ \t\r\n;{}\\])(?:\$\{\w*\}|\\.|[^ \t\r\n;{\\])*)""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"""\\(["'\\trn])""")
_LETTERS: Final = {"t": "\t", "r": "\r", "n": "\n"}  # that nginx has escapes for, in any word
_DEEPEST: Final = 16
# A block of Lua holds no directives: it ends with the brace that no string or comment of Lua has.
_LUA: Final = "_by_lua_block"
_LUA_TOKEN: Final = re.compile(
    r"""--\[(=*)\[.*?(?:\]\1\]|\Z)|--[^\n]*|\[(=*)\[.*?(?:\]\2\]|\Z)"""
    r"""|"(?>(?:[^"\\\n]|\\.)*)"?|'(?>(?:[^'\\\n]|\\.)*)'?|(?P<brace>[{}])""",
    re.DOTALL,
)

# Directives that are "on" or "off" in any case.
_FLAGS: Final = words_of("""
brotli gzip http2 ignore_invalid_headers limit_conn_dry_run limit_req_dry_run merge_slashes proxy_ssl_verify
real_ip_recursive ssl underscores_in_headers zstd
""")

_UNITS: Final = ("ms", "", "s", "m", "h", "d", "w", "M", "y")
_SECONDS: Final = dict(zip(_UNITS, (0.001, 1, 1, 60, 3600, 86400, 604800, 2592000, 31536000), strict=True))
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|[smhdwMy]|)")
LARGEST_BODY: Final = 1 << 20  # bytes, nginx's default
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,12})([kmg]?)")


@dataclass(slots=True)
class Directive:
    """A name, its arguments without quotation marks, and what stands between its braces, if anything."""

    name: str
    arguments: list[str]
    line: int
    block: list[Directive] = field(default_factory=list)
    file: str = ""  # that it was included from; "": the file that is imported
    meaning: str = ""  # the directives of the file that it stands for

    @property
    def first(self) -> str:
        """Its first argument; empty for none."""
        return self.arguments[0] if self.arguments else ""

    @property
    def pair(self) -> tuple[str, str]:
        """Its first two arguments: a name and a value; each empty for none."""
        name, value = [*self.arguments, "", ""][:2]
        return name, value

    @property
    def is_host_field(self) -> bool:
        """True if it sets the Host field of requests."""
        return self.name == "proxy_set_header" and [each.lower() for each in self.arguments[:-1]] == ["host"]

    @property
    def title(self) -> str:
        """The directive on one line, shortened."""
        text = self.meaning or " ".join([self.name, *self.arguments])
        return text if len(text) <= 80 else f"{text[:77]}..."


def find(block: Iterable[Directive], *names: str) -> list[Directive]:
    """The directives of a block that have one of these names."""
    return [each for each in block if each.name in names]


def within(block: Iterable[Directive], *names: str) -> Iterator[Directive]:
    """The directives of a block, and those in their blocks; of these names, if any are given."""
    for directive in block:
        if directive.name in names or not names:
            yield directive
        yield from within(directive.block, *names)


def duration(text: str) -> float | None:
    """The seconds of a time such as "1m30s"; None for another text."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def body_size(directive: Directive | None) -> int:
    """The bytes of client_max_body_size, 0 for no limit; nginx's default without a value that is one."""
    match = _SIZE.fullmatch("".join(directive.arguments).lower()) if directive else None
    return LARGEST_BODY if match is None else int(match[1]) * _BYTES[match[2]]


def parse(source: Source, file: str = "") -> list[Directive]:
    """The directives of a fragment, which may stand at any depth; `file` is noted with each.

    Raises ConfigurationError.
    """
    stack = [Directive("", [], 0)]
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
            arguments = [each.lower() if words[0] in _FLAGS else each for each in words[1:]]
            directive = Directive(words[0], arguments, begun, file=file)
            stack[-1].block.append(directive)
            if mark == "{":
                stack.append(directive)
            words = []
        if len(stack) > _DEEPEST:
            raise source.error(line, f"blocks {_DEEPEST} deep", "fewer blocks inside one another")
    if words or len(stack) > 1:
        line, name = (begun, words[0]) if words else (stack[-1].line, stack[-1].name)
        raise source.error(line, name, "a directive that ends with ';', or a block that ends with '}'")
    return stack[0].block


def _close(source: Source, stack: list[Directive], words: list[str], line: int) -> None:
    if words:
        raise source.error(line, f"'}}' after {words[0]!r}", "a ';' before it")
    if len(stack) == 1:
        raise source.error(line, "'}' without a block", "a '}' for each '{'")
    stack.pop()


def _tokens(source: Source) -> Iterator[tuple[int, str, str]]:
    """The line, `;`, `{` or `}` if it is one of them, and else a word. A block of Lua is a `;`."""
    line, counted, at = 1, 0, 0
    begins, is_lua = True, False
    while (token := _TOKEN.search(source.text, at)) is not None:
        line, counted = line + source.text.count("\n", counted, token.start()), token.start()
        at = token.end()
        text = _word(token, source, line)
        if token["end"]:
            if is_lua and token["end"] == "{":
                at = _after_lua(source, at, line)
            yield line, ";" if is_lua else token["end"], ""
            begins, is_lua = True, False
        elif text is not None:
            is_lua = text.endswith(_LUA) if begins else is_lua
            begins = False
            yield line, "", text


def _word(token: re.Match[str], source: Source, line: int) -> str | None:
    """The word that a token is, without its quotation marks; None for a comment or a mark."""
    double, single = token["double"], token["single"]
    if (double is not None and not token["closed"]) or (single is not None and not token["shut"]):
        raise source.error(line, "a quotation mark that nothing closes", "words of nginx's configuration")
    word = next((each for each in (double, single, token["word"]) if each is not None), None)
    return word and _ESCAPED.sub(lambda match: _LETTERS.get(match[1], match[1]), word)


def _after_lua(source: Source, at: int, line: int) -> int:
    """The place behind the brace that closes the block of Lua that begins at `at`."""
    depth = 1
    for token in _LUA_TOKEN.finditer(source.text, at):
        depth += {"{": 1, "}": -1}.get(token["brace"] or "", 0)
        if not depth:
            return token.end()
    raise source.error(line, "a block of Lua that nothing closes", "a '}' for each '{'")
