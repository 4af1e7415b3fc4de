"""Ports for servers that have to be told theirs before they listen."""

import os
import random
import socket

# Below those that the system gives to connections and to whoever binds port 0 (Linux: from 32768 on), so that
# nobody takes one before the server does. Each process in which tests run has a share of its own.
FIRST, SHARE, SHARES = 10_000, 2_000, 11


def _ports() -> list[int]:
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = FIRST + process % SHARES * SHARE
    return random.sample(range(first, first + SHARE), SHARE)


_left = _ports()


def free_port() -> int:
    """A free port of 127.0.0.1; no other test gets it."""
    while True:
        port = _left.pop()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
