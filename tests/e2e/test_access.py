"""Access by network, by password and by rate, in front of the cache."""

import base64
import json
import socket

import argon2
import bcrypt
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset

from authority import Authority
from support import until

SITE = '[[sites]]\nhosts = ["en.example"]\nupstream = "{}"\n'


def basic(name, password):
    return "Authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def bcrypted(password):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, b"2a")).decode().replace("$2a$", "$2y$", 1)


@pytest.fixture
def users(tmp_path):
    file = tmp_path / "users"
    hashed = argon2.PasswordHasher(1, 64, 1).hash("fish")
    file.write_text(f"# who may read\nanna:{bcrypted('cat')}\n\nbert:{hashed}\n")
    return file


@pytest.fixture
def serve(inside, origin, ask):
    """Start the program with these settings of the site; returns what asks it."""

    def started(site, top=""):
        running = inside(f'access_log = "off"\n{top}\n{SITE.format(origin.url)}{site}')

        def get(target="/a", *fields, method="GET"):
            return ask(running.proxy, target, "en.example", method, "".join(f"{each}\r\n" for each in fields))

        get.running = running
        return get

    return started


def test_a_password_is_asked_for(serve, users, origin):
    get = serve('[sites.access]\nbasic = "users"\n')
    refused = get()
    assert refused.status == 401
    assert (refused.value("www-authenticate") or "") == 'Basic realm="en.example", charset="UTF-8"'
    assert b'"unauthorized"' in refused.body
    assert get("/a", basic("anna", "dog")).status == 401
    assert get("/a", basic("nobody", "cat")).status == 401
    assert get("/a", "Authorization: Bearer cat").status == 401
    assert get("/a", "Authorization: Basic %%%").status == 401
    assert origin.seen == []


ALIAS = 'aliases = ["www.en.example"]\nalias_answer = 301\n'


def test_an_alias_leads_on_to_where_passwords_are_asked(serve, users, origin, ask):
    get = serve(
        f'{ALIAS}[sites.response]\nset = {{ X-Site = "{{host}}" }}\n[sites.access]\nbasic = "users"\n'
    )
    wrong = basic("anna", "dog")
    for fields in ((), (wrong,), (wrong,), (basic("anna", "cat"),), ("Cache-Control: only-if-cached",)):
        moved = get("http://www.en.example/a?b", *fields)
        assert (moved.status, moved.value("location")) == (301, "http://en.example/a?b")
        assert (moved.value("www-authenticate"), moved.value("x-site")) == (None, "en.example")
    assert get("http://www.en.example/a", *WEBSOCKET.splitlines()).status in {301, 401}
    assert origin.seen == []
    metrics = ask(get.running.admin, "/metrics", "127.0.0.1").body.decode()
    assert "univocal_refused_total{" not in metrics
    assert [get("/a", basic("anna", "cat")).status, get("/a").status] == [200, 401]


@pytest.mark.parametrize(
    ("access", "status"),
    [
        ('deny = ["127.0.0.1"]', 403),
        ('deny = ["127.0.0.1"]\nbasic = "users"', 403),
        ('refuse = { "method" = "GET" }\nbasic = "users"', 403),
        ('rate = "1/h burst 2"\nbasic = "users"', 429),
    ],
)
def test_an_alias_leads_nobody_on_who_has_no_access(serve, users, access, status):
    get = serve(f"{ALIAS}[sites.access]\n{access}\n")
    answers = [get("http://www.en.example/a") for _ in range(3)]
    led = [(301, "http://en.example/a")] * 2 if status == 429 else []  # as many as the rate lets pass
    refused = [(status, None)] * (3 - len(led))
    assert [(each.status, each.value("location")) for each in answers] == [*led, *refused]
    assert b"//en.example" not in answers[-1].head.encode() + answers[-1].body


def test_a_stored_response_serves_authenticated_users_alone(serve, users, origin):
    get = serve('[sites.access]\nbasic = "users"\n')
    assert get("/a", basic("anna", "cat")).status == 200
    assert b"authorization" not in origin.seen[0].lower()
    second = get("/a", basic("bert", "fish"))
    assert "hit" in (second.value("cache-status") or "")
    assert get("/a").status == 401  # the stored response is for who passes
    assert len(origin.seen) == 1


