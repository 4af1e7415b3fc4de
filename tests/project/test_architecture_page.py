"""docs/architecture.md: every module and class that it names exists, and its tables are those of the code.

Of the other pages, the imports of their examples.
"""

import ast
import importlib
import keyword
import re

from examples import cases
from project.sources import APPLICATION_MODULES, LIBRARY, LIBRARY_MODULES, ROOT, for_each, nodes_of, tree_of
from project.test_architecture import FLOORS, PROGRAM_FLOORS
from univocal.engine import exchange, flight, recording
from univocal.engine.flight import Landing
from univocal.http.errors import REASONS

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
FENCES = re.findall(r"(?ms)^```text\n(.*?)^```", PAGE)
PROSE = re.sub(r"(?ms)^```text\n.*?^```", "", PAGE)
QUOTED = set(re.findall(r"`([^`]+)`", PROSE))

PATHS = {each for each in QUOTED if "/" in each}
# In the diagrams nothing else has a capital letter before a small one.
NAMES = {each for each in QUOTED if re.fullmatch(r"[A-Z]\w*[a-z]\w*(\.\w+)*", each)} | {
    name for fence in FENCES for name in re.findall(r"\b[A-Z][a-z]\w*(?:\.\w+)*", fence)
}
STATES = {each for each in QUOTED if re.fullmatch(r"[A-Z_]+", each)}
WORDS = QUOTED - PATHS - NAMES - STATES


def defined():
    """The classes and functions of the library, and those by which processes talk; by name, maybe several."""
    found = {}
    talking = (name for name in APPLICATION_MODULES if name.startswith("univocal_app.processes"))
    for name in (*LIBRARY_MODULES, *talking):
        for key, value in vars(importlib.import_module(name)).items():
            if getattr(value, "__module__", None) == name:
                found.setdefault(key, []).append(value)
    return found


def identifiers():
    """Every name that the library's sources define or use."""
    for module in LIBRARY_MODULES:
        for node in nodes_of(module):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    yield name
                case ast.arg(arg=name) | ast.Attribute(attr=name) | ast.Name(id=name):
                    yield name


DEFINED = defined()


def exists(name):
    first, *rest = name.split(".")
    return any(all(hasattr(each, attribute) for attribute in rest) for each in DEFINED.get(first, ()))


def rows(header):
    """The cells of the table under a header row."""
    _, _, behind = PAGE.partition(header)
    for line in behind.splitlines()[2:]:
        if not line.lstrip().startswith("|"):
            return
        yield [cell.strip() for cell in line.strip().strip("|").split(" |")]


def test_the_page_names_plenty():
    assert len(PATHS) > 20
    assert len(NAMES) > 40


@for_each(sorted(PATHS))
def test_a_path_leads_somewhere(path):
    assert (LIBRARY / path).exists() or (ROOT / path).exists()


@for_each(sorted(NAMES))
def test_a_name_is_defined_in_the_code(name):
    assert exists(name)


@cases("name", "Recorder", "Exchange.responder", "ExactCycle.fetch", "State.DONE", "gate.Gate")
def test_a_name_that_is_gone_would_be_noticed(name):
    assert not exists(name)


def test_a_word_is_one_of_the_code():
    known = {
        *identifiers(),
        *FLOORS,
        *PROGRAM_FLOORS,
        *REASONS,
        *keyword.kwlist,
        *keyword.softkwlist,
        "univocal_app",
    }
    assert {each for each in WORDS if each not in known} == {"univocal serve", "univocal.toml"}


@for_each(re.findall(r"`(\w+)` in `([\w/]+\.py)`", PROSE))
def test_a_name_is_where_the_page_looks_for_it(place):
    name, path = place
    module = importlib.import_module("univocal." + path.removesuffix(".py").replace("/", "."))
    assert getattr(module, name).__module__ == module.__name__


def test_the_rooms_stand_on_their_floors():
    told = {
        room: int(floor) for floor, rooms, _ in rows("| floor | rooms |") for room in rooms.split("`")[1::2]
    }
    assert told == FLOORS
    drawn = {
        room: int(line[0])
        for line in FENCES[0].splitlines()
        if line[0] in "123456"
        for room in re.findall(r"\w+", line[1:55])
    }
    assert drawn == FLOORS


def test_the_programs_rooms_stand_on_their_floors():
    header = "| floor | of `univocal_app` |"
    assert {
        room: int(floor) for floor, rooms, _ in rows(header) for room in rooms.split("`")[1::2]
    } == PROGRAM_FLOORS


def meanings(module):
    """The states of a module's table, and the first lines of their docstrings."""
    body = tree_of(module.__name__).body
    docs = {each.name: ast.get_docstring(each) for each in body if isinstance(each, ast.ClassDef)}
    return [(each.__name__, docs[each.__name__].splitlines()[0].rstrip(".")) for each in module.MOVES]


def test_the_states_of_a_recording_are_these():
    told = [
        (state.strip("`"), meaning, after.split("`")[1::2]) for state, meaning, after in rows("| state |")
    ]
    assert [state[:2] for state in told] == meanings(recording)
    assert [state[2] for state in told] == [
        [each.__name__ for each in recording.MOVES if each in after] for after in recording.MOVES.values()
    ]


@cases("header, module", ("| an exchange | meaning |", exchange), ("| a flight | meaning |", flight))
def test_exchanges_and_flights_have_these_states(header, module):
    assert [(name.strip("`"), meaning) for name, meaning in rows(header)] == meanings(module)


def test_the_landings_of_a_flight_are_these():
    assert [name.strip("`") for name, _ in rows("| landing |")] == [
        each.__name__ for each in Landing.__args__
    ]


EXAMPLES = [
    (page.relative_to(ROOT).as_posix(), node.module, alias.name)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for block in re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text("utf-8"))
    for node in ast.walk(ast.parse(block))
    if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "univocal"
    for alias in node.names
]


@for_each(EXAMPLES)
def test_an_example_imports_what_exists(example):
    _, module, name = example
    assert hasattr(importlib.import_module(module), name)


def test_examples_import_from_several_modules():
    assert len({module for _, module, _ in EXAMPLES}) > 1
