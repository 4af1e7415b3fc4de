"""A host and its port in one spelling (RFC 9110 §4.2.3); what else is none stands in test_uri_target.py."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.authority import DEFAULT_PORTS, Authority, parse_authority


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        (b"EN.Example.", (b"en.example", None)),
        (b"en.example:", (b"en.example", None)),
        (b"\ten.example:0080 ", (b"en.example", 80)),
        (b"[::1]:65535", (b"[::1]", 65535)),
        (b"en.example:65536", None),
        (b"en.example:0", None),
        (b"user@en.example", None),
        (b"en%2eexample", None),
        (b"::1", None),
        (b"", None),
        (b"a" * 301, None),
    ],
)
def test_an_authority_is_a_host_and_maybe_a_port(text: bytes, authority: Authority | None) -> None:
    assert parse_authority(text) == authority


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_is_spelled_as_rfc_5952_has_it(address: ipaddress.IPv6Address) -> None:
    expected = b"[%b]" % ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")).encode()
    short = parse_authority(expected)
    assert short is not None
    assert parse_authority(b"[%b]" % address.exploded.upper().encode()) == short
    assert ipaddress.IPv6Address(short[0][1:-1].decode()) == address
    if address.ipv4_mapped is None:
        assert short[0] == b"[%b]" % address.compressed.encode()


def test_the_default_ports() -> None:
    assert DEFAULT_PORTS == {b"http": 80, b"https": 443}
