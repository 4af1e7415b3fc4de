"""Spellings that attacks are made of, found in a path as it was received."""

import pytest

from examples import cases
from univocal.uri.suspicious import SEQUENCES, Inspector, is_utf_8


def inspect(path, listed=SEQUENCES, **more):
    settings = {"reads_parameters": False, "merges": False} | more
    return Inspector(listed, b"/.;", b";", **settings)(path)


@cases(
    "path, reasons",
    (b"/a/b%20c;d", set()),
    (b"/a\x7f", {"control-character"}),
    (b"/%0a", {"control-character"}),
    (b"/%4", {"bad-escape"}),
    (b"/%c3%28", {"bad-utf-8"}),
    (b"/%C3%A9", set()),
    (b"/a\\b", {"backslash"}),
    (b"/a%5Cb", {"backslash"}),
    (b"/a%2fb", {"encoded-slash"}),
    (b"/a/./b", {"dot-segment"}),
    (b"/a/%2E/b", {"dot-segment", "encoded-dot-segment", "encoded-dot"}),
    (b"/%2Ehidden", {"encoded-dot"}),
    (b"/a%2ehtml", {"encoded-dot"}),
    (b"/.hidden", set()),
    (b"/a/..,x", {"dot-segment-parameter"}),
    (b"/..", {"dot-segment", "above-root"}),
    (b"/a/../..", {"dot-segment", "above-root"}),
    (b"/a/..;x", {"dot-segment-parameter"}),
    (b"/a//../b", {"dot-segment", "dot-dot-after-empty-segment"}),
    (b"/;x/a", {"empty-segment-parameter"}),
    (b"/a/;x", set()),
    (b"/a;x;y/b", {"repeated-parameter"}),
    (b"/a;x%3By", {"repeated-parameter"}),
    (b"/a;x/b;y", set()),
    (b"/...", set()),
)
def test_reasons_of_a_path(path, reasons):
    assert inspect(path) == reasons
    assert inspect(path, frozenset()) == set()
    for reason in reasons:
        assert inspect(path, frozenset((reason,))) == {reason}


def test_an_origin_that_reads_parameters_takes_what_stands_before_them():
    assert inspect(b"/..;x", reads_parameters=True) >= {"dot-segment", "dot-segment-parameter", "above-root"}


def test_an_origin_that_merges_slashes_enters_no_empty_segment():
    assert inspect(b"/a//../b", merges=True) == {"dot-segment"}
    assert inspect(b"//..", merges=True) == {"dot-segment", "above-root"}


@pytest.mark.parametrize(
    ("text", "valid"),
    [(b"%C3%A9", True), (b"\xc3%A9", True), (b"%C3", False), (b"%ED%A0%80", False), (b"", True)],
)
def test_escapes_and_bytes_make_utf_8_together(text, valid):
    assert is_utf_8(text) is valid
