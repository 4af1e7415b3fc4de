"""Errors in a request's head (RFC 9112 §3, §6); server/test_exact_requests.py has rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of
from univocal.http.framing import WATCHED, faults, field_octets, is_authority

WORDS = any_of(b"en.example", b"a b", b"", b"0", b"12", b"-1", b"chunked", b"gzip")


@given(
    any_of(b"GET", b"CONNECT"),
    any_of(b"/", b"*", b"a", b"http://a/", b"http://a@b/", b""),
    any_of("1.0", "1.1", "2"),
    st.lists(st.tuples(st.sampled_from(sorted(WATCHED)), WORDS), max_size=4),
)
def test_unwatched_fields_change_no_fault(method, target, version, fields):
    """Two fields of one name make no head plain, so that the shortcut and the long way are compared."""
    more = [*fields, (b"x", b"1"), (b"x", b"1")]
    assert faults(method, target, version, fields) == faults(method, target, version, more)


HOSTS = b"a A.example. a_b-c.example:80 192.0.2.7:8080 [::1] [2001:db8::1]:65535 a: a:00080".split()
NO_HOSTS = [
    *b":80 a:b a:-1 a:65536 a:80:80 a/b a?b a#b a@b a%41 a!b a..b ::1 [::1 ::1] [::1]a [] [g::1]".split(),
    *(b"", b"a b", b"[v1.a]", b"[::1%25eth0]", b"a\\b", b'a"', b"a,b\n", "é".encode(), b"\x00", b"a" * 301),
]


@pytest.mark.parametrize("value", [*HOSTS, *NO_HOSTS])
def test_an_authority_is_a_host_with_or_without_a_port(value):
    assert is_authority(value) is (value in HOSTS)


def test_bytes_of_field_lines_include_separators_and_line_ends():
    assert field_octets([]) == 0
    assert field_octets([(b"a", b"b"), (b"cd", b"")]) == len(b"a: b\r\ncd: \r\n")
