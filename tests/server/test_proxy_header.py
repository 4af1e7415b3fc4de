"""The PROXY header of both versions: what it says, how many bytes it has, and what is none."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from univocal.server.introduction import LONGEST, ProxyHeader, ProxyHeaderError, read_proxy_header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def version_2(family, content, command=1, version=2):
    return SIGNATURE + struct.pack("!BBH", version << 4 | command, family, len(content)) + content


def ends(client, server, first, second):
    return ip_address(client).packed + ip_address(server).packed + struct.pack("!HH", first, second)


V4 = ends("192.0.2.1", "198.51.100.1", 4711, 443)
V6 = ends("2001:db8::1", "2001:db8::2", 4711, 443)
TLV = b"\x03\x00\x04\x00\x00\x00\x00" + b"\xe0\x00\x02ab"

WHOLE = [
    (b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n", ("192.0.2.1", 4711), ("198.51.100.1", 443)),
    (b"PROXY TCP6 ::ffff:192.0.2.9 2001:db8::2 1 2\r\n", ("192.0.2.9", 1), ("2001:db8::2", 2)),
    (b"PROXY TCP6 2001:DB8::1 2001:db8:0::2 1 65535\r\n", ("2001:db8::1", 1), ("2001:db8::2", 65535)),
    (b"PROXY UNKNOWN\r\n", None, None),
    (b"PROXY UNKNOWN ffff:: ffff:: 65535 65535\r\n", None, None),
    (version_2(0x11, V4), ("192.0.2.1", 4711), ("198.51.100.1", 443)),
    (version_2(0x21, V6), ("2001:db8::1", 4711), ("2001:db8::2", 443)),
    (version_2(0x11, V4 + TLV), ("192.0.2.1", 4711), ("198.51.100.1", 443)),
    (version_2(0x00, b""), None, None),
    (version_2(0x00, V4 + TLV), None, None),
    (version_2(0x31, bytes(216)), None, None),
]


@pytest.mark.parametrize(("header", "client", "server"), WHOLE)
def test_a_header_names_client_and_server(header, client, server):
    read = read_proxy_header(header + b"GET / HTTP/1.1\r\n")
    assert read == ProxyHeader(len(header), False, client, server)


@pytest.mark.parametrize(("header", "client", "server"), WHOLE)
def test_a_header_in_pieces_needs_all_of_them(header, client, server):
    assert [read_proxy_header(header[:length]) for length in range(len(header))] == [None] * len(header)


@pytest.mark.parametrize("content", [b"", V4, b"anything at all"])
def test_a_local_connection_is_the_proxy_s_own(content):
    header = version_2(0x11, content, command=0)
    assert read_proxy_header(header) == ProxyHeader(len(header), is_local=True)


@cases(
    "data",
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01",
    b"proxy TCP4 192.0.2.1 198.51.100.1 4711 443\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.1 4711\r\n",
    b"PROXY TCP4  192.0.2.1 198.51.100.1 4711 443\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443 \r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 65536\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.1 04711 443\r\n",
    b"PROXY TCP4 192.0.2.256 198.51.100.1 4711 443\r\n",
    b"PROXY TCP4 2001:db8::1 2001:db8::2 4711 443\r\n",
    b"PROXY TCP6 192.0.2.1 198.51.100.1 4711 443\r\n",
    b"PROXY UDP4 192.0.2.1 198.51.100.1 4711 443\r\n",
    b"PROXY UNKNOWN" + b"x" * 94,
    b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\nGET /\r\n",
    version_2(0x11, V4, version=1),
    version_2(0x11, V4, command=2),
    version_2(0x12, V4),
    version_2(0x41, V4),
    version_2(0x11, V4[:-1]),
    version_2(0x21, V4),
    version_2(0x11, V4 + bytes(LONGEST)),
)
def test_a_header_that_cannot_be_is_refused(data):
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(data)


def test_too_long_a_header_is_refused_by_its_first_bytes():
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(version_2(0x11, V4 + bytes(LONGEST))[:16])


@given(st.binary(max_size=300), any_of(b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21"))
def test_no_bytes_raise_another_error(data, begin):
    try:
        read = read_proxy_header(begin + data)
    except ProxyHeaderError:
        return
    assert read is None or 0 < read.length <= len(begin + data)


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 65535), st.integers(0, 65535))
def test_both_versions_say_the_same(client, server, first, second):
    line = f"PROXY TCP4 {client} {server} {first} {second}\r\n".encode()
    one = read_proxy_header(line)
    two = read_proxy_header(version_2(0x11, ends(str(client), str(server), first, second)))
    assert one is not None
    assert two is not None
    assert one[1:] == two[1:]
