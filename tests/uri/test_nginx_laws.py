"""Law 3 against nginx itself: what it hands to its upstream for a target and for our canonical form of it."""

import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from examples import examples
from univocal.uri.profile import parse
from univocal.uri.target import Rejected, canonical_target

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="needs nginx (package nginx-light)")

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "profiles" / "nginx.toml").read_text()
PROFILES = parse({"merging": TEXT, "keeping": TEXT.replace("merge_slashes = true", "merge_slashes = false")})

CONFIGURATION = """
daemon off; master_process off; pid {home}/pid;
events {{ worker_connections 64; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{ listen unix:{home}/merging; location / {{ proxy_pass http://unix:{home}/origin:/; }} }}
  server {{ listen unix:{home}/keeping; merge_slashes off;
            location / {{ proxy_pass http://unix:{home}/origin:/; }} }}
}}
"""

TOKENS = [
    *b"/ / // . .. ; a B %2f %2F %2e %2E %41 % %% %25".split(),
    *(b"%28", b"(", b"[", b"%5B", b"|", b"%7c", b"<", b'"', b"\\", b"%5c", b"%20", b"%3f", b"%23"),
    *(b"%c3%a9", b"\xc3"),
    *b"%ff ~ %7e + %2b ' ^ ` { %7B %0a %00 %7f & = %3b".split(),
]


def answered(connection):
    """What comes until the other side closes, or the head of a request."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
        if received.startswith(b"GET ") and b"\r\n\r\n" in received:
            break
    return received


class Nginx:
    """nginx in front of a raw socket that keeps request lines."""

    def __init__(self, home):
        self.home = home
        self.lines = []
        self.origin = socket.socket(socket.AF_UNIX)
        self.origin.bind(str(home / "origin"))
        self.origin.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.origin.accept()
            except OSError:
                return
            with connection:
                self.lines.append(answered(connection).split(b"\r\n")[0])
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")

    def read(self, server, path):
        """The path as nginx understands it, decoded; None if it refuses it."""
        self.lines.clear()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.home / server))
            connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)
            status = answered(connection).split(b" ", 2)[1]
        if status != b"200":
            assert not self.lines
            return None
        return unquote_to_bytes(self.lines[0].removeprefix(b"GET ").rpartition(b" ")[0])


@pytest.fixture(scope="module")
def nginx():
    assert NGINX
    with tempfile.TemporaryDirectory(prefix="nginx") as name:
        home = Path(name)
        running = Nginx(home)
        (home / "nginx.conf").write_text(CONFIGURATION.format(home=home))
        command = [NGINX, "-e", str(home / "errors"), "-c", str(home / "nginx.conf")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 10
            while not (home / "keeping").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield running
            process.terminate()
        running.origin.close()


@pytest.mark.parametrize("server", ["merging", "keeping"])
def test_nginx_reads_both_alike(nginx, server):
    chosen = random.Random(server)
    profile = PROFILES[server]
    accepted = 0
    for _ in range(examples(4000)):
        path = b"/" + b"".join(chosen.choices(TOKENS, k=chosen.randint(1, 8)))
        canonical = canonical_target(path, profile)
        theirs = nginx.read(server, path)
        if isinstance(canonical, Rejected):
            # We refuse what nginx refuses, and control characters, of which it minds the NUL only.
            assert theirs is None or canonical.reasons == ("control-character",), path
        else:
            accepted += 1
            assert theirs is not None, path
            assert theirs == unquote_to_bytes(canonical), path
            assert nginx.read(server, canonical) == theirs, path
    assert accepted > examples(1000)
