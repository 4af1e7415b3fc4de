"""Constructs that mean something else once mypyc has compiled them: no compiled module has one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
ENDLESS = {"count", "cycle", "repeat"}


def compiled_sources() -> list[str]:
    from tools.wheel.compiled import CompiledBuildHook

    return CompiledBuildHook._sources(cast("Any", SimpleNamespace(root=str(ROOT))))


def is_super_call(node: ast.AST) -> bool:
    """Tell `super().method(…)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "super"
    )


def traps(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each construct."""
    for node in ast.walk(ast.parse(source)):
        if is_super_call(node) and any(isinstance(each, ast.Starred) for each in cast("ast.Call", node).args):
            yield node.lineno, "the tuple of *arguments becomes the first argument"
        if isinstance(node, ast.GeneratorExp):
            called = [each.iter.func for each in node.generators if isinstance(each.iter, ast.Call)]
            if any(isinstance(each, ast.Name) and each.id in ENDLESS for each in called):
                yield node.lineno, "a generator expression becomes a list, here without end"


def test_the_traps_are_recognized() -> None:
    assert [line for line, _ in traps("super().f(*a)\nsuper().f(a)\nf(*a)")] == [1]
    assert [line for line, _ in traps("(n for n in count())\n(n for n in some)\n[n for n in count()]")] == [1]


def test_compiled_modules_have_no_traps() -> None:
    sources = compiled_sources()
    assert len(sources) > 100
    found = [f"{file}:{line}: {name}" for file in sources for line, name in traps((ROOT / file).read_text())]
    assert not found
