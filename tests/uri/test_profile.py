import os
import subprocess
import sys

import pytest

from examples import cases
from univocal.http.errors import ProfileError
from univocal.uri.profile import parse
from univocal.uri.schema import load, with_defaults
from univocal.uri.target import canonical_target

RING = [0] * 33 + [2] * 94 + [0] * 129


@cases(
    "text, key, found",
    ("[path", "", "Expected ']' at the end of a table declaration (at end of document)"),
    ("x = " + "[" * 5_000, "", "values nested too deeply"),
    ("colour = 1", "colour", 1),
    ("summary = 1", "summary", 1),
    ("path = 1", "path", 1),
    ("path.colour = 1", "path.colour", 1),
    ("rewrite = 1", "rewrite", 1),
    ('[[rewrite]]\nfrom = "a"\n[[rewrite]]\nto = 1', "rewrite[1].to", 1),
    ("path.merge_slashes = 1", "path.merge_slashes", 1),
    ("path.dot_segments = 'rfc 3986'", "path.dot_segments", "rfc 3986"),
    ("path.dot_segments = ['keep']", "path.dot_segments", ["keep"]),
    ("path.parameters = 'cut'", "path.parameters", "cut"),
    ("path.decode = 1", "path.decode", 1),
    ("path.decode = ': (x)'", "path.decode", "(x)"),
    ("path.decode = 'é'", "path.decode", "é"),
    ("path.decode = '0A'", "path.decode", "0A"),
    ("path.decode = '%'", "path.decode", "%"),
    ("path.encode = '/'", "path.encode", "/"),
    ("path.encode = 'a'", "path.encode", "a"),
    ("path.decode = '('\npath.encode = '28'", "path.encode", "28"),
    ("path.ring = 'tomcat'", "path.ring", "tomcat"),
    ("path.ring = [1, 2]", "path.ring", [1, 2]),
    (f"path.ring = {[*RING[:-1], 3]}", "path.ring", [*RING[:-1], 3]),
    (f"path.ring = {[*RING[:-1], 0.0]}", "path.ring", [*RING[:-1], 0.0]),
    (f"path.ring = {RING}", "path.ring", RING),
    ("path.ring = 'rfc3986'\npath.decode = ':'", "path.decode", ":"),
    ("path.parameters = 'strip'\npath.decode = ';'", "path.parameter_delimiters", "';' decoded"),
    ("path.dot_segments = 'servlet'\npath.decode = ';'", "path.parameter_delimiters", "';' decoded"),
    ("path.dot_segments = 'servlet'\npath.encode = ';'", "path.parameter_delimiters", "';' encoded"),
    ("reject.sequences = 'fragment'", "reject.sequences", "fragment"),
    ("reject.allow = ['slash']", "reject.allow", ["slash"]),
    ("reject.sequences = ['crosses-route']", "reject.sequences", ["crosses-route"]),
    ("reject.sequences = [1]", "reject.sequences", [1]),
    ("reject.mode = 'log'", "reject.mode", "log"),
    ("extends = 'own'", "extends", "own"),
    ("extends = 'nobody'", "extends", "nobody"),
    ("extends = 1", "extends", 1),
)
def test_invalid_settings_are_refused(text, key, found):
    with pytest.raises(ProfileError) as refused:
        parse({"own": text})
    assert refused.value.source == "profile own"
    assert (refused.value.key, refused.value.found) == (key, found)
    assert refused.value.allowed


def test_every_key_has_a_default():
    complete = with_defaults(load("own", '[[rewrite]]\nfrom = "a"'))
    assert complete["rewrite"] == [{"from": "a", "to": "", "at": "anywhere"}]
    assert complete["query"]["allow"] is None
    assert complete["query"]["drop"] == ()
    assert complete["reject"]["mode"] == "enforce"
    assert complete["tags"] == []


def test_the_message_says_all():
    with pytest.raises(ProfileError) as refused:
        parse({"own": "path.dot_segments = 'x'"})
    assert (
        str(refused.value) == "profile own: path.dot_segments: found 'x'; allowed: rfc3986 | servlet | keep"
    )
    with pytest.raises(
        ProfileError, match=r"allowed: a table in which '/' between segments is never encoded"
    ):
        parse({"own": "path.encode = '/'"})
    with pytest.raises(ProfileError, match=r"path.merge: found True; allowed: one of ring, decode, encode, "):
        parse({"own": "path.merge = true"})


