"""The load at a fixed rate: a server that stands still is charged for all that was due meanwhile."""

import socket
import threading

import pytest

from benchmarks.pace import at_rate, fill

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HELD = 0.2  # seconds


def serve_one(listening, held, received):
    """One connection: the first answer is held back, every other one comes at once."""
    connection, _ = listening.accept()
    with connection:
        while octets := connection.recv(1 << 16):
            if not received:
                threading.Event().wait(held)
            received.append(octets)
            connection.sendall(REPLY)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        received = []
        thread = threading.Thread(target=serve_one, args=(listening, HELD, received))
        thread.start()
        yield listening.getsockname()[1], received
        thread.join(10)


def test_one_long_wait_is_the_wait_of_many(server):
    port, received = server
    rate = 500.0
    latencies = at_rate(port, "/hit", 2, rate, HELD, connections=1)
    assert len(received) == rate * HELD
    # Half of what is counted was due in the first 55 % of the time for which the first answer was held back:
    # counted from when it was sent, each but that one would have taken next to nothing.
    assert latencies.p50 > HELD / 3
    assert latencies.requests == 90


def test_every_key_is_asked_for_once(server):
    port, received = server
    fill(port, range(7, 10), 2, connections=1)
    assert [request.split(b" ")[1] for request in received] == [b"/key/7", b"/key/8", b"/key/9"]
