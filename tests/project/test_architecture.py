"""The proxy: who imports whom, and which names are public."""

import ast
import asyncio
import importlib
import os
import re
import subprocess
import sys
import tomllib
from functools import cache

import pytest

import univocal
from examples import cases
from project.sources import (
    ALL,
    APPLICATION,
    APPLICATION_MODULES,
    LEARNING_MODULES,
    LIBRARY,
    LIBRARY_MODULES,
    ROOT,
    for_each,
    nodes_of,
    tree_of,
)

ALLOWED = {
    *("__future__", "bisect", "codecs", "collections", "dataclasses", "datetime", "email.utils", "enum"),
    *("functools", "hashlib", "http_sf", "idna", "ipaddress"),
    "mypy_extensions",  # for type checkers and mypyc alone
    *("re", "tomllib", "unicodedata", "typing", "weakref", "webencodings"),
}
# The floor of each room; a module imports from its own room and from rooms on lower floors.
FLOORS = {
    "http": 1,
    "uri": 2,
    "cache": 2,
    "origin": 2,
    "store": 3,
    "forward": 3,
    "judge": 4,
    "engine": 5,
    "asgi": 6,
    "server": 6,
}
# Rooms that know no more than these of the rooms below them.
KNOWN = {
    "store": {"cache", "http"},
    "forward": {"origin", "uri", "http"},
    "judge": {"uri", "cache", "store", "http"},
}
PURE_ROOMS = ("http", "uri", "cache")
# The program's own floors; the two modules beside its rooms are on the ground.
PROGRAM_FLOORS = {"config": 1, "processes": 1, "terminal": 1, "observe": 2, "run": 3, "commands": 4}


@cache
def imported(name):
    """The modules that a module imports, by their absolute names."""
    found = []
    for node in nodes_of(name):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.append(whole if whole in ALL else node.module)
    return found


def under(module, package):
    return module == package or module.startswith(package + ".")


def room(name):
    """The room of a module of the library; None for the two names beside the rooms."""
    return name.split(".")[1] if name.count(".") else None


@for_each([name for name in LIBRARY_MODULES if room(name) in PURE_ROOMS])
def test_a_pure_module_imports_no_clock_and_no_system(name):
    foreign = [
        each
        for each in imported(name)
        if not under(each, "univocal") and not any(under(each, allowed) for allowed in ALLOWED)
    ]
    # The chunks of responses, by a parser without clock and system.
    assert foreign == (["httptools"] if name == "univocal.http.content" else [])


def test_pytest_mypy_and_pyright_have_the_same_source_roots():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    roots = [LIBRARY.parent.name, APPLICATION.parent.name]
    assert sorted(tools["pytest"]["ini_options"]["pythonpath"]) == sorted(roots)
    assert sorted(tools["mypy"]["mypy_path"]) == sorted(roots)
    assert sorted(tools["pyright"]["extraPaths"]) == sorted(roots)


def test_the_rooms_are_these():
    assert {room(name) for name in LIBRARY_MODULES} == {None, "__main__", "protocol", *FLOORS}


def from_above(name, package, floors):
    """The modules of its package that a module imports from neither its own room nor a lower floor."""
    return [
        each
        for each in imported(name)
        if under(each, package)
        and room(each) != room(name)
        and not floors.get(room(each), 9) < floors[room(name)]
    ]


@for_each([name for name in LIBRARY_MODULES if room(name) in FLOORS])
def test_a_module_imports_from_its_room_and_lower_floors(name):
    assert from_above(name, "univocal", FLOORS) == []


@for_each([name for name in LIBRARY_MODULES if room(name) in KNOWN])
def test_a_room_imports_only_from_the_rooms_that_it_needs(name):
    others = {room(each) for each in imported(name) if under(each, "univocal")} - {room(name)}
    assert others <= KNOWN[room(name)]


@for_each([name for name in APPLICATION_MODULES if room(name) in PROGRAM_FLOORS])
def test_a_program_module_imports_from_its_room_and_lower_floors(name):
    assert from_above(name, "univocal_app", PROGRAM_FLOORS) == []


def test_the_proxy_never_imports_what_learns():
    """The command line loads it by the names in `commands`."""
    knowing = [name for name in ALL if any(under(each, "univocal_learn") for each in imported(name))]
    assert [name for name in knowing if name not in LEARNING_MODULES] == []
    named = [
        name for name, path in APPLICATION_MODULES.items() if "univocal_learn" in path.read_text("utf-8")
    ]
    assert named == ["univocal_app.commands.cli", "univocal_app.commands.profiles"]


