"""Forwarded fields: the peers and the values that are believed."""

import pytest

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received
from univocal.judge.trust import LikelyProxies, believe, family_named, networks, within

TRUSTED = networks(["10.0.0.0/8", "2001:db8::/32"])
HOST = (b"host", b"own.example")


def believed(*fields, client="10.0.0.1", scheme=b"http", family="x-forwarded"):
    return believe(Received(b"GET", b"/", scheme, client), [HOST, *fields], TRUSTED, family)


@cases(
    "address, inside",
    ("10.0.0.1", True),
    ("10.255.255.255", True),
    ("11.0.0.0", False),
    ("2001:db8::1", True),
    ("2001:db9::1", False),
    ("::ffff:10.0.0.1", True),  # an IPv4 client on a dual-stack socket
    ("::ffff:11.0.0.1", False),
    ("2001:db8::1%eth0", True),
    *((each, False) for each in ("10.0.0.1%eth0", "testclient", "/run/socket", "", "10.0.0.1, 11.0.0.1")),
    *((each, False) for each in ("010.0.0.1", None)),
)
def test_an_address_lies_in_a_network_or_not(address, inside):
    assert within(address, TRUSTED) is inside


def test_nothing_lies_in_no_network():
    assert not within("10.0.0.1", ())


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0.0/33", "10.0.0.1/8", "*", "unix:"])
def test_an_invalid_network_is_refused_with_its_text(text):
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
@cases("fields", FORWARDED, [(b"forwarded", b"for=10.0.0.9;host=shown.example;proto=https")])
def test_a_stranger_is_not_believed(client, fields):
    peer = believed(*fields, client=client)
    assert (peer.hosts, peer.scheme, peer.client, peer.chain) == ([b"own.example"], b"http", client, ())


def test_a_trusted_proxy_without_a_word_is_the_client():
    peer = believed()
    assert (peer.hosts, peer.scheme, peer.client) == ([b"own.example"], b"http", "10.0.0.1")


@cases(
    "chain, client",
    ([b"198.51.100.7"], "198.51.100.7"),
    # what a stranger sent stands before what it came from
    ([b"127.0.0.1, 198.51.100.7"], "198.51.100.7"),
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
    # no address alone
    *(([each], None) for each in (b"fe80::1%eth0", b'::1%" 200 0 "-" "', b"[::1%lo]", b"[::1]x", b"[::1")),
    *(([each], None) for each in (b"1.2.3.4:x y", b"1.2.3.4 5", b"\xb2:1", b'"')),
)
def test_the_client_is_the_last_untrusted_of_the_chain(chain, client):
    assert believed(*[(b"x-forwarded-for", value) for value in chain]).client == client


@cases(
    "value, scheme",
    (b"https", b"https"),
    (b"HTTPS", b"https"),
    (b"https, http", b"http"),
    (b"gopher", b"http"),
    (b"", b"http"),
)
def test_the_scheme_is_the_last_valid_one(value, scheme):
    assert believed((b"x-forwarded-proto", value)).scheme == scheme


def test_the_host_is_the_last_one_said():
    peer = believed((b"x-forwarded-host", b"forged.example, shown.example"))
    assert peer.hosts == [b"shown.example"]


def test_two_host_fields_stay_two_for_the_canonicalizer_to_refuse():
    assert believed((b"host", b"other.example")).hosts == [b"own.example", b"other.example"]


@cases(
    "value, hosts, scheme, client",
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
    # a stranger's elements before the trusted one do not count
    *(
        (stranger + b", for=198.51.100.7", [b"own.example"], b"http", "198.51.100.7")
        for stranger in (
            b"for=10.0.0.9;host=evil.example;proto=https",
            b'for="a;host=evil.example;proto=https"',
            b'for="a, host=evil.example;proto=https',
        )
    ),
)
def test_forwarded_is_read_where_it_is_the_family_that_counts(value, hosts, scheme, client):
    peer = believed((b"forwarded", value), family="forwarded")
    assert (peer.hosts, peer.scheme, peer.client) == (hosts, scheme, client)


def test_the_elements_of_several_lines_are_one_list():
    lines = (b"forwarded", b'for=10.0.0.9;host="'), (b"forwarded", b"for=198.51.100.7")
    peer = believed(*lines, family="forwarded")
    assert (peer.hosts, peer.client) == ([b"own.example"], "198.51.100.7")


