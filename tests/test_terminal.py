"""Text for a terminal."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal import builtin_profiles
from univocal_app.terminal import describe, printable, table, written

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)


@given(VALUES)
def test_a_value_is_written_as_toml_reads_it(value):
    assert tomllib.loads(f"value = {written(value)}") == {"value": value}


@pytest.mark.parametrize("name", sorted(builtin_profiles()))
def test_a_profile_is_described_by_a_file_that_makes_it(name):
    profile = builtin_profiles()[name]
    settings = tomllib.loads(describe(profile))
    assert settings.keys() == profile.settings.keys() - {"extends"}


@given(st.binary())
def test_no_byte_steers_the_terminal(octets):
    assert printable(octets).isprintable()


@cases(
    "octets, text",
    (b"/wiki/A", "/wiki/A"),
    ("/wiki/É".encode(), "/wiki/É"),
    (b"\x1b[31m", r"\x1b[31m"),
    (b"\xff\n", r"\xff\n"),
    ("\u202e".encode(), r"\u202e"),
)
def test_printable_characters_stay_and_others_are_escaped(octets, text):
    assert printable(octets) == text


@cases(
    "rows, text",
    ([], ""),
    ([("a", "b")], "a  b"),
    ([("long", "x"), ("s", "yy")], "long  x\ns     yy"),
    ([("a",), ("bb", "c")], "a\nbb  c"),
)
def test_columns_are_as_wide_as_their_widest_cell(rows, text):
    assert table(rows) == text
