import pytest

from univocal.http.framing import SplitTarget, faults, field_octets, is_authority, split_target

ONE_HOST = [(b"host", b"a.example")]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/", SplitTarget(None, b"/", b"")),
        (b"*", SplitTarget(None, b"*", b"")),
        (b"/a;b?c?d#e?f", SplitTarget(None, b"/a;b", b"c?d")),
        (b"//a/b", SplitTarget(None, b"//a/b", b"")),
        (b"/http://a/b", SplitTarget(None, b"/http://a/b", b"")),
        (b"http://a", SplitTarget(b"a", b"/", b"")),
        (b"http://a#b/c", SplitTarget(b"a", b"/", b"")),
        (b"hTTpS://a:1?b", SplitTarget(b"a:1", b"/", b"b")),
        (b"http://u@a/b/?c", SplitTarget(b"u@a", b"/b/", b"c")),
        (b"http:///b", SplitTarget(b"", b"/b", b"")),
    ],
)
def test_a_target_is_split_without_its_fragment(target, expected):
    assert split_target(target) == expected


@pytest.mark.parametrize(
    "value",
    b"a A.example. a_b-c.example:80 192.0.2.7:8080 [::1] [2001:db8::1]:65535 a: a:00080".split(),
)
def test_what_names_a_host(value):
    assert is_authority(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b":80",
            b"a:b",
            b"a:-1",
            b"a:65536",
            b"a:80:80",
            b"a b",
            b"a/b",
            b"a?b",
            b"a#b",
            b"a@b",
            b"a%41",
        ),
        *(
            b"a!b",
            b"a..b",
            b"::1",
            b"[::1",
            b"::1]",
            b"[::1]a",
            b"[]",
            b"[g::1]",
            b"[v1.a]",
            b"[::1%25eth0]",
            b"a\\b",
            b'a"',
            b"a,b\n",
        ),
        *("é".encode(), b"\x00", b"a" * 301),
    ],
)
def test_what_is_no_host(value):
    assert not is_authority(value)


@pytest.mark.parametrize(
    ("fields", "version", "expected"),
    [
        (ONE_HOST, "1.1", ()),
        ([], "1.1", ("bad-host",)),
        ([], "1.0", ()),
        ([(b"host", b"")], "1.0", ("bad-host",)),
        (ONE_HOST, "0.9", ("bad-framing",)),
        (ONE_HOST, "2.0", ("bad-framing",)),
        ([*ONE_HOST, (b"expect", b"100-continue")], "1.1", ()),
        ([*ONE_HOST, (b"content-length", b"0")], "1.1", ()),
        ([*ONE_HOST, (b"content-length", b"")], "1.1", ("bad-framing",)),
        ([*ONE_HOST, (b"content-length", b"\xb2")], "1.1", ("bad-framing",)),
        ([*ONE_HOST, (b"transfer-encoding", b"\tChunked ")], "1.1", ()),
        ([*ONE_HOST, (b"transfer-encoding", b"chunked"), (b"content-length", b"1")], "1.1", ("bad-framing",)),
        ([(b"transfer-encoding", b"chunked")], "1.0", ("bad-framing",)),
        ([(b"transfer-encoding", b"gzip")], "1.1", ("bad-framing", "bad-host")),
    ],
)
def test_faults_of_the_fields(fields, version, expected):
    assert faults(b"GET", b"/", version, fields) == expected


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        (b"GET", b"/", ()),
        (b"OPTIONS", b"*", ()),
        (b"GET", b"*", ("bad-target",)),
        (b"OPTIONS", b"*?a", ("no-leading-slash",)),
        (b"GET", b"http://b", ()),
        (b"GET", b"http://b:x/", ("bad-host",)),
        (b"GET", b"http://", ("bad-host",)),
        (b"GET", b"http://u@b:x/", ("bad-host", "bad-target")),
        (b"GET", b"ws://b/", ("bad-target",)),
        (b"CONNECT", b"a:443", ("bad-target",)),
        (b"CONNECT", b"/", ("bad-target",)),
        (b"GET", b"a:443", ("no-leading-slash",)),
        (b"GET", b"", ("no-leading-slash",)),
    ],
)
def test_faults_of_the_target(method, target, expected):
    assert faults(method, target, "1.1", ONE_HOST) == expected


def test_field_octets_count_the_lines():
    assert field_octets([(b"host", b"a"), (b"x", b"")]) == len(b"Host: a\r\nX: \r\n")
