"""Latency at a fixed rate, counted from when a request was due: a slow answer hides no request behind it.

wrk sends a connection's next request when the last one is answered, so that a server that stands still for
a second is asked nothing in that second, and one long latency is counted where there were thousands. Here
the n-th request is due at n / rate seconds whatever the server does. It is sent on a free connection, waits
for one if there is none, and its latency is the time from when it was due until its response has been read.
The generator sleeps only while every connection waits for an answer: it has the other core for itself,
since the origin is not asked on hits.
"""

from __future__ import annotations

import contextlib
import gc
import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PATIENCE = 20.0  # seconds without any answer


@dataclass(frozen=True)
class Latencies:
    """Seconds by quantile, of `requests` answers; `late` is the p99 of how late the generator itself was.

    The generator is late by the time from when a request was due, and a connection free, until it was sent.
    """

    requests: int
    p50: float
    p99: float
    p999: float
    late: float


def quantile(numbers: Sequence[float], share: float) -> float:
    """The number below or at which `share` of the sorted numbers are (nearest rank)."""
    return numbers[max(1, math.ceil(round(share * len(numbers), 6))) - 1]


class Responses:
    """The responses on one connection, each with `length` bytes of content."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._begun = b""

    def feed(self, octets: bytes) -> bool:
        """Take what was read; True once the response is whole. Raises ValueError if it is no 200."""
        if self._begun:
            octets = self._begun + octets
        end = octets.find(b"\r\n\r\n")
        if end < 0 or len(octets) < end + 4 + self._length:
            self._begun = octets
            return False
        if len(octets) > end + 4 + self._length or not octets.startswith(b"HTTP/1.1 200 "):
            raise ValueError(octets[:200])
        self._begun = b""
        return True


def at_rate(port: int, path: str, length: int, rate: float, seconds: float, connections: int) -> Latencies:
    """Ask for `path` at `rate` requests per second; the first tenth is not counted.

    Raises ValueError for a response that is not 200 with `length` bytes, or if a connection ends, and
    TimeoutError if no answer comes at all.
    """
    request = request_for(port, path)
    latencies, lateness = exchange(port, lambda _: request, length, rate, int(rate * seconds), connections)
    latencies, lateness = (sorted(each[len(each) // 10 :]) for each in (latencies, lateness))
    p50, p99, p999 = (quantile(latencies, share) for share in (0.5, 0.99, 0.999))
    return Latencies(len(latencies), p50, p99, p999, quantile(lateness, 0.99))


def fill(port: int, keys: Sequence[int], length: int, connections: int) -> float:
    """Ask for every key once, as fast as the server answers: the seconds. Raises as `at_rate` does."""
    begun = time.perf_counter()
    exchange(
        port, lambda turn: request_for(port, f"/key/{keys[turn]}"), length, math.inf, len(keys), connections
    )
    return time.perf_counter() - begun


def request_for(port: int, path: str) -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (path.encode(), port)


def exchange(
    port: int, request: Callable[[int], bytes], length: int, rate: float, total: int, connections: int
) -> tuple[list[float], list[float]]:
    """Send `total` requests when they are due and read their responses: latencies and lateness, in order."""
    with contextlib.ExitStack() as stack:
        opened = {}
        for _ in range(connections):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
            opened[each.fileno()] = (each, Responses(length))
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        return paced(opened, request, rate, total)


def paced(
    opened: dict[int, tuple[socket.socket, Responses]],
    request: Callable[[int], bytes],
    rate: float,
    total: int,
) -> tuple[list[float], list[float]]:
    poller, now = select.epoll(), time.perf_counter
    for number in opened:
        poller.register(number, select.EPOLLIN)
    free = deque((number, 0.0) for number in opened)  # and since when
    due: dict[int, float] = {}
    latencies: list[float] = []
    lateness: list[float] = []
    sent, begun = 0, now()
    heard = begun
    with poller:
        while len(latencies) < total:
            if now() - heard > PATIENCE:
                raise TimeoutError(f"no answer for {PATIENCE} seconds")
            while sent < total and free and (at := begun + sent / rate) <= (is_now := now()):
                number, since = free.popleft()
                due[number] = at
                lateness.append(is_now - max(at, since))
                opened[number][0].send(request(sent))
                sent += 1
            # It waits only here: nothing can be sent before an answer has come.
            for number, _ in poller.poll(0 if free and sent < total else PATIENCE):
                connection, responses = opened[number]
                if not (octets := connection.recv(1 << 17)):
                    raise ValueError("the server closed a connection")
                if responses.feed(octets):
                    heard = now()
                    latencies.append(heard - due.pop(number))
                    free.append((number, heard))
    return latencies, lateness
