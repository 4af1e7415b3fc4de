"""The program's end: it serves some clients for a while, and cuts the others."""

import json
import signal
import socket
import time
from contextlib import contextmanager

import pytest

from support import until

REQUEST = b"GET /%b HTTP/1.1\r\nHost: en.example\r\n\r\n"


@pytest.fixture
def serve(start_with):
    """Start the program with these lines in `[server]`."""

    def serve(server, upstream):
        return start_with(f'{server}\n[[sites]]\nhosts = ["*"]\nupstream = "{upstream}"\n')

    return serve


@pytest.fixture
def silent():
    """An origin server of which the test plays each answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        yield listening


@contextmanager
def asked(running, listening):
    """The connections of a client and of the origin server that has its request."""
    with socket.create_connection(running.proxy, timeout=20) as client:
        client.sendall(REQUEST % b"slow")
        origin, _ = listening.accept()
        with origin:
            assert origin.recv(4096)
            yield client, origin


def url(listening):
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_clients_are_served_while_the_program_prepares_to_end(serve, origin, ask):
    running = serve("drain = 100", origin.url)
    ready = lambda: ask(running.admin, "/-/ready", "localhost").status  # noqa: E731
    assert ready() == 200
    running.process.send_signal(signal.SIGTERM)
    until(lambda: ready() == 503)
    assert ask(running.admin, "/-/health", "localhost").status == 200
    assert ask(running.proxy, "/", "en.example").status == 200
    assert running.process.poll() is None
    assert running.end(signal.SIGTERM) == 0  # a second one ends it at once
    assert "SIGTERM: ends in 110 s at most" in running.err
    assert "SIGTERM: ends at once" in running.err


def test_after_that_it_ends_by_itself(serve, origin):
    running = serve("drain = 0.3", origin.url)
    assert running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("is_told_again", [False, True])
def test_running_requests_finish_and_no_new_connection_is_accepted(serve, silent, is_told_again):
    running = serve("shutdown_timeout = 100", url(silent))
    with asked(running, silent) as (client, origin):
        running.process.send_signal(signal.SIGTERM)
        until(lambda: not takes(running.proxy))
        assert running.process.poll() is None
        if is_told_again:  # it ends at once
            assert running.end() == 0
            return
        origin.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\nslow")
    assert running.end() == 0


def takes(address):
    try:
        socket.create_connection(address, timeout=20).close()
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("stage", ["no head", "no end", "nobody reads"])
def test_a_too_long_answer_is_cut_and_has_status_0(serve, silent, stage):
    running = serve("shutdown_timeout = 0.3", url(silent))
    with asked(running, silent) as (client, origin):
        if stage != "no head":
            origin.sendall(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 90000000\r\n\r\n")
            assert client.recv(1)
        if stage == "nobody reads":
            origin.settimeout(1)
            with pytest.raises(TimeoutError):
                origin.sendall(bytes(90_000_000))
        began = time.monotonic()
        assert running.end(signal.SIGTERM) == 0
        assert time.monotonic() - began < 9  # the default is 10
    (line,) = [json.loads(line) for line in running.out.splitlines()]
    assert (line["target"], line["bytes"] < 90_000_000) == ("/slow", True)
    assert "cut at the end" in running.err
