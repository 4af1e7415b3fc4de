"""The modules of library and program, each parsed once for all tests about sources."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "middleware" / "univocal"
APPLICATION = ROOT / "app" / "univocal_app"
LEARNING = ROOT / "app" / "univocal_learn"


def modules(directory):
    root = directory.parent
    for path in sorted(directory.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        yield name, path


LIBRARY_MODULES = dict(modules(LIBRARY))
APPLICATION_MODULES = dict(modules(APPLICATION))
LEARNING_MODULES = dict(modules(LEARNING))
ALL = LIBRARY_MODULES | APPLICATION_MODULES | LEARNING_MODULES


@cache
def tree_of(name):
    """A module, parsed once for all tests."""
    return ast.parse(ALL[name].read_text("utf-8"))


@cache
def nodes_of(name):
    """All nodes of a module, walked once for all tests."""
    return list(ast.walk(tree_of(name)))


def for_each(names):
    """Make one test of a rule, which names all that break it: one for each costs more than the rule."""

    def made(rule):
        def test():
            broken = {}
            for name in names:
                try:
                    rule(name)
                except AssertionError as error:
                    broken[name] = str(error)
            assert broken == {}

        test.__name__ = rule.__name__
        return test

    return made
