"""Whose forwarded fields are believed, and which of their values."""

import pytest

from univocal.engine.trust import believe, networks, within
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received

TRUSTED = networks(["10.0.0.0/8", "2001:db8::/32"])
HOST = (b"host", b"own.example")


def believed(*fields, client="10.0.0.1", scheme=b"http"):
    return believe(Received(b"GET", b"/", scheme, client), [HOST, *fields], TRUSTED)


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.0.0.1", True),
        ("10.255.255.255", True),
        ("11.0.0.0", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("::ffff:10.0.0.1", True),  # an IPv4 client on a dual-stack socket
        ("::ffff:11.0.0.1", False),
        ("2001:db8::1%eth0", True),
        ("testclient", False),
        ("/run/socket", False),
        ("", False),
        ("10.0.0.1, 11.0.0.1", False),
        ("010.0.0.1", False),
        (None, False),
    ],
)
def test_an_address_lies_in_a_network_or_not(address, inside):
    assert within(address, TRUSTED) is inside


def test_nothing_lies_in_no_network():
    assert not within("10.0.0.1", ())


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0.0/33", "10.0.0.1/8", "*", "unix:"])
def test_what_is_no_network_is_refused_with_what_was_found(text):
    with pytest.raises(ConfigurationError) as raised:
        networks([text])
    assert raised.value.found == text


FORWARDED = [
    (b"x-forwarded-for", b"198.51.100.7"),
    (b"x-forwarded-host", b"shown.example"),
    (b"x-forwarded-proto", b"https"),
]


def test_a_trusted_proxy_is_believed():
    peer = believed(*FORWARDED)
    assert (peer.hosts, peer.scheme, peer.client) == ([b"shown.example"], b"https", "198.51.100.7")
    assert peer.chain == (b"198.51.100.7",)


@pytest.mark.parametrize("client", ["198.51.100.1", "testclient", None])
@pytest.mark.parametrize(
    "fields", [FORWARDED, [(b"forwarded", b"for=10.0.0.9;host=shown.example;proto=https")]]
)
def test_a_stranger_is_not_believed(client, fields):
    peer = believed(*fields, client=client)
    assert (peer.hosts, peer.scheme, peer.client, peer.chain) == ([b"own.example"], b"http", client, ())


def test_a_trusted_proxy_without_a_word_is_the_client():
    peer = believed()
    assert (peer.hosts, peer.scheme, peer.client) == ([b"own.example"], b"http", "10.0.0.1")


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ([b"198.51.100.7"], "198.51.100.7"),
        (
            [b"127.0.0.1, 198.51.100.7"],
            "198.51.100.7",
        ),  # what a stranger sent stands before what it came from
        ([b"198.51.100.7, 10.0.0.2"], "198.51.100.7"),  # a trusted proxy behind another
        ([b"198.51.100.7", b"10.0.0.2"], "198.51.100.7"),
        ([b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),  # all are trusted: the first of them asked
        ([b"198.51.100.7, unknown"], None),
        ([b"10.0.0.3, what, 10.0.0.2"], None),
        ([b"198.51.100.7:4711"], "198.51.100.7"),
        ([b"[2001:db9::7]:4711"], "2001:db9::7"),
        ([b"2001:DB9::7"], "2001:db9::7"),
        ([b" , 198.51.100.7 ,"], "198.51.100.7"),
        ([b""], "10.0.0.1"),
        ([b"\xff"], None),
    ],
)
def test_the_client_is_the_last_of_the_chain_that_is_not_trusted(chain, client):
    assert believed(*[(b"x-forwarded-for", value) for value in chain]).client == client


@pytest.mark.parametrize(
    ("value", "scheme"),
    [
        (b"https", b"https"),
        (b"HTTPS", b"https"),
        (b"https, http", b"http"),
        (b"gopher", b"http"),
        (b"", b"http"),
    ],
)
def test_the_scheme_is_the_last_one_said_if_it_is_one(value, scheme):
    assert believed((b"x-forwarded-proto", value)).scheme == scheme


def test_the_host_is_the_last_one_said():
    peer = believed((b"x-forwarded-host", b"forged.example, shown.example"))
    assert peer.hosts == [b"shown.example"]


def test_two_host_fields_stay_two_for_the_canonicalizer_to_refuse():
    assert believed((b"host", b"other.example")).hosts == [b"own.example", b"other.example"]


