"""A host and its port in one spelling (RFC 9110 §4.2.3); what else is none stands in test_uri_target.py."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.grammar import DEFAULT_PORTS, a_labels, parse_authority


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_is_spelled_as_rfc_5952_has_it(address):
    groups = struct.unpack("!8H", address.packed)  # Python 3.13 writes ::ffff:0.0.0.0, and others may not
    short = parse_authority(b"[%b]" % ":".join(f"{group:x}" for group in groups).encode())
    assert short is not None
    assert parse_authority(b"[%b]" % ":".join(f"{group:04X}" for group in groups).encode()) == short
    assert ipaddress.IPv6Address(short[0][1:-1].decode()) == address
    if address.ipv4_mapped is None:
        assert short[0] == b"[%b]" % address.compressed.encode()


def test_the_default_ports():
    assert DEFAULT_PORTS == {b"http": 80, b"https": 443}


@cases(
    "authority, ascii_form",
    ("b\u00fccher.example:8080", b"xn--bcher-kva.example:8080"),
    ("\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444:80", b"xn--e1afmkfd.xn--p1ai:80"),
    ("b\u00fccher:", b"xn--bcher-kva:"),
    ("stra\u00dfe.de", b"xn--strae-oqa.de"),
    ("STRA\u1e9eE.de:81", b"xn--strae-oqa.de:81"),
    ("\u03b2\u03cc\u03bb\u03bf\u03c2.com", b"xn--nxasmm1c.com"),
    ("a_b.\u00fc\u3002example", b"a_b.xn--tda.example"),
    ("*.b\u00fccher.example", b"*.xn--bcher-kva.example"),
    ("\u2603.example", b"xn--n3h.example"),
    ("[::1]:80", b"[::1]:80"),
)
def test_a_host_is_written_as_browsers_send_it(authority, ascii_form):
    assert a_labels(authority) == ascii_form


@pytest.mark.parametrize("authority", ["a\u200db.example", "\u00df_a.example", "\u00fc" * 64])
def test_a_host_without_an_a_label_is_refused(authority):
    with pytest.raises(UnicodeError):
        a_labels(authority)
