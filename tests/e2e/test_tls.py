"""`univocal serve` with certificates: TLS at the listener, octet for octet, in time and in number bounded."""

import json
import os
import shutil
import signal
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from authority import Authority
from forking import LOOKS_EVERY
from support import head_of, until

TIMEOUT = 20
OFTEN = {LOOKS_EVERY: "0.1"}
SITES = """
[[sites]]
hosts = ["en.example", "plain.example"]
upstream = "{url}"
[[sites]]
hosts = ["a.example"]
upstream = "{url}"
tls_cert = "a.pem"
tls_key = "a.key"
[[sites]]
hosts = ["*.wiki.example"]
upstream = "{url}"
tls_cert = "wiki.pem"
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    for name, subjects in (
        ("server", "DNS:en.example,DNS:plain.example,IP:127.0.0.1"),
        ("other", "DNS:en.example"),
        ("a", "DNS:a.example"),
        ("wiki", "DNS:*.wiki.example"),
    ):
        made.issue(name, subjects)
    both = [(made.folder / f"wiki.{kind}").read_text() for kind in ("pem", "key")]
    (made.folder / "wiki.pem").write_text("".join(both))  # a key may be in its certificate's file
    return made


@pytest.fixture
def folder(authority, tmp_path):
    """A folder with every certificate and its key, for a test of its own."""
    for file in authority.folder.glob("*.[pk]e[my]"):
        shutil.copy(file, tmp_path)
    return tmp_path


@pytest.fixture
def proxy(start_with, origin, folder):
    """Start the proxy with certificates; `settings` are lines of [server]."""

    def begin(settings="", sites=SITES, **variables):
        server = f"access_log = 'off'\ntls_cert = 'server.pem'\ntls_key = 'server.key'\n{settings}\n"
        running = start_with(server + sites.format(url=origin.url), **variables)
        assert "serving https://" in running.said
        return running

    return begin


@pytest.fixture
def connect(authority):
    """A connection to the proxy: `connect(proxy, name)`; a client that is given no name says none."""

    def connect(running, name="en.example", **settings):
        context = authority.client()
        context.check_hostname = settings.pop("verifies", name is not None)
        context.set_alpn_protocols(settings.pop("offers", ["http/1.1"]))
        for key, value in settings.items():
            setattr(context, key, value)
        raw = socket.create_connection(running.proxy, timeout=TIMEOUT)
        return context.wrap_socket(raw, server_hostname=name)

    return connect


def subject(connection):
    return dict(connection.getpeercert()["subjectAltName"])["DNS"]


def answer(connection, octets=b""):
    """Send octets; the head of the response and its content, which has a length."""
    connection.sendall(octets)
    with connection.makefile("rb") as stream:
        head = head_of(stream)
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head, stream.read(int(length[0].partition(b":")[2]))


def get(target, host="en.example", *lines):
    fields = "".join(f"{line}\r\n" for line in (f"Host: {host}", *lines))
    return b"GET " + target + b" HTTP/1.1\r\n" + fields.encode() + b"\r\n"


def test_misses_and_hits_have_the_scheme_in_their_key(proxy, connect, origin, ask):
    running = proxy("cache_status = 'key'")
    with connect(running) as connection:
        assert connection.version() == "TLSv1.3"
        assert connection.compression() is None
        assert connection.selected_alpn_protocol() == "http/1.1"
        for word in (b"fwd=uri-miss", b"hit", b"hit"):  # the last two at a glance
            head, content = answer(connection, get(b"/wiki/A"))
            assert head.startswith(b"HTTP/1.1 200 ")
            assert word in head.lower().split(b"cache-status:")[1]
            assert b'key="https://en.example/wiki/A"' in head
            assert content == b"answer 1"
    assert ask(running.admin, "/-/explain?url=https://en.example/wiki/A", "127.0.0.1").status == 200
    (seen,) = origin.seen
    assert b"x-forwarded-proto: https\r\n" in seen
    assert b"proto=https" in seen


NAMED = [
    # the name that the client gives, the certificate that it is shown, the host that it asks for, the status
    ("en.example", "plain.example", "en.example", 200),
    ("a.example", "a.example", "a.example", 200),
    ("de.wiki.example", "*.wiki.example", "de.wiki.example", 200),
    # With the same certificate, the connection may be used for another host (RFC 9113 §9.1.1) …
    ("en.example", "plain.example", "plain.example", 200),
    ("de.wiki.example", "*.wiki.example", "EN.wiki.example:443", 200),
    # … and where it is another, it may not (RFC 9110 §7.4).
    ("a.example", "a.example", "en.example", 421),
    ("a.example", "a.example", "de.wiki.example", 421),
    ("de.wiki.example", "*.wiki.example", "a.example", 421),
    # A client that names nobody, or nobody who has a certificate, gets the server's, for whatever host.
    (None, "plain.example", "a.example", 200),
    ("unknown.example", "plain.example", "a.example", 200),
    ("unknown.example", "plain.example", "unknown.example", 421),
]


def test_the_certificate_is_that_of_the_site_that_is_named(proxy, connect):
    running = proxy()
    for name, shown, host, status in NAMED * 2:  # a miss, and then a hit
        verifies = name is not None and not name.startswith("unknown")
        with connect(running, name, verifies=verifies) as connection:
            assert subject(connection) == shown
            for _ in range(2 if status == 200 else 1):
                head, content = answer(connection, get(b"/", host))
                assert int(head.split()[1]) == status, (name, host)
                assert (b'"unknown-host"' in content) == (status == 421)


def test_the_oldest_version_is_1_2(proxy, connect):
    running = proxy()
    allowed = ssl.TLSVersion.TLSv1_2
    with connect(running, minimum_version=allowed, maximum_version=allowed) as connection:
        assert connection.version() == "TLSv1.2"
        assert answer(connection, get(b"/"))[0].startswith(b"HTTP/1.1 200 ")
    # An older client's hello, as it names no other version: TLS 1.1, two cipher suites (RFC 4346 §7.4.1.2).
    hello = b"\x03\x02" + bytes(32) + b"\x00" + b"\x00\x04\x00\x2f\xc0\x13" + b"\x01\x00"
    message = b"\x01" + len(hello).to_bytes(3, "big") + hello
    with socket.create_connection(running.proxy, timeout=TIMEOUT) as old:
        old.sendall(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message)
        assert old.recv(100) == b"\x15\x03\x02\x00\x02\x02\x46"  # protocol_version, fatal (§7.2.2)
        assert old.recv(100) == b""


def test_large_answers_and_many_clients(proxy, connect, origin):
    content = os.urandom(3_000_000)
    head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: %d\r\n\r\n" % len(content)
    origin.answer = lambda _: head + content
    running = proxy()

    def fetch(number):
        with connect(running) as connection:
            return all(
                answer(connection, get(b"/%d" % (number % 2), "en.example", *lines))[1] == content
                for lines in ((), (), ("Connection: close",))
            )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fetch, range(8)))


@pytest.mark.parametrize("shaken", [True, False], ids=["idle", "in a handshake"])
def test_sigterm_waits_for_nobody_who_asks_nothing(proxy, connect, shaken):
    running = proxy()
    with connect(running) if shaken else socket.create_connection(running.proxy, timeout=TIMEOUT) as client:
        begun = time.monotonic()
        assert running.end(signal.SIGTERM) == 0
        assert time.monotonic() - begun < 10  # the grace of what is under way
        client.settimeout(TIMEOUT)
        assert client.recv(10) == b""


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────


def replace(folder, name, by):
    """Put another certificate and its key in the place of these."""
    for kind in ("key", "pem"):
        shutil.copy(folder / f"{by}.{kind}", folder / f"{name}.{kind}")


def until_shown(connect, running, host, name):
    """Wait until a client is shown the certificate of this name: each worker looks for itself."""

    def is_shown():
        with connect(running, host, verifies=False) as connection:
            return subject(connection) == name

    until(is_shown)


def until_said(running, *words):
    """The line on standard error that has all of these."""
    for line in running.process.stderr:
        if all(word in line for word in words):
            return line
    raise AssertionError(words)


def reloaded(ask, running):
    """Ask for a reload of the files; return the status and the body of the answer."""
    told = ask(running.admin, "/-/reload", "127.0.0.1", "POST", "Content-Length: 0\r\n")
    return told.status, json.loads(told.body)


def test_new_files_are_in_use_soon(proxy, connect, folder, ask):
    """Sooner by a reload, of which the watch leaves nothing to change."""
    running = proxy(**OFTEN)
    with connect(running) as kept:
        assert subject(kept) == "plain.example"
        (folder / "other.key").replace(folder / "server.key")  # which is not the certificate's, for now
        with connect(running) as connection:
            assert subject(connection) == "plain.example"
        (folder / "other.pem").replace(folder / "server.pem")
        until_shown(connect, running, "en.example", "en.example")
        assert reloaded(ask, running)[1]["changed"] == []  # they are in use already
        assert answer(kept, get(b"/"))[0].startswith(b"HTTP/1.1 200 ")
    running = proxy()
    (folder / "server.key").write_bytes((folder / "server.key").read_bytes() + b"\n")
    assert reloaded(ask, running)[1]["changed"] == ["server.tls_key"]  # sooner than the watch


def test_a_reload_takes_other_files_and_connections_stay(proxy, connect, folder, ask):
    running = proxy()
    file = folder / "univocal.toml"
    text = file.read_text()

    def reload(server):
        file.write_text(text.replace("tls_cert = 'server.pem'\ntls_key = 'server.key'\n", server))
        return reloaded(ask, running)

    other = "tls_cert = 'other.pem'\ntls_key = 'other.key'\n"
    with connect(running) as kept:
        assert reload(other.replace("other.key", "server.key"))[0] == 422
        assert answer(kept, get(b"/"))[0].startswith(b"HTTP/1.1 200 ")
        with connect(running) as connection:
            assert subject(connection) == "plain.example"
        status, told = reload(other)
        assert (status, "server.tls_cert" in told["changed"]) == (200, True)
        with connect(running) as connection:
            assert subject(connection) == "en.example"
        assert answer(kept, get(b"/"))[0].startswith(b"HTTP/1.1 200 ")
        for server, key in ((f"{other}http2 = true\n", "server.http2"), ("", "server.tls_cert")):
            status, told = reload(server)
            assert (status, key in told["detail"]) == (422, True)


@pytest.mark.parametrize("content", ["no certificate", "", None, "a.pem"])
def test_a_bad_pair_leaves_the_old_one_and_is_told(proxy, connect, folder, content):
    """Another site's new pair is in use all the same."""
    running, pair = proxy(**OFTEN), folder / "server.pem"
    if content is None:
        pair.unlink()
    else:  # the last is another key's
        pair.write_text((folder / content).read_text() if content.endswith("pem") else content)
    replace(folder, "a", "other")
    said = until_said(running, "changed certificates are unusable", "server.tls_cert")
    assert str(folder / "univocal.toml") in said
    with connect(running) as connection:
        assert subject(connection) == "plain.example"
        assert answer(connection, get(b"/"))[0].startswith(b"HTTP/1.1 200 ")
    until_shown(connect, running, "a.example", "en.example")
    replace(folder, "server", "other")
    until_shown(connect, running, "en.example", "en.example")


