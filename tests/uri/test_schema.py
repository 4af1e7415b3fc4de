"""A profile's file: its keys, their kinds, and what it inherits."""

import pytest

from univocal.http.errors import ProfileError
from univocal.uri.schema import load, merged, with_defaults


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a = ", ""),
        ("a = 1", "a"),
        ("path = 1", "path"),
        ("path.no = 1", "path.no"),
        ("path.merge_slashes = 1", "path.merge_slashes"),
        ('reject.mode = "sometimes"', "reject.mode"),
        ("summary = 1", "summary"),
        ("rewrite = 1", "rewrite"),
        ('[[rewrite]]\nfrom = "a"\n[[rewrite]]\nto = 1', "rewrite[1].to"),
        ("x = " + "[" * 5_000, ""),
    ],
)
def test_a_file_that_cannot_be_says_which_key(text, key):
    with pytest.raises(ProfileError) as raised:
        load("own.toml", text)
    assert (raised.value.source, raised.value.key) == ("own.toml", key)


def test_a_file_extends_key_by_key_and_takes_lists_whole():
    known = {
        "base": load("base", 'summary = "b"\npath.ring = "nginx-uri"\nquery.drop = ["a"]\nquery.sort = true')
    }
    own = {"own": load("own", 'extends = "base"\nquery.drop = ["b"]')}
    assert merged("own", own, known) == {
        "extends": "base",
        "path": {"ring": "nginx-uri"},
        "query": {"drop": ["b"], "sort": True},
    }
    assert merged("base", own, known) is known["base"]


@pytest.mark.parametrize(
    "own", [{"own": 'extends = "none"'}, {"own": 'extends = "other"', "other": 'extends = "own"'}]
)
def test_nothing_extends_what_is_not_there_nor_itself(own):
    with pytest.raises(ProfileError) as raised:
        merged("own", {name: load(name, text) for name, text in own.items()}, {})
    assert raised.value.key == "extends"


def test_every_key_has_a_default():
    complete = with_defaults(load("own", '[[rewrite]]\nfrom = "a"'))
    assert complete["rewrite"] == [{"from": "a", "to": "", "at": "anywhere"}]
    assert complete["query"]["allow"] is None
    assert complete["query"]["drop"] == []
    assert complete["reject"]["mode"] == "enforce"
    assert complete["tags"] == []
