"""The files of docs/how-to/in-front.md with the programs that they are for, in front of `univocal serve`."""

import asyncio
import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest
from websockets.asyncio.client import connect
from websockets.sync.server import serve

from authority import Authority
from support import until
from tests.e2e.conftest import recording
from tests.ports import free_port

TIMEOUT = 20
CLIENT = "127.0.0.2"  # an address that is nobody's proxy
PACKAGES = {"caddy": "caddy", "nginx": "nginx-light", "haproxy": "haproxy"}


def file_of(root, kind, page="in-front.md"):
    """The first block of this kind on a page."""
    page = (root / "docs" / "how-to" / page).read_text("utf-8")
    block, *_ = re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", page)
    return str(block)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("en.example", "DNS:en.example")
    return made


class Front:
    """A program in front, listening at `port` for en.example."""

    def __init__(self, name, root, folder, authority, running):
        if shutil.which(name) is None:
            pytest.skip(f"needs {name} (Debian package {PACKAGES[name]})")
        self.port, self.authority = free_port(), authority
        certificate, key = (authority.folder / f"en.example.{kind}" for kind in ("pem", "key"))
        kind = {"caddy": "caddyfile"}.get(name, name)
        ports = {"8080": running.proxy[1], "8081": running.admin[1]}
        text = re.sub(r"\b808[01]\b", lambda found: str(ports[found[0]]), file_of(root, kind))
        text = text.replace("inter 2s", "inter 100ms")
        command = getattr(self, f"_{name}")(text, folder, certificate, key)
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
        }
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    def _caddy(self, text, folder, certificate, key):
        assert "\nen.example {\n" in text
        site = f"\nhttps://en.example:{self.port} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}\n"
        options = "{\n\tadmin off\n\tauto_https off\n}\n"
        (folder / "Caddyfile").write_text(options + text.replace("\nen.example {\n", site))
        return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]

    def _nginx(self, text, folder, certificate, key):
        text = text.replace("/etc/ssl/en.example.pem", str(certificate)).replace(
            "/etc/ssl/en.example.key", str(key)
        )
        text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl")
        (folder / "univocal.conf").write_text(text)
        temporary = "".join(
            f"{each}_temp_path {folder}/{each};\n"
            for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{temporary}include {folder}/univocal.conf;\n}}\n"
        )
        return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]

    def _haproxy(self, text, folder, certificate, key):
        both = folder / "en.example.pem"
        both.write_text(certificate.read_text() + key.read_text())
        text = text.replace("/etc/haproxy/en.example.pem", str(both)).replace(
            " :443 ", f" 127.0.0.1:{self.port} "
        )
        (folder / "haproxy.cfg").write_text(text)
        return ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]

    def connect(self):
        raw = socket.create_connection(("127.0.0.1", self.port), TIMEOUT, source_address=(CLIENT, 0))
        return self.authority.client().wrap_socket(raw, server_hostname="en.example")

    def wait(self, status):
        for _ in range(1500):
            assert self.process.poll() is None, self.log.read_text()
            try:
                if self.ask(b"/front").startswith(status):
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(self.log.read_text())

    def ask(self, target, *lines, method=b"GET"):
        """The whole answer to one request on a connection of its own."""
        head = [b"%b %b HTTP/1.1" % (method, target), b"Host: en.example", b"Connection: close", *lines]
        with self.connect() as connection:
            connection.sendall(b"\r\n".join([*head, b"", b""]))
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def origin():
    with recording() as made:
        yield made


@pytest.fixture(scope="module")
def running(inside_once, origin, root):
    """univocal by the page's file."""
    text = file_of(root, "toml").replace("http://127.0.0.1:9001", origin.url)
    top, _, rest = text.partition("[server]\n")
    rest = re.sub('(?m)^(listen|admin) = "127.0.0.1:808[01]"\n', "", rest)
    # Of purges, the client is none whom the last line allows.
    return inside_once(f"access_log = 'off'\n{rest}[purge]\nallow = ['127.0.0.1']\n", top)


@contextlib.contextmanager
def before(running, name, root, folder, authority, status=b"HTTP/1.1 200 "):
    """A program in front of univocal, once it answers with what that answers."""
    made = Front(name, root, folder, authority, running)
    try:
        made.wait(status)
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module", params=sorted(PACKAGES))
def front(request, running, root, tmp_path_factory, authority):
    with before(running, request.param, root, tmp_path_factory.mktemp("front"), authority) as made:
        yield made


