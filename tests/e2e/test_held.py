"""Origin servers that hold what clients wait for: `univocal serve` before real ones, over sockets."""

import contextlib
import itertools
import os
import select
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from support import Stopwatch, head_of, origin_server, response_with
from tests.ports import free_port
from tests.started import running

BODY = b"p" * 5000


class StallingOrigin:
    """Stops in the middle of its first answer, behind `sent` bytes of content, until it is let go."""

    def __init__(self, sent):
        self.sent, self.asked = sent, 0
        self.stalled, self.go = threading.Event(), threading.Event()

    def answer(self, *_):
        self.asked += 1
        sent = self.sent if self.asked == 1 else len(BODY)
        whole = response_with(BODY, b"Cache-Control: max-age=60\r\n")
        yield whole[: len(whole) - len(BODY) + sent]
        if sent < len(BODY):
            self.stalled.set()
            self.go.wait(20)
            yield BODY[sent:]


@pytest.fixture
def before(inside):
    """before(server, origin=""): a proxy before a server, with these lines of its table."""

    def before(server, origin=""):
        host, port = server.server_address[:2]
        site = f'[[sites]]\nhosts = ["en.example"]\nupstream = "http://{host}:{port}"\n'
        return inside(f"[origin]\n{origin}\n{site}")

    return before


RULES = {"usual": "", "other": 'errors = "explicit"\nset_cookie = "explicit"\nheuristic = true'}


def test_content_that_stalls_holds_the_first_client_alone(inside, ask):
    """Behind the head and in the content, by either rules: at once, for each takes five seconds."""
    origins, sites = dict[str, StallingOrigin](), ""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as stalls:
        for sent, (name, rules) in itertools.product((0, 1000), RULES.items()):
            host = f"{name}-{sent}.example"
            origins[host] = server = StallingOrigin(sent)
            upstream = stack.enter_context(origin_server(server.answer))
            stack.callback(server.go.set)
            sites += f'[[sites]]\nhosts = ["{host}"]\nupstream = "{upstream}"\n[sites.cache]\n{rules}\n'
        front = inside(sites).proxy
        for _ in stalls.map(partial(stall, ask, front), origins, origins.values()):
            pass


def stall(ask, front, host, stalling):
    with ThreadPoolExecutor(8) as clients, Stopwatch() as watch:
        first = clients.submit(ask, front, "/", host)
        assert stalling.stalled.wait(30)
        begun = time.monotonic()
        others = [clients.submit(ask, front, "/", host) for _ in range(5)]
        assert {(each.result().status, each.result().body) for each in others} == {(200, BODY)}
        assert time.monotonic() - begun > 4
        assert watch.seconds < 10
        assert not first.done()
        # A later client gets the response that they brought.
        assert ask(front, "/", host).body == BODY
        stalling.go.set()
        assert first.result().body == BODY
    assert stalling.asked <= 6


# Origin servers with few workers, of which a connection that is kept holds one

WORKERS, SECONDS, AT_ONCE = 10, 0.05, 40
# A connection that is kept is idle for four seconds at most: for less than that nobody stands still.
STANDSTILL = 3.0


class PreforkOrigin:
    """Serves as many connections as it has workers, each until it is closed; the others wait in the queue.

    A worker is `held` if it has an idle connection while others wait for a worker, and all workers could have
    answered three times meanwhile.
    """

    def __init__(self, backlog):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.server_address = self.listener.getsockname()
        self.accepted, self.served, self.held = 0, 0, 0
        for _ in range(WORKERS):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            connection.settimeout(5)
            with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as stream:
                while self._head(stream):
                    time.sleep(SECONDS)
                    self.served += 1
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    def _head(self, stream):
        waited, served = self._is_awaited(), self.served
        head = head_of(stream)
        if waited and self._is_awaited():
            self.held += self.served - served >= 3 * WORKERS
        return head

    def _is_awaited(self):
        """Tell whether a connection waits for a worker."""
        return bool(select.select([self.listener], [], [], 0)[0])

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()  # what workers serve still ends with univocal


@pytest.fixture
def prefork():
    with contextlib.closing(PreforkOrigin(backlog=511)) as server:
        yield server


@pytest.fixture
def full():
    """One whose queue is soon full, as that of the standard library's servers."""
    with contextlib.closing(PreforkOrigin(backlog=5)) as server:
        yield server


APACHE = """
ServerRoot {directory}
ServerName en.example
PidFile {directory}/pid
DefaultRuntimeDir {directory}
Mutex file:{directory} default
Listen 127.0.0.1:{port}
ErrorLog {directory}/error.log
LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule cgi_module {modules}/mod_cgi.so
{user}
StartServers {workers}
MinSpareServers {workers}
MaxSpareServers {workers}
ServerLimit {workers}
MaxRequestWorkers {workers}
KeepAlive On
KeepAliveTimeout 5
ScriptAlias / {directory}/page/
"""


@dataclass
class Apache:
    """Debian's Apache with its prefork workers, before a script."""

    server_address: tuple[str, int]


@pytest.fixture
def apache():
    program, modules = shutil.which("apache2", path="/usr/sbin:/usr/bin"), Path("/usr/lib/apache2/modules")
    if program is None:
        pytest.skip("needs apache2 (Debian package apache2)")
    # Apache's workers are another user, who does not get through pytest's own folders.
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o755)
        script = directory / "page"
        script.write_text(f"#!/bin/sh\nsleep {SECONDS}\nprintf 'Content-Length: 5\\r\\n\\r\\nhello'\n")
        script.chmod(0o755)
        port, user = free_port(), "User www-data\nGroup www-data" if os.getuid() == 0 else ""
        (directory / "httpd.conf").write_text(
            APACHE.format(directory=directory, port=port, modules=modules, user=user, workers=WORKERS)
        )
        # Its end is that of its process group: not that of the tests.
        command = [program, "-DFOREGROUND", "-f", str(directory / "httpd.conf")]
        with running(command, port, process_group=0):
            yield Apache(("127.0.0.1", port))


@pytest.mark.parametrize("name", ["prefork", "full", "apache"])
def test_forty_requests_at_once_wait_for_no_idle_connection(before, ask, request, name):
    server = request.getfixturevalue(name)
    program = before(server)

    def answered(number):
        assert b"hello" in ask(program.proxy, f"/{number}", "en.example").body
        return watch.seconds

    with ThreadPoolExecutor(AT_ONCE) as clients, Stopwatch() as watch:
        for turn in range(4):
            times = [watch.seconds, *sorted(clients.map(answered, range(turn, 4 * AT_ONCE, 4)))]
            standstills = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert max(standstills) < STANDSTILL, "all wait until a connection that is kept is closed as idle"
    assert getattr(server, "held", 0) == 0
    assert program.end() == 0


def test_no_connection_is_kept_where_none_may_be_idle(before, ask, prefork):
    front = before(prefork, "max_idle = 0").proxy
    for number in range(3):
        assert ask(front, f"/{number}", "en.example").body == b"hello"
    assert prefork.accepted == 3
