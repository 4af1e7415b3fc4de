import sys

import pytest

from examples import cases
from univocal.http.grammar import RESERVED, UNRESERVED
from univocal.uri.percent_encoding import DECODE, ENCODE, KEEP, RINGS, DecoderRing

RFC3986 = RINGS["rfc3986"]


def test_rfc3986_splits_the_bytes_into_66_18_and_172():
    assert sorted(RFC3986.forms).count(DECODE) == len(UNRESERVED) == 66
    assert sorted(RFC3986.forms).count(KEEP) == len(RESERVED) == 18
    assert sorted(RFC3986.forms).count(ENCODE) == 172


def test_every_byte_in_every_spelling():
    ring = DecoderRing.from_sets(b":/@", b"[]")
    for octet in range(256):
        bare, upper, lower = b"%c" % octet, b"%%%02X" % octet, b"%%%02x" % octet
        escaped = bare if octet in UNRESERVED + b":/@" else upper
        assert ring.canonical(b"/x" + upper) == ring.canonical(b"/x" + lower) == b"/x" + escaped
        kept = octet in set(RESERVED) - set(b"[]")
        expected = bare if kept else b"%25" if octet == 0x25 else escaped
        assert ring.canonical(b"/x" + bare) == b"/x" + expected


@cases(
    "path, canonical",
    (b"/%", b"/%25"),
    (b"/%4", b"/%254"),
    (b"/%4g", b"/%254g"),
    (b"/%%%", b"/%25%25%25"),
    (b"/%%34%31", b"/%2541"),
    (b"/%2%35", b"/%2525"),
    (b"/%252e", b"/%252e"),
    (b"/%c3%A9\xc3\xa9", b"/%C3%A9%C3%A9"),
)
def test_percent_signs(path, canonical):
    assert RFC3986.canonical(path) == canonical
    assert RFC3986.canonical(canonical) is canonical


def forms(**changes):
    changed = bytearray(RFC3986.forms)
    for octet, form in changes.items():
        changed[int(octet[1:], 16)] = form
    return bytes(changed)


@cases(
    "ambiguous, complaint",
    (b"\1" * 255, "256 values"),
    (forms(_61=3), "256 values"),
    (forms(_00=DECODE), "0x00 is never decoded"),
    (forms(_20=DECODE), "0x20 is never decoded"),
    (forms(_7F=DECODE), "0x7F is never decoded"),
    (forms(_80=DECODE), "0x80 is never decoded"),
    (forms(_25=DECODE), "'%' is never decoded"),
    (forms(_3F=DECODE), r"'\?' is never decoded"),
    (forms(_23=DECODE), "'#' is never decoded"),
    (forms(_0A=KEEP), "0x0A is always encoded"),
    (forms(_FF=KEEP), "0xFF is always encoded"),
    (forms(_2F=ENCODE), "'/' between segments is never encoded"),
    (forms(_41=KEEP), "'A' is unreserved"),
    (forms(_7E=ENCODE), "'~' is unreserved"),
)
def test_ambiguous_rings_are_refused(ambiguous, complaint):
    with pytest.raises(ValueError, match=complaint):
        DecoderRing(ambiguous)


def test_a_byte_is_not_in_both_sets():
    with pytest.raises(ValueError, match=r"'\(' is not both decoded and encoded"):
        DecoderRing.from_sets(b"()", b"(")


def test_a_numeric_table_may_decode_disallowed_printable_bytes():
    """nginx before 1.21 left these bare."""
    ring = DecoderRing(forms(_7C=DECODE, _5E=KEEP))
    assert ring.canonical(b"/%7c|%5e^") == b"/||%5E^"


@cases(
    "name, bits",
    # The second to fourth word of the tables in ngx_escape_uri and of ngx_lua's own; the others are full.
    ("nginx-uri", (0xD000002D, 0x50000000, 0xB8000001)),
    ("nginx-args", (0xD800086D, 0x50000000, 0xB8000001)),
    ("nginx-uri-component", (0xFC009FFF, 0x78000001, 0xB8000001)),
    ("nginx-1.13-uri", (0x80000029, 0x00000000, 0x80000000)),
    ("nginx-1.13-args", (0x88000869, 0x00000000, 0x80000000)),
    ("ngx-lua", (0xFC00987D, 0x78000001, 0xB8000001)),
)
def test_the_rings_of_nginx_escape_what_its_tables_do(name, bits):
    ring = RINGS[name]
    words = (0xFFFFFFFF, *bits, *[0xFFFFFFFF] * 4)
    for octet in set(range(256)) - set(b"/"):
        escapes = bool(words[octet >> 5] & 1 << (octet & 31))
        assert ring.canonical(b"%%%02x" % octet) == (b"%%%02X" % octet if escapes else b"%c" % octet)
    parts = bits[0] & 1 << (0x2F & 31)  # of a table for parts between slashes, an escaped slash is data
    assert ring.canonical(b"/%2f") == (b"/%2F" if parts else b"//")


def test_plus_is_a_space_to_ngx_lua():
    assert RINGS["ngx-lua"].canonical(b"a+b%2b%20") == b"a%20b%2B%20"


@pytest.mark.parametrize("path", [b"+" * 8_000, b"+&" * 4_000, b"a+%3A" * 1_600])
def test_bytes_are_encoded_by_few_calls(path):
    """Of a path of 8 kB others wait for less than a millisecond."""
    calls, ring = list[str](), DecoderRing.from_sets(b":", b"+&")
    sys.setprofile(lambda _, event, __: calls.append(event) if "call" in event else None)
    try:
        canonical = ring.canonical(path)
    finally:
        sys.setprofile(None)
    assert canonical == path.replace(b"+", b"%2B").replace(b"&", b"%26").replace(b"%3A", b":")
    assert len(calls) < len(path)