def test_private_responses_serve_their_user_alone(serve, users):
    get = serve('[sites.access]\nbasic = "users"\nprivate = true\n')
    anna, bert = basic("anna", "cat"), basic("bert", "fish")
    first = {who: get("/a", who).body for who in (anna, bert)}
    assert len({*first.values()}) == 2
    for who in (anna, bert, anna):
        again = get("/a", who)
        assert (again.body, "hit" in (again.value("cache-status") or "")) == (first[who], True)
    assert json.loads(get("/a", method="PURGE").body)["purged"] == 2
    assert get("/a", bert).body not in first.values()
    assert get("/a").status == 401


def test_changed_users_are_in_force_soon(serve, users):
    get = serve('[sites.access]\nbasic = "users"\n')
    assert get("/a", basic("anna", "cat")).status == 200
    users.write_text(f"anna:{bcrypted('lion')}\n")
    until(lambda: get("/a", basic("anna", "lion")).status == 200)
    assert get("/a", basic("anna", "cat")).status == 401
    assert get("/a", basic("bert", "fish")).status == 401


def test_the_log_names_the_user(inside, ask, users, origin):
    log = users.parent / "access.log"
    running = inside(
        f'access_log = "{log}"\naccess_log_format = "{{user}} {{status}} {{cache}}"\n'
        f'{SITE.format(origin.url)}[sites.access]\nbasic = "users"\n'
        f"{SITE.format(origin.url).replace('en.', 'open.')}"
    )
    passing, other = basic("anna", "cat"), basic("carl", "cow")
    for host, fields in (
        *(("en.example", each) for each in (passing, passing, "X: y", other)),
        *(("open.example", each) for each in (other, "X: y")),
    ):
        ask(running.proxy, "/a", host, "GET", f"{fields}\r\n")
    assert running.end() == 0
    assert log.read_text().splitlines() == [
        *("anna 200 uri-miss", "anna 200 hit", "- 401 -", "carl 401 -"),
        *("carl 200 uri-miss", "- 200 uri-miss"),
    ]


def test_a_route_has_an_access_of_its_own(serve, users):
    get = serve(
        '[sites.access]\nbasic = "users"\n'
        '[[sites.routes]]\npath = "/open/"\n[sites.routes.access]\nbasic = ""\n'
        '[[sites.routes]]\npath = "/closed/"\n[sites.routes.access]\ndeny = ["127.0.0.0/8"]\n'
    )
    passing = basic("anna", "cat")
    assert [get(path).status for path in ("/a", "/open/a", "/closed/a")] == [401, 200, 403]
    assert get("/%6fpen/../a").status == 401  # the route of the canonical path
    assert get("/closed/a", passing).status == 403


def test_a_refused_target_never_reaches_the_origin_server(serve, origin):
    get = serve('[sites.access]\nrefuse = { target = "~^/admin" }\n')
    for target in ("/admin", "//admin", "/x/..%2fadmin", "/%2fadmin", "/\\admin", "/x/..;/admin"):
        assert get(target).status in {400, 403}
    assert origin.seen == []
    assert get("/a").status == 200


def test_a_password_is_verified_within_the_rate(serve, users):
    get = serve('[sites.access]\nbasic = "users"\nrate = "1/h burst 2"\n')
    assert get("/a", basic("anna", "dog")).status == 401
    assert get("/a", basic("anna", "cat")).status == 200
    assert get("/a", basic("anna", "cat")).status == 429


WEBSOCKET = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
WEBSOCKET += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
# Each a way to ask for a connection to the origin server: the heads of HTTP/1.1, the fields of HTTP/2.
BY_HTTP_1 = {
    "a WebSocket": f"GET /a HTTP/1.1\r\nHost: en.example\r\n{WEBSOCKET}",
    "a WebSocket of another case": f"GET /a HTTP/1.1\r\nHost: EN.example\r\n{WEBSOCKET.upper()}",
    "another upgrade": "GET /a HTTP/1.1\r\nHost: en.example\r\nUpgrade: x\r\nConnection: upgrade\r\n",
    "HTTP/2": "GET /a HTTP/1.1\r\nHost: en.example\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n"
    "Connection: upgrade, http2-settings\r\n",
    "CONNECT": "CONNECT en.example:80 HTTP/1.1\r\nHost: en.example:80\r\n",
    "CONNECT to a path": "CONNECT /a HTTP/1.1\r\nHost: en.example\r\n",
    "CONNECT for a WebSocket": f"CONNECT /a HTTP/1.1\r\nHost: en.example\r\n{WEBSOCKET}",
}
_PATH = [(":scheme", "https"), (":path", "/a"), (":authority", "en.example")]
BY_HTTP_2 = {
    "an extended CONNECT (RFC 8441)": [
        *[(":method", "CONNECT"), (":protocol", "websocket"), *_PATH],
        ("sec-websocket-version", "13"),
    ],
    "an extended GET": [(":method", "GET"), (":protocol", "websocket"), *_PATH],
    "CONNECT": [(":method", "CONNECT"), (":authority", "en.example:80")],
    "CONNECT to a path": [(":method", "CONNECT"), *_PATH],
}


