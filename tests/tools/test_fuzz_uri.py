"""A short run of fuzz/uri.py, and whether it would notice."""

from pathlib import Path

import pytest

from examples import cases
from univocal.uri import sites, target
from univocal.uri.percent_encoding import DecoderRing

SOURCE = Path(__file__).parents[2] / "fuzz" / "uri.py"


def test_no_law_is_broken(fuzzer):
    found, seen = fuzzer.findings(1, targets=2500)
    assert found == []
    assert seen["profiles"] > 40
    assert 1000 < seen["keys"] < seen["accepted"] < seen["targets"]


@pytest.fixture
def forgetful():
    """Forget all canonical targets and sites before the test and after it."""
    remembered = (target._pipeline, sites._remembered)
    for cache in remembered:
        cache.cache_clear()
    yield
    for cache in remembered:
        cache.cache_clear()


canonical = DecoderRing.canonical


def decodes_twice(ring, path):
    return canonical(ring, canonical(ring, path).replace(b"%25", b"%"))


def encodes_twice(ring, path):
    return canonical(ring, path).replace(b"%2F", b"%252F")


def halves_slashes(path):
    return path.replace(b"//", b"/")


def forgives_strays(*_):
    return []


def keeps_the_prefix(path, prefix, upstream_path):
    return upstream_path.rstrip(b"/") + path + b" "


@pytest.mark.pure("the fuzzer is tried on code with a mistake, and compiled code cannot be given one")
@cases(
    "owner, name, broken, law",
    (DecoderRing, "canonical", decodes_twice, "law 2"),
    (DecoderRing, "canonical", encodes_twice, "law 2"),
    (target, "merge_slashes", halves_slashes, "law 1"),
    (sites, "strays", forgives_strays, "law 5"),
    (target, "_at_upstream", keeps_the_prefix, "law 4"),
)
def test_a_broken_law_is_noticed(fuzzer, forgetful, monkeypatch, owner, name, broken, law):
    monkeypatch.setattr(owner, name, broken)
    # The first of so many are the same: most mistakes show early.
    runs = (fuzzer.findings(2, targets=targets) for targets in (300, 3000))
    assert any(wrong.startswith(law) for found, _ in runs for _, _, wrong in found)
