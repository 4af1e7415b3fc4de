"""Constructs that mean something else once mypyc has compiled them: no compiled module has one."""

import ast
import enum
import importlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from project.sources import ALL, ROOT, nodes_of, tree_of

pytest.importorskip("hatchling")

ENDLESS = {"count", "cycle", "repeat"}
# Classes of these kinds are ordinary ones, compiled, too: Python code may extend them. Methods of a compiled
# exception take its own objects alone.
ORDINARY = (BaseException, enum.Enum, tuple, dict)


def compiled_modules():
    """The names of the modules that are compiled."""
    from tools.wheel.compiled import CompiledBuildHook

    files = CompiledBuildHook._sources(cast("Any", SimpleNamespace(root=str(ROOT))))
    names = {path: name for name, path in ALL.items()}
    return [names[ROOT / file] for file in files]


def is_super_call(node):
    """Tell `super().method(…)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "super"
    )


def compared_after_setting(function):
    """Yield the lines of `self.attribute is value` behind `self.attribute = value` in the same function."""
    lines = {
        (ast.unparse(target), ast.unparse(node.value)): node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            compared = ast.unparse(node.left), ast.unparse(node.comparators[0])
            if lines.get(compared, node.lineno) < node.lineno:
                yield node.lineno


def suspended_handlers(node):
    """Yield the lines in handlers of errors at which a coroutine or generator may be suspended."""
    handled = [each for handler in node.handlers for each in handler.body] + node.finalbody
    for each in (part for statement in handled for part in ast.walk(statement)):
        if isinstance(each, (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)):
            yield each.lineno


def set_attributes(node):
    """The attributes that statements set, each with its line."""
    found = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    return [(each.attr, each.lineno) for each in found if isinstance(each.ctx, ast.Store)]


def perhaps_unset(node):
    """Yield the lines at which `__init__` sets an attribute first, where a handled error may prevent it."""
    for init in (each for each in node.body if getattr(each, "name", "") == "__init__"):
        for tried in (each for each in ast.walk(init) if isinstance(each, ast.Try) and each.handlers):
            before = {name for name, line in set_attributes(init) if line < tried.lineno}
            goes_on = any(not isinstance(each.body[-1], ast.Raise) for each in tried.handlers)
            for name, line in (each for part in tried.body for each in set_attributes(part)):
                again = all(name in dict(set_attributes(each)) for each in tried.handlers)
                if goes_on and name not in before and not again:
                    yield line


def class_traps(node):
    """Yield the line and the name of each construct in the body and bases of a class."""
    for line in perhaps_unset(node):
        yield line, "to read an attribute that was not set ends the process"
    if any(ast.unparse(base) in {"ABC", "abc.ABC"} for base in node.bases):
        yield node.lineno, "isinstance answers for one of them what it has once answered for another"
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and ast.unparse(each.annotation) == "object":
            yield each.lineno, "no class can be made with the annotation object, but with Any"


def traps(nodes):
    """Yield the line and the name of each construct."""
    for node in nodes:
        if is_super_call(node) and any(isinstance(each, ast.Starred) for each in cast("ast.Call", node).args):
            yield node.lineno, "the tuple of *arguments becomes the first argument"
        if isinstance(node, ast.GeneratorExp):
            called = [each.iter.func for each in node.generators if isinstance(each.iter, ast.Call)]
            if any(isinstance(each, ast.Name) and each.id in ENDLESS for each in called):
                yield node.lineno, "a generator expression becomes a list, here without end"
        if isinstance(node, ast.Try):
            for line in suspended_handlers(node):
                yield (
                    line,
                    "others that run meanwhile find the error handled here, for ever if they fail, too",
                )
        if isinstance(node, ast.ClassDef):
            yield from class_traps(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for line in compared_after_setting(node):
                yield line, "an attribute that a call between has set to None is a TypeError"


def lines(source):
    """The lines of a text that have one."""
    return [line for line, _ in traps(ast.walk(ast.parse(source)))]


def test_the_traps_are_recognized():
    assert lines("super().f(*a)\nsuper().f(a)\nf(*a)") == [1]
    assert lines("(n for n in count())\n(n for n in some)\n[n for n in count()]") == [1]
    assert lines("class A:\n    a: object = None\n    b: Any = None\na: object = A()") == [2]
    assert lines("class A(abc.ABC): ...\nclass B: ...\nclass C(B, ABC): ...") == [1, 3]
    unset = "class A:\n def __init__(self):\n  self.a = 1\n  try:\n   self.{} = 2\n  except E:\n   {}\n"
    assert lines(unset.format("b", "pass")) == [5]
    assert not [*lines(unset.format("b", "raise")), *lines(unset.format("a", "pass"))]
    assert not [*lines(unset.format("b", "self.b = 3"))]
    setting = "def f(self, a):\n    self.a = a\n    a.b()\n    {}\n"
    assert lines(setting.format("return self.a is a")) == [4]
    assert lines(setting.format("return self.b is a")) == []
    trying = (
        "async def f():\n    try:\n        await {}\n    except E:\n        {}\n    finally:\n        {}\n"
    )
    assert lines(trying.format("a", "await b", "await c")) == [5, 7]
    assert lines(trying.format("a", "b()", "c()")) == []


def test_compiled_modules_have_no_traps():
    modules = compiled_modules()
    assert len(modules) > 100
    assert [(name, *trap) for name in modules for trap in traps(nodes_of(name))] == []


def sealed_classes(name):
    """Yield the classes of a compiled module that no Python code may extend."""
    module = importlib.import_module(name)
    for node in tree_of(name).body:
        if isinstance(node, ast.ClassDef) and not any(
            "allow_interpreted_subclasses" in ast.unparse(d) for d in node.decorator_list
        ):
            defined = getattr(module, node.name)
            has_methods = any(isinstance(each, ast.FunctionDef) for each in node.body)
            if not issubclass(defined, ORDINARY) or (issubclass(defined, BaseException) and has_methods):
                yield defined


def extensions(nodes, names, sealed):
    """Yield the line and the name of each class among nodes that extends a sealed one."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            bases = [each.value if isinstance(each, ast.Subscript) else each for each in node.bases]
            if any(eval(ast.unparse(base), dict(names)) in sealed for base in bases):
                yield node.lineno, node.name


def test_extensions_of_sealed_classes_are_recognized():
    names = {"Sealed": int, "Open": str, "module": SimpleNamespace(Sealed=int)}
    source = (
        "class A(Sealed): ...\nclass B(Open): ...\ndef f():\n    class C(module.Sealed): ...\nclass D: ..."
    )
    assert [name for _, name in extensions(ast.walk(ast.parse(source)), names, {int})] == ["A", "C"]


def test_interpreted_classes_extend_no_compiled_class():
    compiled = compiled_modules()
    sealed = {each for name in compiled for each in sealed_classes(name)}
    assert len(sealed) > 200
    extending = [
        (name, *extension)
        for name in sorted(ALL.keys() - compiled)
        for extension in extensions(nodes_of(name), vars(importlib.import_module(name)), sealed)
    ]
    assert extending == []
