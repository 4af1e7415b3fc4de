"""Tokens, percent-escapes and absolute URLs (RFC 9110 §5.6.2, RFC 3986 §2.1, §4.3)."""

import re
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.grammar import SIGNS, TOKEN, TOKEN_OCTETS, is_token, unescape


def test_a_token_is_of_letters_digits_and_fifteen_signs():
    octets = {octet for octet in range(256) if is_token(bytes((octet,)))}
    visible = set(range(0x21, 0x7F)) - set(b'"(),/:;<=>?@[\\]{}')
    assert octets == visible == set(TOKEN_OCTETS)
    assert len(SIGNS) == 15
    assert not is_token(b"")


@given(st.binary(max_size=4) | st.text("a-!|^~`:; ", max_size=4).map(str.encode))
def test_the_pattern_of_a_token_is_the_same_rule(text):
    assert is_token(text) is (re.fullmatch(TOKEN, text) is not None)


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        (b"", b""),
        (b"a+b", b"a+b"),
        (b"%41%2f%2F", b"A//"),
        (b"%2541", b"%41"),
        (b"%%41", b"%A"),
        (b"%4", b"%4"),
        (b"%g1%", b"%g1%"),
        (b"%00%ff", b"\x00\xff"),
    ],
)
def test_an_escape_is_decoded_once(text, octets):
    assert unescape(text) == octets


@given(st.text("%0aF4/", max_size=12).map(str.encode) | st.binary(max_size=9))
def test_escapes_are_decoded_as_elsewhere(text):
    assert unescape(text) == unquote_to_bytes(text)
