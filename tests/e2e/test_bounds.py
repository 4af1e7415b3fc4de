"""Clients that hold what others need, and the others, who are answered all the same."""

import contextlib
import http.client
import json
import re
import select
import socket
import socketserver
import struct
import threading
import time
from functools import partial

import pytest

from support import head_of, serving, until

GET = b"GET %b HTTP/1.1\r\nHost: en.example\r\n%b\r\n"
HELD = (b"/held", b"/held?again")  # a second request for the same would wait for the first response
MIB = 2**20


class Origin(socketserver.ThreadingTCPServer):
    """Answers /held when it is let go, /large with 64 MiB, all else at once; /kept alone may be stored."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.go, self.given_up = threading.Event(), threading.Event()
        self.asked = 0  # times that /held was
        self.left = 0  # times that nobody waited for it any more


class Handler(socketserver.StreamRequestHandler):
    server: Origin

    def handle(self):
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline():
                fields = head_of(self.rfile)
                length = re.search(rb"(?i)content-length: (\d+)", fields)
                self.rfile.read(int(length[1]) if length else 0)
                size = 2
                if b" /held" in line:
                    self.server.asked += 1
                    while not self.server.go.wait(0.02):
                        if select.select([self.connection], [], [], 0)[0]:
                            self.server.left += 1
                            return
                elif line.startswith(b"GET /large"):
                    size = 64 * MIB
                stored = b"no-store"
                if b" /kept" in line:
                    size, stored = MIB // 5, b"max-age=600"
                head = b"HTTP/1.1 200 OK\r\nCache-Control: %b\r\nContent-Length: %d\r\n\r\n" % (stored, size)
                try:
                    self.wfile.write(head + b"o" * size)
                except ConnectionError:
                    self.server.given_up.set()


@pytest.fixture
def origin():
    with Origin() as server, serving(server):
        yield server
        server.go.set()


@pytest.fixture
def serve(inside, origin):
    """Serve before the origin with these keys of [server], by a thread or otherwise."""

    def serve(begin=inside, **settings):
        server = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        upstream = f"http://127.0.0.1:{origin.server_address[1]}"
        site = f'[[sites]]\nhosts = ["*"]\nupstream = "{upstream}"\n'
        return begin(server + site)

    return serve


@pytest.fixture
def connect():
    """Open a connection that ends with the test."""
    with contextlib.ExitStack() as stack:

        def connect(address, data=b""):
            connection = stack.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(data)
            return connection

        yield connect


def answer(connection):
    """The status and the content of the next response."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def refused(connection):
    """The status and the reason of a refusal, after which the connection is closed."""
    status, content = answer(connection)
    assert connection.recv(1) == b""
    return status, json.loads(content)["reason"]


def logged(running):
    """The access log, once the program has ended."""
    assert running.end() == 0
    return [json.loads(line) for line in running.out.splitlines()]


def test_idle_sockets_take_nothing_from_who_asks(serve, start_with, connect, ask):
    running = serve(partial(start_with, descriptors=256))
    assert "at most 96 connections of clients and 96 to origin servers (256 descriptors)" in running.said
    old = connect(running.proxy, GET % (b"/", b""))
    assert answer(old)[0] == 200
    for _ in range(10):
        for _ in range(40):
            connect(running.proxy)
        # Connections are accepted in their order: when the last is answered, all are there.
        assert answer(connect(running.proxy, GET % (b"/", b"")))[0] == 200
        old.sendall(GET % (b"/", b""))
        assert answer(old)[0] == 200
    assert ask(running.proxy, "/", "en.example").status == 200
    metrics = ask(running.admin, "/metrics", "127.0.0.1").body.decode()
    (clients,) = re.findall(r'univocal_connections\{side="client"\} ([\d.]+)', metrics)
    assert 90 <= float(clients) <= 96
    assert 'univocal_connections{side="origin"}' in metrics
    assert running.end() == 0
    assert running.err.count("max_connections = 96 is reached") == 1


