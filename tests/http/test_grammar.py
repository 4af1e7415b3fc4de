"""Tokens, percent-escapes and absolute URLs (RFC 9110 §5.6.2, RFC 3986 §2.1, §4.3)."""

import re
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.grammar import SIGNS, TOKEN, TOKEN_OCTETS, is_token, split_absolute, unescape


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


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (b"http://a", (b"http", b"a", b"")),
        (b"HTTP://A:80/b?c#d", (b"HTTP", b"A:80", b"/b?c#d")),
        (b"a+1.-://u@h?x://y", (b"a+1.-", b"u@h", b"?x://y")),
        (b"file:///a", (b"file", b"", b"/a")),
        (b"http://a#/b", (b"http", b"a", b"#/b")),
        (b"http://a b\r\n\xff/\n", (b"http", b"a b\r\n\xff", b"/\n")),
        (b"/http://a", None),
        (b"http:/a", None),
        (b"1http://a", None),
        (b"://a", None),
        (b"//a", None),
        (b" http://a", None),
        (b"", None),
    ],
)
def test_the_parts_of_an_absolute_url(url, parts):
    found = split_absolute(url)
    assert found == parts
    if found is not None:
        assert b"%b://%b%b" % found == url