@pytest.mark.parametrize("workers", ["", "workers = 2"])
def test_an_expired_certificate_replaces_no_good_one(proxy, univocal, connect, folder, authority, workers):
    """Neither by a reload, of which nothing comes into force then, nor where its file is found changed."""
    running = proxy(workers, **OFTEN)
    authority.issue("old", "DNS:en.example", days=-1)
    for kind in ("key", "pem"):
        shutil.copy(authority.folder / f"old.{kind}", folder)
    replace(folder, "a", "old")
    ended = univocal("reload", "--admin", "{}:{}".format(*running.admin))
    assert ended.returncode != 0
    assert "sites[1].tls_cert: the certificate has expired" in ended.stderr
    until_shown(connect, running, "a.example", "a.example")
    replace(folder, "a", "other")
    replace(folder, "server", "old")
    until_said(running, "changed certificates are unusable", "server.tls_cert: the certificate has expired")
    until_shown(connect, running, "en.example", "plain.example")
    until_shown(connect, running, "a.example", "en.example")


GUARDED = """
[[sites]]
hosts = ["en.example"]
upstream = "{url}"
[sites.request]
set = {{ X-Subject = "{{user}}" }}
[sites.cache]
bypass = ["*"]
[[sites]]
hosts = ["a.example"]
upstream = "{url}"
tls_client_ca = "others.pem"
[[sites]]
hosts = ["plain.example"]
upstream = "{url}"
tls_client_ca = ""
"""


