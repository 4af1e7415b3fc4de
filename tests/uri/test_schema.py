"""A profile's file: its keys, their kinds, and what it inherits."""

import pytest

from univocal.http.errors import ProfileError
from univocal.uri.schema import load, with_defaults


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


def test_every_key_has_a_default():
    complete = with_defaults(load("own", '[[rewrite]]\nfrom = "a"'))
    assert complete["rewrite"] == [{"from": "a", "to": "", "at": "anywhere"}]
    assert complete["query"]["allow"] is None
    assert complete["query"]["drop"] == ()
    assert complete["reject"]["mode"] == "enforce"
    assert complete["tags"] == []