def test_extending_merges_tables_and_replaces_lists():
    profiles = parse(
        {
            "parent": 'summary = "p"\nreject.sequences = []\npath = { decode = ":", merge_slashes = true }',
            "child": 'extends = "parent"\npath.encode = "("\nreject.sequences = ["fragment"]',
            "grandchild": 'extends = "child"\npath.decode = "@"',
        }
    )
    assert profiles["child"].summary == ""
    assert profiles["child"].merge_slashes
    assert profiles["child"].sequences == profiles["grandchild"].sequences == ("fragment",)
    assert canonical_target(b"//%3a%40(", profiles["child"]) == b"/:%40%28"
    assert canonical_target(b"//%3a%40(", profiles["grandchild"]) == b"/%3A@%28"


def test_a_child_allows_what_its_parent_refuses():
    profiles = parse(
        {
            "parent": 'reject.sequences = ["encoded-slash", "backslash", "dot-segment"]',
            "child": 'extends = "parent"\nreject.allow = ["encoded-slash"]',
            "grandchild": 'extends = "child"\nreject.allow = ["backslash"]',
            "observer": 'extends = "child"\nreject.mode = "observe"',
            "strict": 'extends = "grandchild"\nreject.sequences = ["encoded-slash"]',
            "root": 'reject.allow = ["control-character"]',
        }
    )
    sequences = {name: profile.sequences for name, profile in profiles.items()}
    assert sequences == {
        "parent": ("backslash", "encoded-slash", "dot-segment"),
        "child": ("backslash", "dot-segment"),
        "grandchild": ("dot-segment",),
        "observer": ("backslash", "dot-segment"),
        "strict": ("encoded-slash",),
        "root": (),
    }
    assert canonical_target(b"/a%2Fb", profiles["child"]) == b"/a%2Fb"


def test_extending_known_profiles():
    known = parse({"parent": 'path.decode = ":"', "middle": 'extends = "parent"\npath.encode = "("'})
    texts = {"own": 'extends = "middle"', "parent": 'extends = "parent"\npath.merge_slashes = true'}
    profiles = parse(texts, known)
    assert canonical_target(b"/%3a(", profiles["own"]) == b"/:%28"
    assert profiles["parent"].ring.forms == known["parent"].ring.forms
    assert profiles["parent"].merge_slashes


@pytest.mark.parametrize("size", [1, 2, 3])
def test_circles_are_refused(size):
    texts = {f"p{i}": f'extends = "p{(i + 1) % size}"' for i in range(size)}
    with pytest.raises(ProfileError) as refused:
        parse(texts)
    assert refused.value.key == "extends"


def test_a_ring_can_be_given_up_for_sets():
    profiles = parse(
        {"parent": 'path.ring = "rfc3986"', "own": 'extends = "parent"\npath.ring = ""\npath.decode = ":"'}
    )
    assert canonical_target(b"/%3a", profiles["own"]) == b"/:"


def test_the_digest_is_of_what_matters():
    texts = {
        "a": 'summary = "x"\npath.decode = ": @"',
        "b": 'summary = "y"\npath.decode = "40 3A"\npath.merge_slashes = false',
        "c": 'extends = "a"',
        "d": 'path.decode = ":"',
        "e": 'path.decode = ": @"\npath.merge_slashes = true',
        "f": 'path.decode = ": @"\nreject.mode = "observe"',
        "g": 'path.decode = ": @"\nreject.sequences = ["fragment"]',
    }
    digests = {name: profile.digest for name, profile in parse(texts).items()}
    assert digests["a"] == digests["b"] == digests["c"]
    assert len(set(digests.values())) == 5
    assert all(len(digest) == 16 and digest.isalnum() for digest in digests.values())


def test_the_digest_is_the_same_in_every_process():
    """It is part of the keys in a shared store."""
    text = 'path.decode = ":"\nreject.sequences = ["backslash", "fragment", "bad-utf-8"]'
    program = (
        f"from univocal.uri.profile import parse; print(parse({{'own': {text!r}}})['own'].digest.decode())"
    )
    ours = parse({"own": text})["own"].digest.decode()
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        theirs = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        )
        assert theirs.stdout.decode().strip() == ours


def test_a_profile_knows_its_settings():
    profiles = parse(
        {"parent": "path.merge_slashes = true", "own": 'extends = "parent"\nreject.mode = "observe"'}
    )
    assert profiles["own"].settings == {
        "extends": "parent",
        "path": {"merge_slashes": True},
        "reject": {"mode": "observe"},
    }
