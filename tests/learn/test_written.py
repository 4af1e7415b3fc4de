"""Learned rules, written as a profile's file."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from univocal_learn.written import Settings, loaded, toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    names=st.lists(TEXT).map(tuple),
    defaults=st.dictionaries(TEXT, TEXT, max_size=3),
    summary=TEXT,
    rule=st.tuples(TEXT, TEXT, TEXT),
)
def test_the_file_holds_the_settings_whatever_their_letters(names, defaults, summary, rule):
    settings = Settings(index_names=names, drop=names, defaults=defaults, rewrites=(rule,))
    read = tomllib.loads(toml(settings, summary, {}))
    assert read["summary"] == summary
    assert tuple(read["path"]["index_names"]) == tuple(read["query"]["drop"]) == names
    assert read["query"]["defaults"] == defaults
    assert read["rewrite"] == [dict(zip(("from", "to", "at"), rule, strict=True))]


def test_empty_settings_are_a_valid_profile():
    assert loaded(Settings()).name == "learned"


def test_remarks_stand_above_what_they_are_about():
    text = toml(Settings(), "s", {"": ["The head."], "path.dot_segments": ["Why."]})
    lines = text.splitlines()
    assert lines[0] == "# The head."
    assert lines[lines.index("# Why.") + 1] == 'dot_segments = "keep"'
