"""Globs: "*" for any octets, "?" for one."""

from hypothesis import given
from hypothesis import strategies as st

from univocal.http.grammar import compile_globs


def test_without_globs_there_is_no_expression():
    assert compile_globs([]) is None


def plainly(glob, text):
    """The definition, in every way that it can be met."""
    if not glob:
        return not text
    if glob[:1] == b"*":
        return any(plainly(glob[1:], text[cut:]) for cut in range(len(text) + 1))
    return bool(text) and glob[:1] in {b"?", text[:1]} and plainly(glob[1:], text[1:])


@given(
    st.lists(st.text("ab*?.|[\n", max_size=5).map(str.encode), min_size=1, max_size=3),
    st.text("ab.|[\n", max_size=6).map(str.encode),
)
def test_the_first_place_of_each_piece_is_enough(globs, text):
    pattern = compile_globs(globs)
    assert pattern is not None
    assert (pattern.fullmatch(text) is not None) is any(plainly(glob, text) for glob in globs)


def test_a_hostile_text_is_not_tried_in_every_way():
    pattern = compile_globs([b"*a*a*a*a*a*a*a*a*a*a*b"])
    assert pattern is not None
    assert pattern.fullmatch(b"a" * 8_000) is None
