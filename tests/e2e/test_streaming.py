"""Content on its way through `univocal serve`: memory, back-pressure, events, and who leaves."""

import contextlib
import os
import re
import socket
import socketserver
import threading
import time

import pytest

from support import head_of, serving

PORTS = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
PIECE = b"x" * 65536
MIB = 2**20
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nCache-Control: max-age=60\r\n\r\nhalf"


class Sizes(socketserver.ThreadingTCPServer):
    """Answers GET /NUMBER with so many octets, anything else with the number of octets it was sent."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent = 0  # octets of the response under way that the system has taken
        self.closed = threading.Event()  # the proxy has closed a connection before its response was through
        self.go = threading.Event()  # lets the next event of /events go

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):
    server: Sizes

    def handle(self):
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline():
                fields = head_of(self.rfile)
                path = line.split(b" ")[1]
                if path.startswith(b"/half"):
                    self.wfile.write(HALF)
                    return
                self._answer(path, self._received(fields.lower()))

    def _received(self, fields):
        if b"transfer-encoding: chunked" not in fields:
            length = re.search(rb"content-length: *(\d+)", fields)
            left = total = int(length[1]) if length else 0
            while left:
                left -= len(self.rfile.read(min(left, MIB)))
            return total
        total = 0
        while size := int(self.rfile.readline(), 16):
            total += len(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return total

    def _answer(self, path, received):
        if path == b"/events":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
            self.wfile.write(b"Transfer-Encoding: chunked\r\n\r\n")
            for number in range(3):
                self.server.go.wait()
                self.server.go.clear()
                self.wfile.write(b"9\r\ndata: %d\n\n\r\n" % number)
            self.wfile.write(b"0\r\n\r\n")
            return
        told = b"%d" % received if not path[1:].isdigit() else b""
        length = int(path[1:]) if not told else len(told)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (length, told))
        self.server.sent = 0
        try:
            while not told and self.server.sent < length:
                self.wfile.write(PIECE[: length - self.server.sent])
                self.server.sent += len(PIECE)
        except ConnectionError:
            self.server.closed.set()
            raise


@pytest.fixture
def sizes():
    with Sizes() as server, serving(server):
        yield server
        server.go.set()


def peak(pid):
    """The largest resident size that a process ever had, in octets."""
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024


def request(address, head):
    connection = socket.create_connection(address, timeout=20)
    connection.sendall(f"{head}\r\nHost: en.example\r\n".encode())
    return connection


def read_until(connection, end, received=b""):
    """Read on until `end` has come."""
    while end not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return received


def drained(connection, wanted):
    """Read until `wanted` octets of content have come."""
    received = read_until(connection, b"\r\n\r\n")
    count = len(received.partition(b"\r\n\r\n")[2])
    while count < wanted and (piece := connection.recv(MIB)):
        count += len(piece)
    return count


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")


@needs_proc
def test_memory_does_not_grow_with_a_download(start, sizes):
    running = start("serve", "--upstream", sizes.url, *PORTS)
    peaks = []
    for size in (16 * MIB, 128 * MIB):
        with request(running.proxy, f"GET /{size} HTTP/1.1") as connection:
            connection.sendall(b"\r\n")
            assert drained(connection, size) == size
        peaks.append(peak(running.process.pid))
    assert peaks[1] - peaks[0] < 16 * MIB


@needs_proc
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_memory_does_not_grow_with_an_upload(start, sizes, framing):
    # So that no more is resident than is in use: else it depends on the order in which pieces come and go.
    running = start("serve", "--upstream", sizes.url, *PORTS, MALLOC_MMAP_THRESHOLD_="65536")
    peaks = []
    for size in (16 * MIB, 128 * MIB):
        with request(running.proxy, "PUT /up HTTP/1.1") as connection:
            if framing == "length":
                connection.sendall(b"Content-Length: %d\r\n\r\n" % size)
                for _ in range(size // len(PIECE)):
                    connection.sendall(PIECE)
            else:
                connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
                for _ in range(size // len(PIECE)):
                    connection.sendall(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
                connection.sendall(b"0\r\n\r\n")
            read_until(connection, b"\r\n\r\n%d" % size)
        peaks.append(peak(running.process.pid))
    assert peaks[1] - peaks[0] < 16 * MIB


def test_events_pass_one_by_one(start, sizes):
    running = start("serve", "--upstream", sizes.url, *PORTS)
    with request(running.proxy, "GET /events HTTP/1.1") as connection:
        connection.sendall(b"\r\n")
        received = b""
        for number in range(3):
            sizes.go.set()  # the origin sends one event, and the next only after this one has arrived
            received = read_until(connection, b"data: %d\n\n" % number, received)
        received = read_until(connection, b"0\r\n\r\n", received)
    assert received.count(b"data: ") == 3


def test_a_slow_client_slows_the_origin_down(start, sizes):
    running = start("serve", "--upstream", sizes.url, *PORTS)
    size = 512 * MIB
    with request(running.proxy, f"GET /{size} HTTP/1.1") as connection:
        connection.sendall(b"\r\n")
        assert connection.recv(1024)
        taken = -1
        while sizes.sent != taken:  # until the origin stands still
            taken = sizes.sent
            time.sleep(0.3)
        assert taken < size // 4


LEAVING = [
    ("GET", "\r\n"),
    ("GET", "Cache-Control: no-store\r\n\r\n"),
    ("GET", "Content-Length: 4\r\n\r\nbody"),
    ("POST", "Content-Length: 4\r\n\r\nbody"),
    ("DELETE", "\r\n"),
]


def test_a_client_that_leaves_frees_the_origin(start, sizes):
    running = start("serve", "--upstream", sizes.url, *PORTS)
    for method, rest in LEAVING:
        sizes.closed.clear()
        with request(running.proxy, f"{method} /{512 * MIB} HTTP/1.1") as connection:
            connection.sendall(rest.encode())
            assert connection.recv(1024)
        assert sizes.closed.wait(30), (method, rest)


@needs_proc
def test_nothing_is_left_behind_by_faults(start, sizes, ask):
    running = start("serve", "--upstream", sizes.url, *PORTS)
    descriptors = f"/proc/{running.process.pid}/fd"
    assert ask(running.proxy, "/half", "en.example").body == b"half"
    before = len(os.listdir(descriptors))
    for number in range(200):
        with socket.create_connection(running.proxy, timeout=20) as connection:
            connection.sendall(b"GET /half%d HTTP/1.1\r\nHost: en.example\r\n\r\n" % (number % 7))
            if number % 2:
                assert connection.recv(65536)
    deadline = time.monotonic() + 30
    while len(os.listdir(descriptors)) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(os.listdir(descriptors)) <= before
    again = ask(running.proxy, "/half1", "en.example")
    assert "hit" not in (again.value("cache-status") or "")
