"""TLS between a socket and a protocol, octet by octet; on the other side there is a client's OpenSSL."""

import asyncio
import ssl
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Authority
from examples import cases
from support import Transport, Turns
from univocal.judge.profiles import builtin_profiles
from univocal.server.clients import (
    ITERATION_SHARE,
    LINGER,
    LINGER_BYTES,
    SUITS,
    Clients,
    ConnectionLimits,
    ReadLimits,
)
from univocal.server.listener import Listener
from univocal.server.tls import Certificates, TlsConnection, server_name, subject_of
from univocal.server.turn import Uvicorn
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    for name, subjects in (
        ("rest", "DNS:rest.example"),
        ("a", "DNS:a.example"),
        ("wiki", "DNS:*.wiki.example"),
    ):
        made.issue(name, subjects)
    return made


class Socket(Transport):
    """The transport of a socket: keeps what is written to it."""

    def __init__(self):
        super().__init__()
        self.waiting = 17

    def write(self, data):
        assert not self.closed
        super().write(data)

    def taken(self):
        sent, self.sent = bytes(self.sent), bytearray()
        return sent


class Behind(asyncio.Protocol):
    """A protocol behind, which keeps what it is told."""

    def __init__(self, made, named):
        made.append(self)
        self.named = named
        self.told = []
        self.received = b""
        self.on_data = lambda: None
        self.stays = False

    def connection_made(self, transport):
        self.transport = transport
        self.told.append("made")

    def data_received(self, data):
        self.received += data
        self.on_data()

    def eof_received(self):
        self.told.append("eof")
        return self.stays

    def connection_lost(self, exc):
        self.told.append("lost")

    def pause_writing(self):
        self.told.append("pause")

    def resume_writing(self):
        self.told.append("resume")


class Wire:
    """A client and a server's connection, and the octets between."""

    def __init__(
        self, authority, *, name="rest.example", offers=("http/1.1",), limits=None, step=0, verifies=True
    ):
        self.made, self.refusals, self.loop = [], [], Turns()
        self.clients = Clients() if limits is None else limits
        self.state = SimpleNamespace(connections=set())
        self.socket = Socket()
        self.step = step
        self.server = TlsConnection(
            Uvicorn(None, self.state, {}, self.loop),
            certificates=lambda: certificates(authority),
            protocols={each: lambda *_, each=each: Behind(self.made, each) for each in ("http/1.1", "h2")},
            listener=Listener(
                SimpleNamespace(),
                ReadLimits(header_timeout=7),
                lambda received, reasons: self.refusals.append((received, reasons)),
                self.clients,
                lambda: self.loop.now,
            ),
        )
        self.server.connection_made(self.socket)
        context = authority.client()
        context.check_hostname = verifies and name is not None
        if offers:
            context.set_alpn_protocols(list(offers))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def pass_on(self):
        """Carry all octets both ways, in steps."""
        while (sent := self.outgoing.read()) or (answered := self.socket.taken()):
            if sent:
                step = self.step or len(sent)
                for start in range(0, len(sent), step):
                    self.server.data_received(sent[start : start + step])
            else:
                self.incoming.write(answered)

    def shake(self):
        while True:
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                assert self.outgoing.pending or self.socket.sent
                self.pass_on()
        self.pass_on()
        return self.behind

    @property
    def behind(self):
        (protocol,) = self.made
        return protocol

    def say(self, octets):
        self.client.write(octets)
        self.pass_on()

    def hear(self):
        self.pass_on()
        heard = b""
        while True:
            try:
                octets = self.client.read(65536)
            except ssl.SSLWantReadError:
                return heard
            if not octets:
                return heard + b"|"  # close_notify
            heard += octets


@pytest.fixture
def wire(authority):
    return Wire(authority)


@pytest.fixture
def behind(wire):
    """The protocol behind, when the handshake is over."""
    return wire.shake()


def certificates(authority):
    def context(name):
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(authority.folder / f"{name}.pem", authority.folder / f"{name}.key")
        made.set_alpn_protocols(["h2", "http/1.1"])
        return made

    def site(*hosts):
        return Site(hosts[0], hosts, (Route(b"/", builtin_profiles()["rfc3986"], "o"),))

    sites = Sites([site("a.example:8443"), site("*.wiki.example"), site("plain.example")])
    of_sites = {"a.example:8443": context("a"), "*.wiki.example": context("wiki")}
    return Certificates(context("rest"), of_sites, sites)


@pytest.mark.parametrize("step", [0, 1, 5], ids=["at once", "octet by octet", "in fives"])
def test_bytes_come_out_as_they_went_in(authority, step):
    wire = Wire(authority, step=step)
    behind = wire.shake()
    assert behind.told == ["made"]
    octets = bytes(range(256)) * 300  # more than a record holds
    wire.say(octets)
    assert behind.received == octets
    behind.transport.write(octets[:10])
    behind.transport.writelines([b"", octets[10:30], memoryview(octets)[30:]])
    assert wire.hear() == octets


