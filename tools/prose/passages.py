"""The passages of prose in Markdown pages and in docstrings, with the line on which each begins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
_TEXT: Final = {"text", "softbreak", "hardbreak", "code_inline"}
_FRONT: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


class Passage(NamedTuple):
    """A paragraph, list item, heading or cell: its first line (from 1 on), and its text without code."""

    line: int
    text: str


def of_markdown(page: str) -> Iterator[Passage]:
    """The passages of a page; what stands between backquotes is the word `code`."""
    line = 0
    for token in _MARKDOWN.parse(_FRONT.sub(lambda front: "\n" * front[0].count("\n"), page)):
        if token.map:
            line = token.map[0]
        if token.type == "inline":
            yield Passage(line + 1, _text(token.children or []))


def of_python(source: str) -> Iterator[Passage]:
    """The docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                first = node.body[0].lineno
                yield from (Passage(first + line - 1, each) for line, each in of_markdown(text))


def _text(tokens: list[Token]) -> str:
    parts = []
    for token in tokens:
        if token.type == "code_inline":
            parts.append(f"code{len(parts)}")
        elif token.type in _TEXT:
            parts.append(token.content or "\n")
    return "".join(parts)
