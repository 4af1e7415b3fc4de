"""Dot segments, slashes, parameters: each step by itself, beside the profiles that put them together."""

import posixpath
import re

from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.uri.segments import remove_dot_segments, remove_servlet_dot_segments, routing_view

PARAMETER = re.compile(rb"[;][^/]*")


@cases(
    "path, by_rfc, by_servlet",
    (b"/", b"/", b"/"),
    (b"/a/b/..", b"/a/", b"/a"),
    (b"/a/./b/.", b"/a/b/", b"/a/b"),
    (b"/a//../b", b"/a/b", b"/a/b"),
    (b"/../../a", b"/a", b"/a"),
    (b"/a/..;x/b", b"/a/..;x/b", b"/b"),
    (b"/a/.../b", b"/a/.../b", b"/a/.../b"),
    (b"/a/%2e%2e/b", b"/a/%2e%2e/b", b"/a/%2e%2e/b"),
)
def test_dot_segments_by_two_standards(path, by_rfc, by_servlet):
    assert remove_dot_segments(path) == by_rfc
    assert remove_servlet_dot_segments(path, PARAMETER) == by_servlet


@given(st.lists(st.sampled_from(["a", "b", ".", ".."]), min_size=1, max_size=8))
def test_without_empty_segments_it_reads_like_a_file_system(segments):
    path = "/" + "/".join(segments)
    assert remove_servlet_dot_segments(path.encode(), PARAMETER).decode() == posixpath.normpath(path)


def test_a_route_is_chosen_whatever_the_spelling_of_unreserved_characters():
    assert routing_view(b"/%61/./b/../c%2Fd%5b") == b"/a/c%2Fd%5B"
