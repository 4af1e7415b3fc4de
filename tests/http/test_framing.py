"""What is wrong with a request's head (RFC 9112 §3, §6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.framing import (
    WATCHED,
    SplitTarget,
    faults,
    field_octets,
    is_ambiguous,
    is_authority,
    split_target,
)

HOST = (b"host", b"en.example")


@pytest.mark.parametrize(
    ("method", "target", "version", "fields", "expected"),
    [
        (b"GET", b"/", "1.1", [HOST], ()),
        (b"GET", b"/", "1.1", [HOST, (b"content-length", b"0")], ()),
        (b"POST", b"/", "1.1", [HOST, (b"transfer-encoding", b"Chunked ")], ()),
        (b"GET", b"/", "1.0", [], ()),
        (b"OPTIONS", b"*", "1.1", [HOST], ()),
        (b"GET", b"http://en.example/a", "1.1", [HOST], ()),
        (b"GET", b"/", "1.1", [], ("bad-host",)),
        (b"GET", b"/", "1.1", [HOST, HOST], ("bad-host",)),
        (b"GET", b"/", "1.1", [(b"host", b"a/b")], ("bad-host",)),
        (b"GET", b"/", "1.1", [(b"host", b"")], ("bad-host",)),
        (b"GET", b"/", "1.1", [(b"content-length", b"0")], ("bad-host",)),
        (b"GET", b"/", "1.1", [HOST, (b"content-length", b"+1")], ("bad-framing",)),
        (b"GET", b"/", "1.1", [HOST, (b"content-length", b"")], ("bad-framing",)),
        (b"GET", b"/", "1.1", [HOST, (b"content-length", b"1"), (b"content-length", b"1")], ("bad-framing",)),
        (
            b"POST", b"/", "1.1", [HOST, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
            ("bad-framing",),
        ),
        (b"POST", b"/", "1.1", [HOST, (b"content-length", b"0200")], ()),
        (b"POST", b"/", "1.1", [HOST, (b"content-length", b"9" * 18)], ()),
        (b"POST", b"/", "1.1", [HOST, (b"content-length", b"1" + b"0" * 18)], ("bad-framing",)),
        (b"POST", b"/", "1.1", [HOST, (b"content-length", b"0" * 18 + b"5")], ("bad-framing",)),
        (b"POST", b"/", "1.1", [HOST, (b"transfer-encoding", b"gzip, chunked")], ("bad-framing",)),
        (b"POST", b"/", "1.0", [(b"transfer-encoding", b"chunked")], ("bad-framing",)),
        (b"GET", b"/", "2.0", [HOST], ("bad-framing",)),
        (b"CONNECT", b"/", "1.1", [HOST], ("bad-target",)),
        (b"GET", b"*", "1.1", [HOST], ("bad-target",)),
        (b"GET", b"http://a@en.example/", "1.1", [HOST], ("bad-target",)),
        (b"GET", b"ftp://en.example/", "1.1", [HOST], ("bad-target",)),
        (b"GET", b"a", "1.1", [HOST], ("no-leading-slash",)),
        (b"GET", b"/", "1.0", [(b"host", b"")], ("bad-host",)),
        (b"GET", b"/", "0.9", [HOST], ("bad-framing",)),
        (b"GET", b"/", "1.1", [HOST, (b"expect", b"100-continue")], ()),
        (b"GET", b"/", "1.1", [HOST, (b"content-length", b"\xb2")], ("bad-framing",)),
        (b"GET", b"/", "1.1", [(b"transfer-encoding", b"gzip")], ("bad-framing", "bad-host")),
        (b"OPTIONS", b"*?a", "1.1", [HOST], ("no-leading-slash",)),
        (b"GET", b"http://b:x/", "1.1", [HOST], ("bad-host",)),
        (b"GET", b"http://", "1.1", [HOST], ("bad-host",)),
        (b"GET", b"http://u@b:x/", "1.1", [HOST], ("bad-host", "bad-target")),
        (b"GET", b"ws://b/", "1.1", [HOST], ("bad-target",)),
        (b"CONNECT", b"a:443", "1.1", [HOST], ("bad-target",)),
        (b"GET", b"a:443", "1.1", [HOST], ("no-leading-slash",)),
        (b"GET", b"", "1.1", [HOST], ("no-leading-slash",)),
    ],
)  # fmt: skip
def test_faults_of_a_head(method, target, version, fields, expected):
    assert faults(method, target, version, fields) == expected
    assert is_ambiguous(fields, version) is ("bad-framing" in expected)


WORDS = st.sampled_from([b"en.example", b"a b", b"", b"0", b"12", b"-1", b"chunked", b"gzip"])


@given(
    st.sampled_from([b"GET", b"CONNECT"]),
    st.sampled_from([b"/", b"*", b"a", b"http://a/", b"http://a@b/", b""]),
    st.sampled_from(["1.0", "1.1", "2"]),
    st.lists(st.tuples(st.sampled_from(sorted(WATCHED)), WORDS), max_size=4),
)
def test_what_is_not_watched_changes_nothing(method, target, version, fields):
    """Two fields of one name make no head plain, so that the shortcut and the long way are compared."""
    more = [*fields, (b"x", b"1"), (b"x", b"1")]
    assert faults(method, target, version, fields) == faults(method, target, version, more)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/a?b#c", SplitTarget(None, b"/a", b"b")),
        (b"HTTP://en.example?b", SplitTarget(b"en.example", b"/", b"b")),
        (b"https://en.example:1/a?b?c", SplitTarget(b"en.example:1", b"/a", b"b?c")),
        (b"*", SplitTarget(None, b"*", b"")),
        (b"ftp://en.example/", SplitTarget(None, b"ftp://en.example/", b"")),
        (b"/a;b?c?d#e?f", SplitTarget(None, b"/a;b", b"c?d")),
        (b"//a/b", SplitTarget(None, b"//a/b", b"")),
        (b"/http://a/b", SplitTarget(None, b"/http://a/b", b"")),
        (b"http://a#b/c", SplitTarget(b"a", b"/", b"")),
        (b"http://u@a/b/?c", SplitTarget(b"u@a", b"/b/", b"c")),
        (b"http:///b", SplitTarget(b"", b"/b", b"")),
    ],
)
def test_the_parts_of_a_target(target, parts):
    assert split_target(target) == parts


HOSTS = b"a A.example. a_b-c.example:80 192.0.2.7:8080 [::1] [2001:db8::1]:65535 a: a:00080".split()
NO_HOSTS = [
    *b":80 a:b a:-1 a:65536 a:80:80 a/b a?b a#b a@b a%41 a!b a..b ::1 [::1 ::1] [::1]a [] [g::1]".split(),
    *(b"", b"a b", b"[v1.a]", b"[::1%25eth0]", b"a\\b", b'a"', b"a,b\n", "é".encode(), b"\x00", b"a" * 301),
]


@pytest.mark.parametrize("value", [*HOSTS, *NO_HOSTS])
def test_an_authority_is_a_host_with_or_without_a_port(value):
    assert is_authority(value) is (value in HOSTS)


def test_the_octets_of_field_lines():
    assert field_octets([]) == 0
    assert field_octets([(b"a", b"b"), (b"cd", b"")]) == len(b"a: b\r\ncd: \r\n")