def test_the_rooms_of_the_program_are_these():
    assert {room(name) for name in APPLICATION_MODULES} == {None, "__main__", *PROGRAM_FLOORS}


def floors_of(package):
    """The floor of each module within its room: 1 more than those of the modules that it imports."""
    within = {name for name in ALL if under(name, package)}
    known = {name: {each for each in imported(name) if each in within and each != name} for name in within}
    floors = {}
    while len(floors) < len(within):
        above = {name for name in within - set(floors) if known[name] <= set(floors)}
        assert above, f"a circle: {sorted(within - set(floors))}"
        for name in above:
            floors[name] = 1 + max((floors[each] for each in known[name]), default=0)
    return floors


@pytest.mark.parametrize("name", FLOORS)
def test_modules_of_a_room_stand_on_few_floors(name):
    assert max(floors_of(f"univocal.{name}").values()) <= 7


# Classes that are made to be built on: the language's own, asyncio's and httpx's interfaces, and exceptions.
INTERFACES = {
    *("ABC", "Enum", "Generic", "IntEnum", "Mapping", "NamedTuple", "Protocol"),
    *("asyncio.Protocol", "asyncio.Transport", "httpx.AsyncBaseTransport", "httpx.AsyncByteStream"),
    *("Exception", "OSError", "ValueError", "redis.ConnectionError"),
}


@for_each(LIBRARY_MODULES)
def test_no_class_is_built_on_another_projects_class(name):
    ours = {node.name for each in ALL for node in tree_of(each).body if isinstance(node, ast.ClassDef)}
    bases = {
        ast.unparse(base).partition("[")[0]
        for node in nodes_of(name)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    assert {base for base in bases - INTERFACES if base not in ours} == set()


def test_no_modules_import_one_another_in_a_circle():
    graph = {name: {each for each in imported(name) if each in ALL and each != name} for name in ALL}
    while leaves := {name for name, known in graph.items() if not known}:
        graph = {name: known - leaves for name, known in graph.items() if name not in leaves}
    assert sorted(graph) == []


@for_each(ALL)
def test_modules_are_imported_by_their_whole_names(name):
    relative = [node.lineno for node in nodes_of(name) if isinstance(node, ast.ImportFrom) and node.level]
    assert relative == []


def test_the_library_does_not_know_the_application():
    known = [
        (name, each) for name in LIBRARY_MODULES for each in imported(name) if under(each, "univocal_app")
    ]
    assert known == []


@cases(
    "package, place",
    ("redis", "univocal.store.redis"),
    ("hiredis", "univocal.store.redis"),
    ("uvicorn", "univocal.server"),
    ("hpack", "univocal.server.http2"),
)
def test_a_replaceable_library_is_imported_in_one_room(package, place):
    outside = [
        name
        for name in LIBRARY_MODULES
        if not under(name, place) and any(under(each, package) for each in at_run_time(name))
    ]
    assert outside == []


def test_nothing_private_of_uvicorn_is_used():
    """The program uses its `Server` and `Config`; the library makes classes for its `http` setting."""
    imports = [(name, each) for name in ALL for each in imported(name) if under(each, "uvicorn")]
    assert [(name, each) for name, each in imports if each != "uvicorn"] == []


# Behind a group or a filled-in part, but not in a list of characters such as "()*+".
POSSESSIVE = re.compile(r"(?:(?<![\\(])\)|%b)(?:[*+?]|\{[\d,]+\})\+")


def test_no_group_is_repeated_possessively():
    """Python 3.11.0 to 3.11.4 match what such a pattern forbids; atomic groups mean the same."""
    assert POSSESSIVE.search("/(?:a|b)*+")
    found = [
        (name, node.lineno)
        for name in ALL
        for node in nodes_of(name)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if POSSESSIVE.search(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    ]
    assert found == []


SELECTORS = {"Keys", "Variants", "Tags", "Prefix", "Pattern", "Everything", "Profiles"}


def classes_asked_for(name):
    """The classes of `isinstance` and of the cases of `match` in a module."""
    for node in nodes_of(name):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            yield from map(ast.unparse, ast.walk(node.args[1]))
        elif isinstance(node, ast.MatchClass):
            yield ast.unparse(node.cls)


def test_no_module_asks_for_the_class_of_a_selector():
    asking = [name for name in ALL if not SELECTORS.isdisjoint(classes_asked_for(name))]
    assert not asking, "a purge's meaning is what its selector says"


def test_the_client_library_is_imported_once_without_its_client():
    importing = [name for name in ALL if any(under(each, "httpx") for each in imported(name))]
    assert importing == ["univocal.origin.client_library"]
    clients = [
        name
        for name in ALL
        for node in nodes_of(name)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"httpx.Client", "httpx.AsyncClient"}
    ]
    assert clients == []


@cache
def at_run_time(name):
    """The modules that a module imports, but for its annotations."""
    left, found = [tree_of(name)], []
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left += node.orelse
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module)
    return found


