"""The house: who imports whom, how large a module and a function may grow, which names are public."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import univocal

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "middleware" / "univocal"
APPLICATION = ROOT / "app" / "univocal_app"

ALLOWED = {
    "__future__",
    "codecs",
    "collections",
    "dataclasses",
    "email.utils",
    "enum",
    "functools",
    "hashlib",
    "http_sf",
    "re",
    "tomllib",
    "typing",
}
WINGS = ("uri", "cache", "proxy")
DOORS = ("univocal.asgi", "univocal.protocol")
# What the pure modules may know of the library itself.
GROUND = {"univocal.errors", "univocal.fields", "univocal.messages"}


def modules(directory):
    root = directory.parent
    for path in sorted(directory.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        yield name, path


LIBRARY_MODULES = dict(modules(LIBRARY))
APPLICATION_MODULES = dict(modules(APPLICATION))
ALL = LIBRARY_MODULES | APPLICATION_MODULES
# The shared tier, which waits for Redis: the one impure part of the cache wing.
SHARED_TIER = {
    f"univocal.cache.{name}"
    for name in ("shared", "address", "attachment", "link", "purging", "reading", "tracking", "waiting")
}
PURE = [
    name
    for name in LIBRARY_MODULES
    if name in GROUND or (name.startswith(("univocal.uri", "univocal.cache")) and name not in SHARED_TIER)
]


def imported(name):
    """The modules that a module imports, by their absolute names."""
    path = ALL[name]
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in ALL else base


def under(module, package):
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_imports_nothing_that_waits_reads_a_clock_or_the_system(name):
    wing = ".".join(name.split(".")[:2])
    foreign = [
        each
        for each in imported(name)
        if not any(under(each, allowed) for allowed in ALLOWED)
        and each not in GROUND
        and (not under(each, wing) or each in SHARED_TIER)
    ]
    assert foreign == []


@pytest.mark.parametrize("wing", WINGS)
def test_the_wings_do_not_know_one_another(wing):
    others = [f"univocal.{each}" for each in WINGS if each != wing]
    known = [
        (name, each)
        for name in LIBRARY_MODULES
        if under(name, f"univocal.{wing}")
        for each in imported(name)
        if any(under(each, other) for other in others)
    ]
    assert known == []


def test_nothing_in_the_library_imports_a_door_but_its_package():
    known = [
        (name, each)
        for name in LIBRARY_MODULES
        for each in imported(name)
        if each in DOORS and name != "univocal"
    ]
    assert known == []


def test_the_library_does_not_know_the_application():
    known = [
        (name, each) for name in LIBRARY_MODULES for each in imported(name) if under(each, "univocal_app")
    ]
    assert known == []


def test_httpx_is_imported_in_the_proxy_wing_alone():
    outside = [
        name
        for name in ALL
        if not under(name, "univocal.proxy") and any(under(each, "httpx") for each in at_run_time(name))
    ]
    assert outside == []


def at_run_time(name):
    """What a module imports but for its annotations."""
    tree = ast.parse(ALL[name].read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_importing_the_library_brings_nothing_of_the_extras():
    code = "import sys, univocal; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(LIBRARY.parent)},
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()
    assert not {"uvicorn", "httptools", "uvloop", "typer", "pydantic", "prometheus_client"} & set(loaded)


@pytest.mark.parametrize("name", ALL)
def test_a_module_can_be_read_in_one_sitting(name):
    assert len(ALL[name].read_text("utf-8").splitlines()) <= 320


def functions(name):
    for node in ast.walk(ast.parse(ALL[name].read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


# (the demo's functions hold tables: what to type and what to look for)
@pytest.mark.parametrize("name", [name for name in ALL if not under(name, "univocal_app.demo")])
def test_a_function_fits_on_a_screen(name):
    assert [(function, lines) for function, lines in functions(name) if lines > 45] == []


@pytest.mark.parametrize("name", ALL)
def test_there_are_no_utils_and_no_managers(name):
    assert not set(name.split(".")) & {"utils", "util", "helpers", "common", "misc"}
    classes = [
        node.name
        for node in ast.walk(ast.parse(ALL[name].read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert not [each for each in classes if each.endswith(("Manager", "Helper", "Util"))]


def test_the_public_names_are_these():
    assert sorted(univocal.__all__) == [
        "CacheMiddleware",
        "ConfigurationError",
        "MemoryStore",
        "Outcome",
        "Profile",
        "ProfileError",
        "RefusedError",
        "ReverseProxy",
        "Rules",
        "Runtime",
        "UnivocalError",
    ]
    assert all(hasattr(univocal, name) for name in univocal.__all__)


@pytest.mark.parametrize("name", LIBRARY_MODULES)
def test_what_a_module_promises_it_has(name):
    module = importlib.import_module(name)
    assert [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)] == []
