"""Content on its way through `univocal serve`: its memory, and what faults leave behind."""

import os
import socket
import time

import pytest

from support import origin_server, response_with

PORTS = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
PIECE = b"x" * 65536
MIB = 2**20
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nCache-Control: max-age=60\r\n\r\nhalf"


@pytest.fixture
def sizes():
    """An origin server that sends as many bytes as a GET names, and tells how many it was sent."""

    def answer(head, content):
        target = head.split(b" ")[1][1:]
        if target.startswith(b"half"):
            yield HALF
            raise ConnectionError
        if not target.isdigit():
            yield response_with(b"%d" % len(content))
            return
        yield b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % target
        yield from [PIECE] * (int(target) // len(PIECE))

    with origin_server(answer) as url:
        yield url


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


def head_and_content(framing, size):
    """A request for so many bytes, or with so many: the lines behind its target, and its pieces."""
    if framing is None:
        return f"GET /{size} HTTP/1.1", [b"\r\n"]
    if framing == "length":
        return "PUT /up HTTP/1.1", [b"Content-Length: %d\r\n\r\n" % size, *[PIECE] * (size // len(PIECE))]
    chunks = [b"%x\r\n%b\r\n" % (len(PIECE), PIECE)] * (size // len(PIECE))
    return "PUT /up HTTP/1.1", [b"Transfer-Encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n"]


@needs_proc
def test_memory_grows_neither_with_downloads_nor_with_uploads(start, sizes):
    # With it, only memory in use is resident; otherwise that depends on the order of the pieces.
    running = start("serve", "--upstream", sizes, *PORTS, MALLOC_MMAP_THRESHOLD_="65536")
    peaks = []
    for size in (6 * MIB, 48 * MIB):
        for framing in (None, "length", "chunked"):
            head, pieces = head_and_content(framing, size)
            with request(running.proxy, head) as connection:
                for piece in pieces:
                    connection.sendall(piece)
                if framing is None:
                    assert drained(connection, size) == size
                else:
                    read_until(connection, b"\r\n\r\n%d" % size)
            peaks.append(peak(running.process.pid))
    assert peaks[-1] - peaks[2] < 12 * MIB


@needs_proc
def test_nothing_is_left_behind_by_faults(start, sizes, ask):
    running = start("serve", "--upstream", sizes, *PORTS)
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
