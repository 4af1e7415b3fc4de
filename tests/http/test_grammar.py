"""Tokens, percent-escapes (RFC 9110 §5.6.2, RFC 3986 §2.1), and globs: "*" for any octets, "?" for one."""

import re
from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.grammar import SIGNS, TOKEN, TOKEN_OCTETS, compile_globs, is_token, unescape


def test_a_token_is_of_letters_digits_and_fifteen_signs():
    octets = {octet for octet in range(256) if is_token(bytes((octet,)))}
    visible = set(range(0x21, 0x7F)) - set(b'"(),/:;<=>?@[\\]{}')
    assert octets == visible == set(TOKEN_OCTETS)
    assert len(SIGNS) == 15
    assert not is_token(b"")


@given(st.binary(max_size=4) | st.text("a-!|^~`:; ", max_size=4).map(str.encode))
def test_the_pattern_of_a_token_is_the_same_rule(text):
    assert is_token(text) is (re.fullmatch(TOKEN, text) is not None)


@cases(
    "text, octets",
    (b"", b""),
    (b"a+b", b"a+b"),
    (b"%41%2f%2F", b"A//"),
    (b"%2541", b"%41"),
    (b"%%41", b"%A"),
    (b"%4", b"%4"),
    (b"%g1%", b"%g1%"),
    (b"%00%ff", b"\x00\xff"),
)
def test_an_escape_is_decoded_once(text, octets):
    assert unescape(text) == octets


@given(st.text("%0aF4/", max_size=12).map(str.encode) | st.binary(max_size=9))
def test_escapes_are_decoded_as_elsewhere(text):
    assert unescape(text) == unquote_to_bytes(text)


# Globs: "*" for any octets, "?" for one


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