def test_a_long_value_takes_time_in_proportion():
    for part in (b",", b'a="', b',a="', b'\\",', b"a=b;", b" ;", b',a="\\"'):
        value = part * (65536 // len(part)) + b",for=198.51.100.7"
        assert believed((b"forwarded", value), family="forwarded").client == "198.51.100.7"


@pytest.mark.parametrize("name", [b"x-forwarded-for", b"forwarded"])
def test_of_a_long_chain_the_nearest_addresses_are_read(name):
    family = name.decode().removesuffix("-for")
    hop = b"%b10.0.0.9" % (b"for=" if name == b"forwarded" else b"")
    chain = [b"for=198.51.100.7"[4 * (name != b"forwarded") :], *[hop] * 63]
    peer = believed((name, b", ".join(chain)), family=family)
    assert (peer.client, len(peer.chain)) == ("198.51.100.7", 64)
    peer = believed((name, b", ".join([hop] * 5_000)), family=family)
    assert (peer.client, len(peer.chain)) == ("10.0.0.9", 64)


def test_an_encoding_that_is_declared_twice_is_none():
    field = b"uri-path-encoding", b"latin-1"
    assert believed(field).encodings == (b"latin-1", b"")
    assert believed(field, field).encodings == (b"", b"")


# One family counts


@cases(
    "family, client, host, scheme",
    ("x-forwarded", "198.51.100.7", b"x.example", b"https"),
    ("forwarded", "203.0.113.9", b"f.example", b"http"),
)
def test_of_two_families_the_one_that_is_set_counts(family, client, host, scheme):
    both = [
        (b"x-forwarded-for", b"198.51.100.7"),
        (b"x-forwarded-host", b"x.example"),
        (b"x-forwarded-proto", b"https"),
        (b"forwarded", b"for=203.0.113.9;host=f.example;proto=http"),
    ]
    peer = believed(*both, family=family)
    assert (peer.client, peer.hosts, peer.scheme) == (client, [host], scheme)
    assert not peer.known  # they name two clients: one of the fields is a stranger's


@pytest.mark.parametrize("name", ["", "X-Forwarded", "rfc7239"])
def test_another_family_is_none(name):
    with pytest.raises(ConfigurationError) as raised:
        family_named(name)
    assert (raised.value.key, raised.value.found) == ("forwarded", name)


# Rights

X, F = "x-forwarded", "forwarded"


@cases(
    "family, fields, known",
    (X, [], True),
    (X, [(b"x-forwarded-for", b"198.51.100.7")], True),
    (X, [(b"x-forwarded-for", b"10.0.0.3")], True),  # a trusted proxy's own request, through another
    (F, [(b"forwarded", b"for=198.51.100.7")], True),
    (F, [(b"forwarded", b'for="[2001:db9::7]:4711"')], True),
    # from none of these a client's address follows
    (X, [(b"forwarded", b"for=198.51.100.7")], False),
    (F, [(b"x-forwarded-for", b"198.51.100.7")], False),
    (X, [(b"x-forwarded-proto", b"https")], False),
    (X, [(b"x-forwarded-host", b"en.example")], False),
    (X, [(b"x-forwarded-for", b"")], False),
    (X, [(b"x-forwarded-for", b"unknown")], False),
    (X, [(b"x-forwarded-for", b"fe80::1%eth0")], False),
    (X, [(b"x-forwarded-for", b"2001:db9::7%0")], False),
    (F, [(b"forwarded", b"proto=https")], False),
    (F, [(b"forwarded", b"for=_hidden")], False),
    (F, [(b"forwarded", b'for="[fe80::1%25eth0]"')], False),
    (F, [(b"forwarded", b"nonsense")], False),
    (X, [(b"x-real-ip", b"198.51.100.7")], False),
    (X, [(b"x_forwarded_for", b"198.51.100.7")], False),
    (X, [(b"front-end-https", b"on")], False),
    # two fields, one client
    (X, [(b"x-forwarded-for", b"198.51.100.7"), (b"forwarded", b"for=198.51.100.7:80")], True),
    (X, [(b"x-forwarded-for", b"198.51.100.7, 10.0.0.2"), (b"forwarded", b"for=198.51.100.7")], True),
    (X, [(b"x-forwarded-for", b"198.51.100.7"), (b"x-real-ip", b"198.51.100.7")], True),
    (X, [(b"x-forwarded-for", b"198.51.100.7"), (b"x-forwarded-proto", b"https")], True),
    (F, [(b"forwarded", b"for=198.51.100.7"), (b"x-forwarded-proto", b"https")], True),
    # two clients: the front wrote one of the fields alone, and who knows which
    (X, [(b"x-forwarded-for", b"10.0.0.3"), (b"forwarded", b"for=198.51.100.7")], False),
    (X, [(b"x-forwarded-for", b"10.0.0.3"), (b"forwarded", b"for=unknown")], False),
    (X, [(b"x-forwarded-for", b"10.0.0.3"), (b"forwarded", b"proto=https")], False),
    (F, [(b"x-forwarded-for", b"198.51.100.7"), (b"forwarded", b"for=10.0.0.3")], False),
    (X, [(b"x-forwarded-for", b"10.0.0.3"), (b"x-real-ip", b"198.51.100.7")], False),
)
def test_rights_by_address_need_the_clients_own_address(family, fields, known):
    assert believed(*fields, family=family).known is known


@pytest.mark.parametrize("client", ["127.0.0.1", "198.51.100.1", None])
@cases(
    "field",
    (b"x-forwarded-for", b"127.0.0.1"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-anything", b""),
    (b"forwarded", b"for=127.0.0.1"),
    (b"x-real-ip", b"127.0.0.1"),
)
def test_an_untrusted_peer_with_forwarded_fields_is_nobody(client, field):
    assert not believed(field, client=client).known
    assert believed(client=client).known


@cases(
    "members, chain",
    (b"127.0.0.1, 198.51.100.7", (b"198.51.100.7",)),  # what stands before the client is not believed
    (b"evil, 198.51.100.7:4711, 10.0.0.2", (b"198.51.100.7", b"10.0.0.2")),
    (b"198.51.100.7, _hidden, 10.0.0.2", (b"unknown", b"10.0.0.2")),
    (b'198.51.100.7, x";host=b', (b"unknown",)),
    (b"::ffff:198.51.100.7", (b"198.51.100.7",)),
    (b"", ()),
)
def test_the_forwarded_chain_is_the_believed_chain(members, chain):
    assert believed((b"x-forwarded-for", members)).chain == chain


# Likely proxies


def warned(caplog, *requests, trusted=(), family="x-forwarded"):
    likely = LikelyProxies()
    for client, *fields in requests:
        likely.note(client, lambda fields=fields: fields, networks(trusted), family)
    return caplog.messages


FOR = (b"x-forwarded-for", b"198.51.100.7")


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "10.1.2.3", "172.17.0.1", "192.168.0.2", "fd00::1"])
def test_a_near_peer_with_forwarded_fields_is_named_once(caplog, client):
    (told,) = warned(caplog, *[(client, FOR)] * 20)
    assert told.startswith(f"univocal ignores the forwarded fields of {client}:")
    assert f'trusted_proxies = ["{client}"]' in told
    assert "forwarded =" not in told