class Secured:
    """A listener with TLS of the program, and what it answers to a head."""

    def __init__(self, address, context):
        self.address, self.context = address, context

    def _connection(self, protocol):
        self.context.set_alpn_protocols([protocol])
        plain = socket.create_connection(self.address, timeout=20)
        connection = self.context.wrap_socket(plain, server_hostname="en.example")
        assert connection.selected_alpn_protocol() == protocol
        return connection

    def answer_to(self, head):
        """The status over HTTP/1.1."""
        with self._connection("http/1.1") as connection:
            connection.sendall(f"{head}\r\n".encode())
            return int(connection.recv(65536).split()[1])

    def answer_to_fields(self, fields):
        """The status over HTTP/2; 0: the stream was reset without one."""
        client = H2Connection(H2Configuration(validate_outbound_headers=False))
        client.initiate_connection()
        client.send_headers(1, fields)
        with self._connection("h2") as connection:
            while True:
                connection.sendall(client.data_to_send())
                for event in client.receive_data(connection.recv(65536)):
                    assert not isinstance(event, ConnectionTerminated)
                    if isinstance(event, ResponseReceived):
                        return int(dict(event.headers or [])[b":status"])
                    if isinstance(event, StreamReset):
                        return 0


@pytest.fixture
def secured(inside, origin, tmp_path):
    """Start the program with TLS and HTTP/2, and this access to the site."""

    def started(access):
        authority = Authority(tmp_path)
        authority.issue("server", "DNS:en.example")
        pair = f"tls_cert = '{tmp_path}/server.pem'\ntls_key = '{tmp_path}/server.key'\n"
        server = f'access_log = "off"\nhttp2 = true\n{pair}'
        running = inside(f"{server}{SITE.format(origin.url)}[sites.access]\n{access}\n")
        return Secured(running.proxy, authority.client())

    return started


@pytest.mark.parametrize(
    ("access", "status"),
    [('basic = "users"', 401), ('deny = ["127.0.0.0/8"]', 403), ('rate = "1/h burst 1"', 429)],
    ids=["basic", "deny", "rate"],
)
def test_no_tunnel_gets_past_access(secured, users, origin, access, status):
    listener = secured(access)
    listener.answer_to("GET /first HTTP/1.1\r\nHost: en.example\r\n")  # the one request within the rate
    del origin.seen[:]
    one = {name: listener.answer_to(head) for name, head in BY_HTTP_1.items()}
    two = {name: listener.answer_to_fields(fields) for name, fields in BY_HTTP_2.items()}
    assert origin.seen == []
    assert one == {name: 400 if name.startswith("CONNECT") else status for name in BY_HTTP_1}
    assert set(two.values()) == {400}


def test_a_purge_has_its_own_rules(serve, users):
    get = serve('[sites.access]\nbasic = "users"\nallow = ["10.0.0.0/8"]\n')
    assert get("/a", method="PURGE").status == 200


# Every reading of a path


def test_a_ban_of_a_loose_path_means_its_plain_reading(serve):
    get = serve("[sites.cache]\nttl = 60\n")
    get("/d/a.txt")
    assert "hit" in (get("/d/a.txt").value("cache-status") or "")
    assert "loose-path" in (get("//d/a.txt").value("cache-status") or "")
    for spelled in ("//d/a.txt", "/d%2Fa.txt"):
        assert get(spelled, method="BAN").status == 200
        assert "uri-miss" in (get("/d/a.txt").value("cache-status") or "")
    assert b'"purged": 1' in get("/d%2Fa.txt", method="PURGE").body