EXTRAS = {
    *("uvicorn", "httptools", "uvloop", "typer", "pydantic", "prometheus_client", "redis", "hiredis"),
    "hpack",
}
# The steps of a new interpreter, one after the other, and the modules not imported by then.
ABSENT_AFTER = {
    "import univocal": {*EXTRAS, "httpx", "starlette", "asyncio", "logging", "univocal.http"},
    "univocal.CacheMiddleware": {*EXTRAS, "httpx", "rich"},
    "univocal.CacheMiddleware(print)": {*EXTRAS, "httpx", "rich"},
    "univocal.ReverseProxy": EXTRAS,
    "univocal.ReverseProxy('http://127.0.0.1:9')": {*EXTRAS, "httpx", "rich"} - {"httptools"},
    "import univocal_app.commands.cli": {"protego", "univocal_learn"},
    "import univocal_app.run.workers": {"opentelemetry"},
}


def test_a_module_is_imported_when_it_is_used():
    code = "\n".join(f"{each}\nprint(*sys.modules)" for each in ABSENT_AFTER)
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(LIBRARY.parent), str(APPLICATION.parent)))},
        capture_output=True,
        check=True,
        text=True,
    ).stdout.splitlines()
    loaded = dict(zip(ABSENT_AFTER, map(str.split, told), strict=True))
    assert [(code, absent.intersection(loaded[code])) for code, absent in ABSENT_AFTER.items()] == [
        (code, set()) for code in ABSENT_AFTER
    ]


def test_every_public_name_is_found_where_it_is_imported():
    typed = {
        alias.asname or alias.name
        for node in tree_of("univocal").body
        if isinstance(node, ast.If)
        for each in node.body
        for alias in each.names
    }
    assert typed == set(univocal.__all__) == set(univocal._MODULES)
    assert set(univocal.__all__) <= set(dir(univocal))
    with pytest.raises(AttributeError, match="no attribute 'Cache'"):
        univocal.Cache  # noqa: B018


@for_each(ALL)
def test_there_are_no_utils_and_no_managers(name):
    assert not set(name.split(".")) & {"utils", "util", "helpers", "common", "misc"}
    classes = [node.name for node in nodes_of(name) if isinstance(node, ast.ClassDef)]
    assert not [each for each in classes if each.endswith(("Manager", "Helper", "Util"))]


def documented(tree):
    """The public classes and functions of a module with their docstrings: methods by class and name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name, ast.get_docstring(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, ast.get_docstring(node)
            yield from ((f"{node.name}.{name}", told) for name, told in documented(node))


@cache
def told_of(name):
    """The docstrings of a module's public classes and functions, by name."""
    return dict(documented(tree_of(name)))


@for_each(ALL)
def test_a_module_says_what_it_is(name):
    assert ast.get_docstring(tree_of(name))


@for_each(ALL)
def test_a_docstring_is_no_question(name):
    questions = ("What ", "Whatever ", "Whether ", "How ", "Who ", "Whom ", "Whoever ", "Which ")
    told = {"": ast.get_docstring(tree_of(name)), **told_of(name)}
    assert [each for each, text in told.items() if (text or "").startswith(questions)] == []


def test_the_public_names_are_these():
    assert sorted(univocal.__all__) == [
        *("CacheMiddleware", "ConfigurationError", "Listener", "MemoryStore", "MemoryTier", "Outcome"),
        *("Profile", "ProfileError", "RefusedError", "ReverseProxy", "Rules", "Runtime", "Site", "Sites"),
        *("Tiers", "Timeouts", "UnivocalError", "builtin_profiles", "cached", "canonicalize", "purge"),
        "tag",
    ]
    assert all(hasattr(univocal, name) for name in univocal.__all__)


def test_uvicorn_finds_the_protocol_by_its_short_name():
    assert issubclass(importlib.import_module("univocal.protocol").ExactProtocol, asyncio.Protocol)


@for_each(LIBRARY_MODULES)
def test_modules_define_every_name_in_all(name):
    module = importlib.import_module(name)
    assert [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)] == []