@cases(
    "trusted, field, setting",
    ((), (b"forwarded", b"for=198.51.100.7"), 'trusted_proxies = ["127.0.0.1"] and forwarded = "forwarded"'),
    (["127.0.0.1"], (b"forwarded", b"for=198.51.100.7"), 'set forwarded = "forwarded" ('),
    ((), (b"x-forwarded-proto", b"https"), 'set trusted_proxies = ["127.0.0.1"] ('),
)
def test_it_is_told_with_the_settings_to_use(caplog, trusted, field, setting):
    (told,) = warned(caplog, *[("127.0.0.1", field)] * 3, trusted=trusted)
    assert setting in told


@cases(
    "requests, trusted",
    ([("127.0.0.1", FOR)], ()),  # once is no habit
    ([("198.51.100.1", FOR)] * 9, ()),  # the Internet
    ([(None, FOR)] * 9, ()),
    ([("testclient", FOR)] * 9, ()),
    ([("10.0.0.9", (b"x-forwarded-for", b"10.0.0.9"))] * 9, ()),  # the server has believed it before us
    ([("127.0.0.1", (b"x-forwarded-for", b"unknown"))] * 9, ["127.0.0.1"]),  # no setting would help
)
def test_unlikely_proxies_are_not_warned_of(caplog, requests, trusted):
    assert warned(caplog, *requests, trusted=trusted) == []


def test_many_peers_do_not_fill_the_log_or_memory(caplog):
    peers = [(f"10.0.{number >> 8}.{number & 255}", FOR) for number in range(1000)]
    assert len(warned(caplog, *peers, *peers)) == 16


# Networks


def test_a_network_of_mapped_addresses_is_one_of_ipv4():
    assert within("10.0.0.9", networks(["::ffff:10.0.0.0/104"]))
    assert within("::ffff:10.0.0.9", networks(["::ffff:10.0.0.0/104"]))
    assert not within("11.0.0.9", networks(["::ffff:10.0.0.0/104"]))