@pytest.mark.parametrize(
    ("value", "hosts", "scheme", "client"),
    [
        (b"for=198.51.100.7;host=shown.example;proto=https", [b"shown.example"], b"https", "198.51.100.7"),
        (b'For="[2001:db9::7]:4711"; Proto=https', [b"own.example"], b"https", "2001:db9::7"),
        (b"for=198.51.100.7, for=10.0.0.2;proto=https", [b"own.example"], b"https", "198.51.100.7"),
        (b"for=unknown", [b"own.example"], b"http", None),
        (b"for=_hidden", [b"own.example"], b"http", None),
        (b'host="shown.example:8443"', [b"shown.example:8443"], b"http", "10.0.0.1"),
        (b"nonsense", [b"own.example"], b"http", "10.0.0.1"),
        (b'for=198.51.100.7;host="x,for=10.0.0.9"', [b"x,for=10.0.0.9"], b"http", "198.51.100.7"),
        (b'for=198.51.100.7;host="x\\",for=\\"10.0.0.9"', [b'x",for="10.0.0.9'], b"http", "198.51.100.7"),
        (b'for=198.51.100.7;by="[::1], for=10.0.0.9"', [b"own.example"], b"http", "198.51.100.7"),
        (b"for=10.0.0.9, proto=https;host=shown.example", [b"shown.example"], b"https", "10.0.0.1"),
        (b"for=10.0.0.9, proto=https, for=10.0.0.2", [b"own.example"], b"http", "10.0.0.2"),
        (b"for=198.51.100.7;, ,", [b"own.example"], b"http", "198.51.100.7"),
        (b"for=198.51.100.7 what, for=10.0.0.2", [b"own.example"], b"http", "10.0.0.2"),
        (b"for=198.51.100.7:4711", [b"own.example"], b"http", "198.51.100.7"),
    ],
)
def test_forwarded_is_read_as_well(value, hosts, scheme, client):
    peer = believed((b"forwarded", value))
    assert (peer.hosts, peer.scheme, peer.client) == (hosts, scheme, client)


@pytest.mark.parametrize(
    "value",
    [
        b"for=10.0.0.9;host=evil.example;proto=https, for=198.51.100.7",
        b'for="a;host=evil.example;proto=https", for=198.51.100.7',
        b'for="a, host=evil.example;proto=https, for=198.51.100.7',
    ],
)
def test_what_a_stranger_wrote_before_the_trusted_proxys_own_element_does_not_count(value):
    peer = believed((b"forwarded", value))
    assert (peer.hosts, peer.scheme, peer.client) == ([b"own.example"], b"http", "198.51.100.7")


def test_forwarded_does_not_count_beside_the_older_fields():
    peer = believed((b"x-forwarded-for", b"198.51.100.7"), (b"forwarded", b"for=10.0.0.9;host=evil.example"))
    assert (peer.hosts, peer.client) == ([b"own.example"], "198.51.100.7")


def test_the_elements_of_several_lines_are_one_list():
    peer = believed((b"forwarded", b'for=10.0.0.9;host="'), (b"forwarded", b"for=198.51.100.7"))
    assert (peer.hosts, peer.client) == ([b"own.example"], "198.51.100.7")


def test_a_long_value_takes_time_in_proportion():
    for part in (b",", b'a="', b',a="', b'\\",', b"a=b;", b" ;", b',a="\\"'):
        peer = believed((b"forwarded", part * (65536 // len(part)) + b",for=198.51.100.7"))
        assert peer.client == "198.51.100.7"


@pytest.mark.parametrize("name", [b"x-forwarded-for", b"forwarded"])
def test_of_a_long_chain_the_nearest_addresses_are_read(name):
    hop = b"%b10.0.0.9" % (b"for=" if name == b"forwarded" else b"")
    peer = believed((name, b", ".join([b"for=198.51.100.7"[4 * (name != b"forwarded") :], *[hop] * 63])))
    assert (peer.client, len(peer.chain)) == ("198.51.100.7", 64)
    peer = believed((name, b", ".join([hop] * 5_000)))
    assert (peer.client, len(peer.chain)) == ("10.0.0.9", 64)


def test_a_network_of_mapped_addresses_is_one_of_ipv4():
    assert within("10.0.0.9", networks(["::ffff:10.0.0.0/104"]))
    assert within("::ffff:10.0.0.9", networks(["::ffff:10.0.0.0/104"]))
    assert not within("11.0.0.9", networks(["::ffff:10.0.0.0/104"]))
