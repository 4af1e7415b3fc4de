"""Dot segments, slashes, parameters: each step by itself, beside the profiles that put them together."""

import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.uri.segments import (
    add_trailing_slash,
    is_under,
    merge_slashes,
    remove_dot_segments,
    remove_empty_segments,
    remove_index_name,
    remove_servlet_dot_segments,
    remove_trailing_slash,
    routing_view,
    strip_parameters,
)

PARAMETER = re.compile(rb"[;][^/]*")


@pytest.mark.parametrize(
    ("path", "by_rfc", "by_servlet"),
    [
        (b"/", b"/", b"/"),
        (b"/a/b/..", b"/a/", b"/a"),
        (b"/a/./b/.", b"/a/b/", b"/a/b"),
        (b"/a//../b", b"/a/b", b"/a/b"),
        (b"/../../a", b"/a", b"/a"),
        (b"/a/..;x/b", b"/a/..;x/b", b"/b"),
        (b"/a/.../b", b"/a/.../b", b"/a/.../b"),
        (b"/a/%2e%2e/b", b"/a/%2e%2e/b", b"/a/%2e%2e/b"),
    ],
)
def test_dot_segments_by_two_standards(path, by_rfc, by_servlet):
    assert remove_dot_segments(path) == by_rfc
    assert remove_servlet_dot_segments(path, PARAMETER) == by_servlet


@given(st.lists(st.sampled_from(["a", "b", ".", ".."]), min_size=1, max_size=8))
def test_without_empty_segments_it_reads_like_a_file_system(segments):
    path = "/" + "/".join(segments)
    assert remove_servlet_dot_segments(path.encode(), PARAMETER).decode() == posixpath.normpath(path)


@pytest.mark.parametrize(
    ("step", "path", "result"),
    [
        (merge_slashes, b"//a///b//", b"/a/b/"),
        (merge_slashes, b"/a/b", b"/a/b"),
        (lambda path: remove_empty_segments(path, PARAMETER), b"//a/;x//b//", b"/a/b/"),
        (lambda path: remove_empty_segments(path, PARAMETER), b"/a;x/b", b"/a;x/b"),
        (lambda path: strip_parameters(path, PARAMETER), b"/a;x=1/b;y;z/c", b"/a/b/c"),
        (lambda path: strip_parameters(path, PARAMETER), b"/a,x", b"/a,x"),
        (lambda path: remove_index_name(path, frozenset((b"index.html",))), b"/a/index.html", b"/a/"),
        (lambda path: remove_index_name(path, frozenset((b"index.html",))), b"/a/index.htm", b"/a/index.htm"),
        (add_trailing_slash, b"/a", b"/a/"),
        (add_trailing_slash, b"/a.css", b"/a.css"),
        (add_trailing_slash, b"/a/", b"/a/"),
        (remove_trailing_slash, b"/a//", b"/a"),
        (remove_trailing_slash, b"/", b"/"),
        (remove_trailing_slash, b"//", b"/"),
    ],
)
def test_the_other_steps(step, path, result):
    assert step(path) == result
    assert step(result) == result


def test_a_route_is_chosen_whatever_the_spelling_of_unreserved_octets():
    assert routing_view(b"/%61/./b/../c%2Fd%5b") == b"/a/c%2Fd%5B"


@pytest.mark.parametrize(
    ("path", "prefix", "under"),
    [
        (b"/a", b"/a", True),
        (b"/a/b", b"/a", True),
        (b"/ab", b"/a", False),
        (b"/a", b"/a/", False),
        (b"/a/", b"/a/", True),
        (b"/b", b"/", True),
    ],
)
def test_a_prefix_is_of_whole_segments(path, prefix, under):
    assert is_under(path, prefix) is under