def test_slow_heads_give_way_and_are_told(serve, connect, ask):
    running = serve(max_connections=20)
    slow = [connect(running.proxy, b"GET / HTTP/1.1\r\nHost: en.example\r\nA: ") for _ in range(50)]
    assert ask(running.proxy, "/", "en.example").status == 200
    assert refused(slow[0]) == (408, "request-timeout")
    slow[-1].sendall(b"b\r\n\r\n")
    assert answer(slow[-1])[0] == 200
    metrics = ask(running.admin, "/metrics", "127.0.0.1").body.decode()
    assert re.search(r'univocal_refused_total\{reason="request-timeout",site="\*"\} 3\d', metrics)


def test_where_all_are_busy_a_newcomer_is_told_so(serve, connect, origin):
    running = serve(max_connections=2)
    busy = [connect(running.proxy, GET % (path, b"")) for path in HELD]
    until(lambda: origin.asked == 2)
    assert refused(connect(running.proxy, GET % (b"/", b""))) == (503, "overloaded")
    origin.go.set()
    assert [answer(each)[0] for each in busy] == [200, 200]
    assert answer(connect(running.proxy, GET % (b"/", b"")))[0] == 200


@pytest.mark.parametrize("trusted", [True, False])
def test_connections_of_one_client(serve, connect, ask, trusted):
    proxies = ["127.0.0.1/32"] if trusted else []
    running = serve(max_connections_per_client=2, trusted_proxies=proxies)
    first = [connect(running.proxy, GET % (b"/", b"")) for _ in range(2)]
    assert [answer(each)[0] for each in first] == [200, 200]
    third = connect(running.proxy, GET[:4])
    third.sendall((GET % (b"/", b""))[4:])
    if trusted:
        assert answer(third)[0] == 200
        return
    assert refused(third) == (429, "too-many-requests")
    for each in first:
        each.sendall(GET % (b"/", b""))
        assert answer(each)[0] == 200
    first[0].close()
    third.close()
    until(lambda: ask(running.proxy, "/", "en.example").status == 200)
    assert ["too-many-requests"] in [line["reasons"] for line in logged(running) if line["status"] == 429]


def test_one_client_leaves_others_the_admin_listener(serve, ask):
    """One that reads nothing of what it asks for."""
    admin = serve(trusted_proxies=["127.0.0.1"]).admin
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            made = stack.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.bind(("127.0.0.2", 0))
            made.connect(admin)
            made.sendall(GET % (b"/-/page/page.js", b"") * 300)
        assert ask(admin, "/-/health", "127.0.0.1").status == 200


def test_requests_of_one_client(serve, connect, origin):
    running = serve(max_requests_per_client=2)

    def one(number, path):
        return connect(running.proxy, GET % (path, b"X-Forwarded-For: 192.0.2.%d\r\n" % number))

    held = [one(1, path) for path in HELD]
    until(lambda: origin.asked == 2)
    status, content = answer(third := one(1, b"/"))
    assert (status, json.loads(content)["reason"]) == (429, "too-many-requests")
    assert answer(one(2, b"/"))[0] == 200
    origin.go.set()
    assert [answer(each)[0] for each in held] == [200, 200]
    third.sendall(GET % (b"/", b"X-Forwarded-For: 192.0.2.1\r\n"))  # its connection was kept
    assert answer(third)[0] == 200
    assert [line["reasons"] for line in logged(running) if line["status"] == 429] == [["too-many-requests"]]


HELD_POST = b"POST /held HTTP/1.1\r\nHost: en.example\r\nContent-Length: 5\r\n\r\nhello"
PURGE = b"PURGE /kept HTTP/1.1\r\nHost: en.example\r\n\r\n"
methods = pytest.mark.parametrize("request_", [GET % (b"/held", b""), HELD_POST], ids=["GET", "POST"])


