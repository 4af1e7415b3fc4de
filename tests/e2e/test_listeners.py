"""Several listeners: with TLS and without, Unix sockets, and connections that a proxy introduces."""

import json
import re
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import pytest

from authority import Authority

SITE = '[[sites]]\nhosts = ["en.example"]\naliases = ["www.en.example"]\nupstream = "{}"\n'


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("en", "DNS:en.example,IP:127.0.0.1")
    return made


@pytest.fixture
def serve(start, origin, tmp_path):
    """Start the program with these settings of `[server]` before one origin server."""

    def started(server, more="", site="", **named):
        file = tmp_path / "univocal.toml"
        if "admin =" not in server:
            server += '\nadmin = "127.0.0.1:0"'
        file.write_text(f"[server]\n{server}\n{more}\n{SITE.format(origin.url)}{site}")
        return start("serve", "--config", str(file), **named)

    return started


def curl(*arguments):
    """Status, fields and content, by curl, which believes any certificate."""
    command = ["curl", "-s", "-i", "-k", "--max-time", "10", *arguments]
    head, _, body = subprocess.run(command, capture_output=True, check=False).stdout.partition(b"\r\n\r\n")
    lines = head.decode().splitlines()
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]) if lines else 0, fields, body.decode()


def statuses(*requests):
    """Those of the answers to one curl that sends them all."""
    each = ("-s", "-k", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code} ")
    command = ["curl", *(word for request in requests for word in ("--next", *each, *request))]
    command.remove("--next")
    return [*map(int, subprocess.run(command, capture_output=True, check=False).stdout.split())]


def urls(running):
    """Those of the clients' listeners, in the order of the settings."""
    return re.findall(
        r"(?:https?|unix)://[^ ,]+", running.said.partition("serving ")[2].partition(", admin")[0]
    )


def pair(authority):
    return f'tls_cert = "{authority.folder}/en.pem"\ntls_key = "{authority.folder}/en.key"\n'


EN = ("-H", "Host: en.example")
ANY = "127.0.0.1:0"