@pytest.fixture
def others(tmp_path_factory, folder):
    """Another authority, which issues the certificates of clients; `folder` has them."""
    made = Authority(tmp_path_factory.mktemp("others"))
    made.issue("bert", "email:bert@example")
    shutil.copy(made.folder / "ca.pem", folder / "others.pem")
    for kind in ("pem", "key"):
        shutil.copy(made.folder / f"bert.{kind}", folder)
    return made


def shown(authority, folder, address, host, name="", sni=""):
    """The answer to a client that shows the certificate NAME.pem; the reason of a failure for none."""
    context = authority.client()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    try:
        with (
            socket.create_connection(address, timeout=TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=sni or host) as client,
        ):
            client.sendall(f"GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(65536), b""))
    except ssl.SSLError as error:
        return str(error.reason).encode()


def test_clients_show_certificates_of_their_sites_authority(proxy, authority, others, folder, origin):
    address = proxy("tls_client_ca = 'ca.pem'", GUARDED).proxy
    statuses = {
        (host, name, sni): shown(authority, folder, address, host, name, sni)[9:12]
        for host in ("en.example", "a.example", "plain.example")
        for name in ("", "server", "bert")
        for sni in ("", "127.0.0.1", "plain.example")
    }
    refused = {key: status for key, status in statuses.items() if status != b"200"}
    passed = set(statuses) - set(refused)
    assert passed == {
        ("en.example", "server", ""), ("en.example", "server", "127.0.0.1"),
        ("a.example", "bert", ""),
        ("plain.example", "", ""), ("plain.example", "server", ""), ("plain.example", "bert", ""),
        ("plain.example", "", "plain.example"), ("plain.example", "server", "plain.example"),
        ("plain.example", "bert", "plain.example"),
        ("plain.example", "", "127.0.0.1"), ("plain.example", "server", "127.0.0.1"),
    }  # fmt: skip
    assert statuses["en.example", "", ""] == statuses["a.example", "", ""] == b"403"
    assert b'"certificate-required"' in shown(authority, folder, address, "en.example")
    assert b"x-subject: CN=server\r\n" in origin.seen[0]


def test_a_session_of_one_site_opens_no_other(proxy, authority, others, folder):
    address = proxy("tls_client_ca = 'ca.pem'", GUARDED).proxy
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = authority.client()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        session, answers = None, list[bytes]()
        for host in ("en.example", "a.example", "en.example"):
            try:
                with (
                    socket.create_connection(address, timeout=TIMEOUT) as plain,
                    context.wrap_socket(plain, server_hostname=host, session=session) as client,
                ):
                    client.sendall(f"GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                    answers.append(client.recv(12)[9:])
                    session = session or client.session
            except ssl.SSLError:
                answers.append(b"")
        assert (answers[0], answers[2]) == (b"200", b"200")
        assert answers[1] != b"200"


@pytest.mark.parametrize("workers", [1, 2])
def test_http2_and_a_reload_go_by_the_authority(proxy, authority, others, folder, ask, workers):
    settings = f"http2 = true\nworkers = {workers}\ntls_client_ca = 'ca.pem'\n"
    running = proxy(settings, SITES[: SITES.index("[[sites]]", 20)])

    def status(name, *, http2):
        context = authority.client()
        if name:
            context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        with httpx.Client(http1=not http2, http2=http2, verify=context, timeout=TIMEOUT) as client:
            try:
                return client.get(
                    f"https://127.0.0.1:{running.proxy[1]}/a", headers={"Host": "en.example"}
                ).status_code
            except httpx.HTTPError:
                return 0

    def statuses():
        return [status(name, http2=http2) for http2 in (False, True) for name in ("", "server", "bert")]

    assert statuses() == [403, 200, 0] * 2
    file = folder / "univocal.toml"
    file.write_text(file.read_text().replace("'ca.pem'", "'others.pem'"))
    assert reloaded(ask, running)[1]["changed"] == ["server.tls_client_ca"]
    assert statuses() == [403, 0, 200] * 2


def test_without_tls_no_client_shows_a_certificate(start, others, folder, ask, origin):
    server = "listen = '127.0.0.1:0'\nlisten_tls = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\naccess_log = 'off'\n"
    server += "tls_cert = 'server.pem'\ntls_key = 'server.key'\ntls_client_ca = 'ca.pem'\n"
    file = folder / "univocal.toml"
    file.write_text(f"[server]\n{server}{GUARDED.format(url=origin.url)}")
    plain = start("serve", "--config", str(file)).proxy
    for fields in ("", "X-Forwarded-Proto: https\r\n"):
        assert ask(plain, "/a", "en.example", "GET", fields).status == 403
    assert ask(plain, "/a", "plain.example").status == 200
    assert len(origin.seen) == 1