@cases(
    "name, subject, suits",
    ("rest.example", "rest.example", None),
    ("a.example", "a.example", {b"a.example": True, b"A.example:1": True, b"b.example": False, b"": False}),
    ("en.wiki.example", "*.wiki.example", {b"de.wiki.example": True, b"a.example": False}),
)
def test_the_certificate_matches_the_clients_site(authority, name, subject, suits):
    wire = Wire(authority, name=name)  # which verifies the name
    behind = wire.shake()
    assert wire.client.getpeercert()["subjectAltName"] == (("DNS", subject),)
    told = behind.transport.get_extra_info(SUITS)
    assert (None if told is None else {host: told(host) for host in suits}) == suits


@cache
def hello(name):
    """The beginning of a client's connection."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(message, size):
    """A client's first message in records of this size."""
    parts = [message[5:][start : start + size] for start in range(0, len(message) - 5, size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


@pytest.mark.parametrize("name", ["a.example", "xn--bcher-kva.example"])
def test_the_server_name_is_read_once_all_has_come(name):
    whole = hello(name)
    assert server_name(whole) == server_name(whole + b"more") == name.encode()
    assert {server_name(whole[:end]) for end in range(len(whole))} == {None}
    assert server_name(in_records(whole, 100)) == name.encode()
    assert server_name(in_records(whole, 3)) == b""  # nobody sends so many
    assert server_name(hello("192.0.2.1")) == b""


@given(st.binary(max_size=60), st.data())
def test_malformed_messages_name_no_server(octets, data):
    whole = hello("a.example")
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    for malformed in (octets, b"\x16\x03\x01" + octets, whole[:start] + octets + whole[end:]):
        assert isinstance(server_name(malformed), bytes | None)
    assert server_name(b"\x16\x03\x01\x40\x00\x01" + bytes(70_000)) is not None


@cases(
    "certificate, subject",
    ({"subject": ((("countryName", "DE"),), (("commonName", "anna"),))}, "CN=anna,C=DE"),
    ({"subject": ((("commonName", "a,b"), ("userId", " x#")),)}, "CN=a\\,b+UID=\\ x#"),
    ({"subject": ((("commonName", "a\r\nb\x00\u202e"),),)}, "CN=a??b??"),
    ({"subject": ((("emailAddress", "\u00e9@a"),),)}, "emailAddress=\u00e9@a"),
    ({"subject": (), "subjectAltName": (("email", "a@b"), ("DNS", "c"))}, "email:a@b"),
    ({}, ""),
)
def test_a_subject_is_a_distinguished_name(certificate, subject):
    assert subject_of(certificate).decode() == subject


@pytest.mark.parametrize("name", [None, "plain.example", "unknown.example"])
def test_names_without_a_certificate_get_the_servers(authority, name):
    wire = Wire(authority, name=name, verifies=False)
    wire.shake()
    assert wire.client.getpeercert()["subjectAltName"] == (("DNS", "rest.example"),)
    assert wire.behind.transport.get_extra_info(SUITS) is None


def test_a_handshake_counts_among_the_clients_and_gives_way(authority):
    clients = Clients(ConnectionLimits(connections=1))
    first = Wire(authority, limits=clients)
    assert (len(clients), first.socket.aborted, len(first.state.connections)) == (1, False, 1)
    second = Wire(authority, limits=clients)
    assert (len(clients), first.socket.aborted, second.socket.aborted) == (1, True, False)
    second.shake()
    assert (len(clients), len(second.state.connections)) == (0, 0)  # its protocol counts from here on


def test_a_handshake_has_as_long_as_a_head(wire, authority):
    (timer,) = wire.loop.timers
    assert timer.due == 7
    timer.callback()
    ((received, reasons),) = wire.refusals
    assert (received.scheme, received.client, reasons) == (b"https", "192.0.2.1", ("request-timeout",))
    assert wire.socket.aborted
    done = Wire(authority)
    done.shake()
    assert done.loop.timers == []


def test_records_beyond_its_part_of_a_turn_wait(wire, behind):
    behind.on_data = lambda: setattr(wire.loop, "now", wire.loop.now + ITERATION_SHARE / 2)
    for number in range(5):
        wire.client.write(b"%d" % number)
    wire.pass_on()
    assert (behind.received, wire.socket.paused) == (b"01", True)
    for received in (b"0123", b"01234"):
        assert len(wire.loop.soon) == 1
        wire.loop.end_turn()
        assert behind.received == received
    assert (wire.loop.soon, wire.socket.paused) == ([], False)


def test_plain_http_gets_a_problem_and_time_to_read_it(wire):
    wire.server.data_received(b"GET / HT")
    wire.server.data_received(b"TP/1.1\r\nHost: a\r\n\r\n")
    assert wire.socket.taken().startswith(b"HTTP/1.1 400 ")
    assert (wire.socket.ended, wire.socket.closed) == (True, False)
    timer = wire.loop.timers[-1]
    assert timer.due == LINGER
    for _ in range(LINGER_BYTES // 65536):
        wire.server.data_received(b"a" * 65536)
    assert wire.socket.aborted  # no client sends without end
    timer.callback()
    assert wire.socket.aborted
    wire.server.connection_lost(None)
    assert (wire.made, len(wire.clients), wire.state.connections) == ([], 0, set())


@pytest.mark.parametrize("octets", [b"\x16\x03\x01\x00\x05hello", b"\0" * 99])
def test_an_invalid_handshake_ends_the_connection(wire, octets):
    wire.server.data_received(octets)
    assert wire.socket.closed
    wire.server.data_received(octets)
    wire.server.connection_lost(None)
    assert (wire.made, len(wire.clients), wire.state.connections) == ([], 0, set())


def test_reading_stops_while_the_protocol_takes_no_more(wire, behind):
    behind.on_data = behind.transport.pause_reading
    octets = b"x" * 100_000
    wire.say(octets)
    assert 0 < len(behind.received) <= 16384
    assert wire.socket.paused
    assert not behind.transport.is_reading()
    behind.on_data = lambda: None
    behind.transport.resume_reading()
    assert not wire.socket.paused
    wire.loop.end_turn()
    assert behind.received == octets


@pytest.mark.parametrize("stays", [False, True])
def test_a_closure_alert_ends_the_clients_input(wire, behind, stays):
    behind.stays = stays
    with pytest.raises(ssl.SSLError):
        wire.client.unwrap()
    wire.pass_on()
    assert behind.told == ["made", "eof"]
    assert wire.socket.closed is not stays
    if stays:
        behind.transport.write(b"the rest")
        assert wire.socket.sent
    assert not wire.server.eof_received()
    assert behind.told == ["made", "eof"]


def test_the_end_of_the_socket_is_one_too(wire, behind):
    assert not wire.server.eof_received()  # None or False: the socket's transport closes itself
    wire.server.connection_lost(None)
    assert behind.told == ["made", "eof", "lost"]
    behind.transport.write(b"nobody reads this")
    behind.transport.close()


def test_closing_says_so_and_does_not_wait_for_the_client(wire, behind):
    behind.transport.write(b"all")
    behind.transport.close()
    assert wire.socket.closed
    assert behind.transport.is_closing()
    assert wire.hear() == b"all|"
    behind.transport.write(b"more")
    behind.transport.close()
    assert wire.socket.sent == b""


def test_one_may_end_writing_and_read_on(wire, behind):
    assert behind.transport.can_write_eof()
    behind.transport.write_eof()
    assert wire.socket.ended
    assert not wire.socket.closed
    assert wire.hear() == b"|"
    wire.say(b"what was on its way")
    assert behind.received == b"what was on its way"


def test_a_forged_record_ends_the_connection(wire, behind):
    wire.client.write(b"genuine")
    forged = bytearray(wire.outgoing.read())
    forged[-1] ^= 1
    wire.server.data_received(bytes(forged))
    assert behind.received == b""
    assert wire.socket.aborted


def test_a_full_socket_is_told_of(wire):
    wire.server.pause_writing()
    wire.server.resume_writing()
    behind = wire.shake()
    wire.server.pause_writing()
    wire.server.resume_writing()
    assert behind.told == ["made", "pause", "resume"]
    assert behind.transport.get_write_buffer_size() == 17


def test_another_protocol_may_take_over(wire, behind):
    other = Behind([], None)
    behind.on_data = lambda: behind.transport.set_protocol(other)
    wire.say(b"1" * 20_000)
    assert (len(behind.received), len(other.received)) == (16384, 20_000 - 16384)
    assert behind.transport.get_protocol() is other


def test_the_transport_has_the_extra_info_of_tls(authority):
    transport = Wire(authority).shake().transport
    assert isinstance(transport.get_extra_info("sslcontext"), ssl.SSLContext)  # by which uvicorn knows TLS
    assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert transport.get_extra_info("peername") == ("192.0.2.1", 4711)
    assert transport.get_extra_info("nothing", 3) == 3


def test_the_server_ends_while_a_handshake_is_under_way(wire):
    (connection,) = wire.state.connections
    connection.shutdown()
    assert wire.socket.aborted
