"""Each object with states has one table of moves: all states are in it, can be reached, and have causes."""

import ast
import importlib
from enum import Enum

import pytest

from project.sources import LIBRARY_MODULES, tree_of
from univocal.engine.exchange import InFlight, Landed, Over, Waiting
from univocal.engine.flight import Ended
from univocal.http.tables import moves
from univocal.origin.servers import MemberState
from univocal.server.http2.connection import HeadSent

# States that may come at any time; words for operators; the common bases of several states.
ANY_TIME = {Over}
NOT_IN_A_TABLE = {MemberState.DRAINING, MemberState.BACKUP, InFlight, Waiting, Landed, Ended, HeadSent}


def tables():
    """The public tables of the library, by module and name."""
    for module in (name for name, file in LIBRARY_MODULES.items() if "MOVES" in file.read_text("utf-8")):
        for node in tree_of(module).body:
            name = node.target.id if isinstance(node, ast.AnnAssign) else ""
            if name.endswith("MOVES") and not name.startswith("_") and name != "STREAM_MOVES":  # by frames
                yield pytest.param(getattr(importlib.import_module(module), name), id=f"{module} {name}")


def states_of(table):
    """All states of an object: members of an enumeration, or classes that hold a state's data."""
    first = next(iter(table))
    return set(type(first)) if isinstance(first, Enum) else descendants(first.__base__)


def descendants(base):
    return {found for each in base.__subclasses__() for found in {each} | descendants(each)}


TABLES = [*tables()]


@pytest.mark.parametrize("table", TABLES)
def test_every_state_can_be_reached(table):
    reached = {next(iter(table))}
    while more := {after for state in reached for after in table[state]} - reached:
        reached |= more
    assert reached | (ANY_TIME & set(table)) == set(table) == states_of(table) - NOT_IN_A_TABLE


@pytest.mark.parametrize("table", TABLES)
def test_every_move_has_a_cause(table):
    assert all(cause for after in table.values() for cause in after.values())


@pytest.mark.parametrize("table", TABLES)
def test_a_move_that_no_table_has_is_an_error(table):
    made = moves(table)
    for state in table:
        for after in set(table) - set(table[state]):
            with pytest.raises(KeyError):
                made[state, after]