def test_the_file_to_begin_with_is_one(univocal_inside, root, tmp_path, authority):
    text = file_of(root, "toml", "production.md").replace("/var/log/univocal", str(tmp_path))
    text = text.replace("/etc/univocal/tls", str(authority.folder))
    file = tmp_path / "univocal.toml"
    file.write_text(text.replace("0.0.0.0:443", "127.0.0.1:0").replace("127.0.0.1:8081", "127.0.0.1:0"))
    done = univocal_inside("check", "--config", str(file))
    assert (done.returncode, "valid" in done.stdout) == (0, True), done.stderr


TARGETS = [
    b"/a%2fb%28c%29",
    b"/a?",
    b"/a//b",
    b"/a%7eb;c=d",
    b"/a?q=%2f&x=&&y",
    b"/%d0%90+%20",
    b"/a/./b/../c",
    b"/a%252e",
    b"/'()*!,@:$&=~",
]


def test_a_server_in_front_changes_no_request_line(front, running, origin, ask):
    origin.seen.clear()
    origin.fields = "Cache-Control: no-store"
    for target in TARGETS:
        ask(running.proxy, target, "en.example")
        assert front.ask(target).startswith(b"HTTP/1.1 200 "), target
    direct, through = origin.lines[::2], origin.lines[1::2]
    assert through == direct
    assert len(set(direct)) == len(TARGETS)


def test_forged_forwarding_fields_are_not_believed(front, origin):
    origin.seen.clear()
    lies = (
        b"X-Forwarded-For: 203.0.113.9",
        b"X-Forwarded-Host: evil.example",
        b"X-Forwarded-Proto: http",
        b"Forwarded: for=203.0.113.9;host=evil.example;proto=http",
    )
    origin.fields = "Cache-Control: max-age=60"
    for _ in range(2):
        answer = front.ask(b"/who/%d" % front.port, *lies)
    assert b"univocal; hit" in answer
    (seen,) = origin.seen
    head = seen.decode()
    assert re.findall(r"(?im)^x-forwarded-for: *(.*)\r$", head) == [f"{CLIENT}, 127.0.0.1"]
    assert re.findall(r"(?im)^x-forwarded-host: *(.*)\r$", head) == ["en.example"]
    assert re.findall(r"(?im)^x-forwarded-proto: *(.*)\r$", head) == ["https"]
    assert "203.0.113.9" not in head
    assert "evil.example" not in head


def test_strangers_purge_nothing(front):
    answer = front.ask(b"/who", b"X-Forwarded-For: 127.0.0.1", b"Forwarded: for=127.0.0.1", method=b"PURGE")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b'"purge-forbidden"' in answer


def test_connections_are_kept(front, running, ask):
    for number in range(20):
        assert front.ask(b"/%d" % number).startswith(b"HTTP/1.1 200 ")
    told = ask(running.admin, "/metrics", "127.0.0.1").body.decode()
    assert float(re.findall(r'univocal_connections\{side="client"\} ([0-9.]+)', told)[0]) <= 4


def test_http_2_in_front(front, authority):
    if shutil.which("curl") is None:
        pytest.skip("needs curl (Debian package curl)")
    done = subprocess.run(
        ["curl", "-sS", "--http2", "--cacert", str(authority.folder / "ca.pem"), "-w", "%{http_version}",
         "--resolve", f"en.example:{front.port}:127.0.0.1", f"https://en.example:{front.port}/h2"],
        capture_output=True, text=True, timeout=TIMEOUT, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("answer ")
    assert done.stdout.endswith("2")


def test_content_goes_both_ways(front):
    octets = b"x" * 300_000
    with front.connect() as connection:
        connection.sendall(
            b"POST /p HTTP/1.1\r\nHost: en.example\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n"
            + octets
        )
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")


async def echoed(port, context):
    """In one thread: TLS of Python 3.11 loses what one thread sends while another receives."""
    url, host = f"wss://en.example:{port}/chat", "127.0.0.1"
    async with (
        asyncio.timeout(TIMEOUT),
        connect(url, ssl=context, proxy=None, host=host, port=port) as socket,
    ):
        for message in ("text", b"\0\xff", "x" * 100_000):
            await socket.send(message)
            assert await socket.recv() == message


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_websockets_pass(name, inside, root, tmp_path, authority):
    def echo(connection):
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            host, port = server.socket.getsockname()
            running = inside(f'[[sites]]\nhosts = ["*"]\nupstream = "http://{host}:{port}"\n')
            status = b"HTTP/1.1 426 "  # an application of WebSockets alone
            with before(running, name, root, tmp_path, authority, status) as front:
                asyncio.run(echoed(front.port, authority.client()))
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("name", ["caddy", "haproxy"])
def test_a_check_notices_that_nobody_answers_clients(name, plain, root, tmp_path, authority):
    with before(plain, name, root, tmp_path, authority) as front:
        plain.end()
        until(lambda: front.ask(b"/front").split()[1] in {b"502", b"503"})