def exchange(address, data):
    with socket.create_connection(address, 10) as connection:
        connection.sendall(data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def test_without_listen_tls_a_certificate_is_for_listen(serve, authority):
    listeners = urls(serve(f'listen = ["{ANY}", "{ANY}"]\n' + pair(authority)))
    assert [url.partition(":")[0] for url in listeners] == ["https"] * 2
    assert [curl(*EN, f"{url}a")[0] for url in listeners] == [200] * 2


def test_the_admin_listener_has_several_places(serve, tmp_path):
    path = tmp_path / "admin.sock"
    running = serve(f'listen = "{ANY}"\nadmin = ["{ANY}", "unix://{path}"]')
    assert curl(f"{running.page}/-/stats")[0] == 200
    assert curl("--unix-socket", str(path), "http://localhost/-/stats")[0] == 200
    assert curl("--unix-socket", str(path), "http://evil.example/-/stats")[0] == 421


def test_a_unix_socket_serves_and_goes_at_the_end(serve, tmp_path):
    path = tmp_path / "univocal.sock"
    running = serve(f'listen = "unix://{path}"')
    assert urls(running) == [f"unix://{path}"]
    assert path.stat().st_mode & 0o777 == 0o666
    at = ("--unix-socket", str(path))
    assert curl(*at, *EN, "http://localhost/a")[2] == "answer 1"
    assert "hit" in curl(*at, *EN, "http://localhost/a")[1]["cache-status"]
    # Clients of a Unix socket are of this machine, as with loopback: they may purge, and are believed.
    assert curl(*at, *EN, "-X", "PURGE", "http://localhost/a")[0] == 200
    assert curl(*at, *EN, "-H", "X-Forwarded-For: 192.0.2.7", "http://localhost/a")[0] == 200
    assert running.end(signal.SIGTERM) == 0
    assert json.loads(running.out.splitlines()[-1])["client"] == "192.0.2.7"
    assert not path.exists()


def test_only_a_stale_socket_is_replaced(serve, univocal, origin, tmp_path):
    path = tmp_path / "univocal.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    serve(f'listen = "unix://{path}"')
    assert curl("--unix-socket", str(path), *EN, "http://localhost/a")[0] == 200
    options = ("--listen", f"unix://{path}", "--admin", ANY)
    second = univocal("serve", "--upstream", origin.url, *options)
    assert second.returncode == 2
    assert "another program listens there" in second.stderr
    assert curl("--unix-socket", str(path), *EN, "http://localhost/a")[0] == 200


def test_a_file_that_is_no_socket_stays(univocal, origin, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("notes")
    ended = univocal("serve", "--upstream", origin.url, "--listen", f"unix://{path}", "--admin", ANY)
    assert ended.returncode == 2
    assert "no socket" in ended.stderr
    assert path.read_text() == "notes"


def test_options_of_listeners_may_be_repeated(start, origin, tmp_path):
    path = tmp_path / "univocal.sock"
    options = ["--listen", ANY, "--listen", f"unix://{path}", "--admin", ANY]
    first, second = urls(start("serve", "--upstream", origin.url, *options))
    assert curl(f"{first}a")[0] == 200
    assert second == f"unix://{path}"
    assert curl("--unix-socket", str(path), "http://localhost/b")[0] == 200


def test_workers_share_every_listener(serve, authority, redis, tmp_path):
    path = tmp_path / "univocal.sock"
    running = serve(
        f'workers = 2\nlisten = ["{ANY}", "unix://{path}"]\nlisten_tls = "{ANY}"\n' + pair(authority),
        f'[cache]\nstore = "{redis.url}"',
    )
    plain, _, secure = urls(running)
    for _ in range(4):
        assert curl(*EN, f"{plain}a")[0] == 200
        assert curl(*EN, f"{secure}a")[0] == 200
        assert curl("--unix-socket", str(path), *EN, "http://localhost/a")[0] == 200
    assert running.end(signal.SIGTERM) == 0
    assert not path.exists()


def test_plain_http_at_a_port_of_tls_is_told_so(serve, authority):
    running = serve(f'listen = "{ANY}"\n' + pair(authority))
    host, port = running.proxy
    status, fields, body = curl(f"http://{host}:{port}/a")
    assert status == 400
    assert fields["content-type"] == "application/problem+json"
    problem = json.loads(body)
    assert problem["reason"] == "plain-http"
    assert "needs HTTPS" in problem["detail"]
    assert curl(*EN, f"https://{host}:{port}/a")[0] == 200
    assert running.end() == 0
    assert [json.loads(line)["status"] for line in running.out.splitlines()] == [400, 200]


STORED_ONLY = "Cache-Control: only-if-cached\r\n"
BEHIND = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: {}\r\n"
REDIRECTED = [  # what is asked for, and the target of the redirect
    ({"target": "/a"}, "/a"),
    ({"target": "/%61/b?x=1"}, "/a/b?x=1"),
    ({"target": "/p/a%2fb?q=%31"}, "/p/a%2fb?q=%31"),
    ({"target": "/a", "host": "www.en.example:80"}, "/a"),
    ({"target": "/a", "method": "POST", "body": "x"}, "/a"),
    ({"target": "/a", "fields": STORED_ONLY}, "/a"),
    ({"target": "/never", "fields": STORED_ONLY}, "/never"),
    ({"target": "/a", "fields": BEHIND.format("http")}, "/a"),
]
NOT_REDIRECTED = [
    ({"target": "/a", "fields": BEHIND.format("https")}, 200),
    ({"target": "/.well-known/acme-challenge/token"}, 200),
    ({"target": "/a", "method": "PURGE"}, 200),
    ({"target": "/a", "host": "other.example"}, 421),
    ({"target": "/a", "host": "a/b"}, 400),
]


def test_plain_http_is_sent_to_the_canonical_https_url(serve, authority, ask):
    running = serve(
        f'listen = "{ANY}"\nlisten_tls = "{ANY}"\nhttps_redirect = true\n' + pair(authority),
        "[cache]\nttl = 60",
        'scheme = "keep"\n[[sites.routes]]\npath = "/p"\nforward = "received"\n',
    )
    _, secure = urls(running)
    port = urlsplit(secure).port
    for asked, target in REDIRECTED:
        for is_stored in (False, True):  # which changes nothing
            answer = ask(running.proxy, **{"host": "en.example"} | asked)
            assert (answer.status, answer.value("location")) == (308, f"https://en.example:{port}{target}")
            assert is_stored or curl(*EN, f"https://127.0.0.1:{port}{target}")[0] in {200, 404}
    for asked, status in NOT_REDIRECTED:
        assert ask(running.proxy, **{"host": "en.example"} | asked).status == status, asked


PROXIED = f'listen = "{ANY}"\nproxy_protocol = true\n'
HEADER = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n"
GET = b"GET /a HTTP/1.1\r\nHost: en.example\r\nConnection: close\r\n\r\n"


def clients(running):
    """The client and status of each line in the access log."""
    assert running.end() == 0
    lines = [json.loads(line) for line in running.out.splitlines()]
    return [(line["client"], line["status"]) for line in lines]


def test_a_proxy_has_to_introduce_its_client(serve):
    running = serve(PROXIED)
    assert exchange(running.proxy, HEADER + GET).endswith(b"answer 1")
    host, port = running.proxy
    assert curl("--haproxy-protocol", *EN, f"http://{host}:{port}/a")[0] == 200
    assert re.search(rb"^HTTP/1.1 400 [\s\S]*bad-proxy-header", exchange(running.proxy, GET))
    assert clients(running) == [("192.0.2.7", 200), ("127.0.0.1", 200), ("127.0.0.1", 400)]


@pytest.mark.parametrize(("is_introduced", "workers"), [(True, ""), (False, "workers = 2\n")])
def test_one_listener_takes_a_proxy_header_and_another_none(serve, workers, is_introduced):
    own = str(is_introduced).lower()
    running = serve(
        f'listen = ["{ANY}", {{ address = "{ANY}", proxy_protocol = {own} }}]\n'
        f"proxy_protocol = {str(not is_introduced).lower()}\n{workers}"
    )
    first, second = (urlsplit(url) for url in urls(running))
    introduced, plain = (second, first) if is_introduced else (first, second)
    for target, head, status in (
        (introduced, HEADER + GET, b" 200 "),
        (introduced, GET, b" 400 "),
        (plain, GET, b" 200 "),
        (plain, HEADER + GET, b" 400 "),
    ):
        assert status in exchange((target.hostname, target.port), head).partition(b"\r\n")[0]


OWN = """trusted_proxies = {all}
max_body = 10
listen = ["{any}", {{ address = "{any}", trusted_proxies = {own}, max_body = 5 }}]
listen_tls = [{{ address = "{any}", trusted_proxies = {own}, max_body = 5 }}]
"""


@pytest.mark.parametrize("workers", ["", "workers = 2\n"])
def test_a_listener_has_its_own_proxies_and_largest_body(serve, authority, tmp_path, workers):
    """Of misses and hits, by either version of HTTP, before a reload and after it."""
    nobody, here = {"all": [], "own": ["127.0.0.1"]}, {"all": ["127.0.0.1"], "own": []}
    running = serve(OWN.format(any=ANY, **nobody) + workers + pair(authority))
    plain, own, tls = urls(running)
    assert [url.partition(":")[0] for url in (plain, own, tls)] == ["http", "http", "https"]
    admin = "http://{}:{}/-/".format(*running.admin)
    names = ("-H", "X-Forwarded-For: 192.0.2.1", "-H", "X-Request-Id: kept")

    def ask():
        for url, most, *versions in ((plain, 10, "1.1"), (own, 5, "1.1"), (tls, 5, "1.1", "2")):
            for version in versions:
                get = (f"--http{version}", *EN, *names, f"{url}{version}")
                posts = [(*get[:-1], f"{url}post", "-d", "x" * size) for size in (most, most + 1)]
                assert statuses(get, get, *posts) == [200, 200, 200, 413]

    ask()
    file = tmp_path / "univocal.toml"
    file.write_text(file.read_text().replace(OWN.format(any=ANY, **nobody), OWN.format(any=ANY, **here)))
    changed = ["server.listen", "server.listen_tls", "server.trusted_proxies"]
    assert json.loads(curl("-X", "POST", f"{admin}reload")[2])["changed"] == changed
    ask()
    listener = json.loads(curl(f"{admin}config")[2])["server"]["listen"][1]
    assert listener == {"address": ANY, "trusted_proxies": [], "max_body": 5}
    assert running.end() == 0
    lines = [json.loads(line) for line in running.out.splitlines() if "/post" not in line]
    lines.sort(key=lambda line: line["time"])  # each of two processes writes its own when it may
    told = [(line["client"], line["request_id"] == "kept") for line in lines]
    stranger, known = ("127.0.0.1", False), ("192.0.2.1", True)
    assert told == [stranger] * 2 + [known] * 6 + [known] * 2 + [stranger] * 6
    assert {line["cache"] for line in lines} == {"uri-miss", "hit"}


def test_an_introduced_client_has_its_own_rights(serve):
    """It is no trusted proxy, and the loopback address of the proxy gives it none."""
    running = serve(PROXIED)
    purge = GET.replace(b"GET", b"PURGE")
    assert b" 403 " in exchange(running.proxy, HEADER + purge)
    assert b" 403 " in exchange(running.proxy, b"PROXY UNKNOWN\r\n" + purge)
    named = purge.replace(b"Host", b"X-Forwarded-For: 127.0.0.1\r\nHost")
    assert b" 403 " in exchange(running.proxy, HEADER + named)
    local = b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 80\r\n"
    assert b" 200 " in exchange(running.proxy, local + purge)
    # The admin listener takes no header.
    assert curl(f"{running.page}/-/health")[0] == 200
    assert curl("--haproxy-protocol", f"{running.page}/-/health")[0] == 400


def test_an_introduced_client_is_no_trusted_proxy(serve, origin):
    running = serve(PROXIED)
    introduced = b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n"
    named = b"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\nHost"
    assert exchange(running.proxy, introduced + GET).endswith(b"answer 1")
    for header, method in ((introduced, b"GET"), (introduced, b"POST"), (HEADER, b"GET")):
        exchange(running.proxy, header + GET.replace(b"GET", method).replace(b"Host", named))
    purge = GET.replace(b"GET", b"PURGE").replace(b"Host", b"X-Forwarded-For: 127.0.0.1\r\nHost")
    assert b" 403 " in exchange(running.proxy, introduced + purge)
    assert len(origin.seen) == 3  # a POST ends what is stored
    assert not any(b"x-forwarded-proto: https" in each.lower() for each in origin.seen)
    named_clients = [client for client, _ in clients(running)]
    assert named_clients == ["127.0.0.1", "127.0.0.1", "127.0.0.1", "192.0.2.7", "127.0.0.1"]


def test_the_header_of_anybody_else_is_refused(serve):
    running = serve(PROXIED + 'trusted_proxies = ["192.0.2.1"]\n')
    assert b" 400 " in exchange(running.proxy, HEADER + GET)
    assert b" 200 " in exchange(running.proxy, GET)


def test_a_header_comes_before_tls(serve, authority):
    running = serve(PROXIED + pair(authority))
    host, port = running.proxy
    context = authority.client()
    with socket.create_connection((host, port), 10) as raw:
        raw.sendall(HEADER)
        with context.wrap_socket(raw, server_hostname="en.example") as connection:
            connection.sendall(GET)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert exchange(running.proxy, GET) == b""
    assert clients(running) == [("192.0.2.7", 200), ("127.0.0.1", 400)]


def test_a_header_in_pieces_has_a_head_s_time(serve):
    running = serve(PROXIED + "header_timeout = 0.5\n")
    with socket.create_connection(running.proxy, 10) as slow:
        slow.sendall(HEADER[:9])
        assert slow.recv(1) == b""
    assert b" 200 " in exchange(running.proxy, HEADER + GET)


def test_the_bound_on_connections_counts_introduced_clients(serve):
    running = serve(PROXIED + "max_connections_per_client = 1\n")
    with socket.create_connection(running.proxy, 10) as held:
        held.sendall(HEADER + GET.replace(b"close", b"keep-alive"))
        assert held.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert b" 429 " in exchange(running.proxy, HEADER + GET)
        assert b" 200 " in exchange(running.proxy, HEADER.replace(b"192.0.2.7", b"192.0.2.8") + GET)


APART = """
listen = ["127.0.0.1:0", {{ address = "unix://{}", sites = ["admin.example"] }}]
"""
ADMIN = '[[sites]]\nhosts = ["admin.example"]\nupstream = "{}"\n[[sites]]\nhosts = ["*"]\nupstream = "{}"\n'


def test_a_listener_with_sites_has_them_for_itself(serve, origin, tmp_path):
    inside = tmp_path / "inside"
    running = serve(APART.format(inside), site=ADMIN.format(origin.url, origin.url))
    outside = urls(running)[0]
    for host, statuses in (
        ("en.example", (200, 421)),
        ("admin.example", (421, 200)),
        ("c.example", (200, 421)),
    ):
        at = f"http://{host}/a"
        asked = [
            curl("--connect-to", f"::{outside.split('//')[1].rstrip('/')}", at)[0],
            curl("--unix-socket", str(inside), at)[0],
        ]
        assert tuple(asked) == statuses, host
        # RFC 9112 §3.2.2: the target's authority counts, not the Host field's.
        line = ["--request-target", at, "-H", "Host: en.example", outside]
        assert curl(*line)[0] == statuses[0]
    for _ in range(2):  # an ordinary GET of one connection, whose response is stored
        assert curl(outside + "a", "-H", "Host: admin.example")[0] == 421


def test_listen_option_opens_no_site_of_other_listeners(start, origin, tmp_path):
    file = tmp_path / "univocal.toml"
    file.write_text(
        f'[server]\nadmin = "127.0.0.1:0"{APART.format(tmp_path / "inside")}'
        + SITE.format(origin.url)
        + '[[sites]]\nhosts = ["admin.example"]\nupstream = "http://127.0.0.1:9"\n'
    )
    (outside,) = urls(start("serve", "--config", str(file), "--listen", "127.0.0.1:0"))
    assert curl(outside, "-H", "Host: en.example")[0] == 200
    assert curl(outside, "-H", "Host: admin.example")[0] == 421


def test_an_address_beside_all_has_its_own_connections(serve, origin):
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = probe.getsockname()[1]
    listen = f'"0.0.0.0:{port}", {{ address = "127.0.0.2:{port}", sites = ["admin.example"] }}'
    serve(f"listen = [{listen}]", site=ADMIN.format(origin.url, origin.url))
    for host, statuses in (("en.example", (200, 421)), ("admin.example", (421, 200))):
        asked = [curl(f"http://127.0.0.{each}:{port}/a", "-H", f"Host: {host}")[0] for each in (1, 2)]
        assert tuple(asked) == statuses, host


def test_every_address_of_both_families_is_listened_on(serve):
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = probe.getsockname()[1]
    serve(f'listen = ["0.0.0.0:{port}", "[::]:{port}"]')
    for host in ("127.0.0.1", "[::1]"):
        assert curl(f"http://{host}:{port}/", "-H", "Host: en.example")[0] == 200