def reset(client):
    """Close a connection so that the other side hears of it at once."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("ends", [False, True], ids=["open", "half closed"])
@methods
def test_a_client_that_resets_frees_its_origin_at_once(serve, connect, origin, request_, ends):
    running = serve()
    client = connect(running.proxy, request_)
    if ends:
        client.shutdown(socket.SHUT_WR)
    until(lambda: origin.asked)
    since = time.monotonic()
    reset(client)
    until(lambda: origin.left)
    assert time.monotonic() - since < 5
    (line,) = logged(running)
    assert line["status"] == 0


AT_ONCE = [
    ("proxy", GET % (b"/kept", b""), 200),
    ("proxy", GET % (b"/kept", b"Cache-Control: max-age=60\r\n"), 200),  # a hit of the long way
    ("proxy", GET % (b"/%00", b""), 400),
    ("proxy", PURGE, 200),
    ("admin", PURGE, 200),
    ("admin", GET % (b"/-/health", b""), 200),
]


def test_a_half_closed_client_gets_what_is_answered_at_once(serve, connect, ask):
    running = serve()
    for listener, request, status in AT_ONCE:
        assert ask(running.proxy, "/kept", "en.example").status == 200
        client = connect(getattr(running, listener), request)
        client.shutdown(socket.SHUT_WR)
        assert answer(client)[0] == status, request
        assert client.recv(1) == b""


POST = b"POST / HTTP/1.1\r\nHost: en.example\r\nContent-Length: 5000\r\n\r\n"


def test_a_client_that_reads_nothing_is_given_up(serve, connect, origin):
    running = serve(send_timeout=0.3)
    client = connect(running.proxy, GET % (b"/large", b""))
    assert origin.given_up.wait(20)
    client.close()
    (line,) = logged(running)
    assert (line["status"], line["reasons"]) == (200, ["request-timeout"])


def test_a_client_that_reads_no_hits_is_dropped_and_logged(serve, connect, ask):
    running = serve(send_timeout=0.3)
    assert ask(running.proxy, "/kept", "en.example").status == 200
    client = connect(running.proxy)
    with contextlib.suppress(ConnectionError):
        for _ in range(500):
            client.sendall(GET % (b"/kept", b""))
            time.sleep(0.005)  # each in a read of its own
    reason = r'univocal_refused_total\{reason="request-timeout",site="[^"]*"\} 1\.0'
    until(lambda: re.search(reason, ask(running.admin, "/metrics", "127.0.0.1").body.decode()))
    client.close()
    told = [(line["status"], line["reasons"]) for line in logged(running) if line["reasons"]]
    assert told == [(408, ["request-timeout"])]


def test_a_client_that_reads_slowly_is_not(serve, connect):
    running = serve(send_timeout=1)
    for _ in range(10):  # where this test stands still, it reads nothing: it asks once more
        received, pauses = read_slowly(connect(running.proxy, GET % (b"/large", b"")))
        if received > 64 * MIB or max(pauses, default=0) <= 0.5:
            break
    assert received > 64 * MIB


def read_slowly(client):
    """The bytes of an answer that are read, slowly at first, and the seconds between two reads."""
    received, pauses, last = 0, list[float](), time.monotonic()
    with contextlib.suppress(ConnectionError):
        while received <= 64 * MIB and (piece := client.recv(MIB)):
            received += len(piece)
            time.sleep(0.1 if len(pauses) < 15 else 0)
            pauses.append(time.monotonic() - last)
            last += pauses[-1]
    return received, pauses


def test_content_that_comes_in_drops_is_refused(serve, connect, ask):
    running = serve(content_timeout=0.3)
    client = connect(running.proxy, POST)
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            client.sendall(b"a")
            client.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                if client.recv(1, socket.MSG_PEEK):
                    break
    client.settimeout(20)
    assert refused(client) == (408, "request-timeout")
    assert ask(running.proxy, "/", "en.example", "POST", body="a" * 5000).status == 200
    told = [(line["status"], line["reasons"]) for line in logged(running)]
    assert told == [(408, ["request-timeout"]), (200, [])]


def test_a_flood_of_faulty_requests_does_not_fill_the_log(serve, start_with, connect, ask):
    running = serve(start_with)
    for _ in range(60):
        assert refused(connect(running.proxy, b"GARBAGE\r\n\r\n")) == (400, "bad-framing")
    assert ask(running.proxy, "/", "en.example").status == 200
    told = [line["reasons"] for line in logged(running)]
    assert told == [["bad-framing"]] * 60 + [[]]
    assert 1 <= running.err.count("Refused a request: bad-framing") <= 10
