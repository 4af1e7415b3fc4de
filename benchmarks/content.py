"""The cost of a megabyte of content for `univocal serve`, by kind and direction: CPU ms.

    python -m benchmarks.content --megabytes 8

A parser may stop at each line end, or call for each chunk: one that sends many of these then holds up all
others. So the same amount is sent in every kind, counted as it is on the wire, and the CPU time of the
process is read.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import h11

from benchmarks.figures import number
from benchmarks.machine import Cores, free_port, running
from benchmarks.servers import PEERS, Place, environment

MEGABYTE: Final = 1_000_000
CHUNK: Final = 16 * 1024
TIMEOUT: Final = 60
HOST: Final = b"Host: en.example\r\n"


@dataclass(frozen=True)
class Message:
    """The field that says how content is framed, and the content as it is on the wire."""

    field: bytes
    wire: bytes


def counted(unit: bytes) -> Message:
    """A megabyte of this, with a Content-Length."""
    wire = unit * (MEGABYTE // len(unit))
    return Message(b"Content-Length: %d" % len(wire), wire)


def chunked(unit: bytes, size: int = CHUNK, extension: bytes = b"") -> Message:
    """A megabyte of this, in chunks of `size` bytes."""
    content = (unit * (size // len(unit) + 1))[:size]
    chunk = b"%x%b\r\n%b\r\n" % (size, extension, content)
    return Message(b"Transfer-Encoding: chunked", chunk * (MEGABYTE // len(chunk)) + b"0\r\n\r\n")


KINDS: Final[Mapping[str, Callable[[], Message]]] = {
    "letters, with a length": lambda: counted(b"x"),
    "blank lines, with a length": lambda: counted(b"\r\n\r\n"),
    "letters, in chunks of 16 KiB": lambda: chunked(b"x"),
    "blank lines, in chunks of 16 KiB": lambda: chunked(b"\r\n\r\n"),
    "line feeds, in chunks of 16 KiB": lambda: chunked(b"\n"),
    "last chunks, in chunks of 16 KiB": lambda: chunked(b"0\r\n\r\n"),
    "field lines, in chunks of 16 KiB": lambda: chunked(b"a: b\r\n"),
    "request lines, in chunks of 16 KiB": lambda: chunked(b"GET / HTTP/1.1\r\n\r\n"),
    "letters, in chunks of 512 bytes": lambda: chunked(b"x", 512),
    "letters, in chunks of 16 bytes": lambda: chunked(b"x", 16),
    "letters, in chunks of one byte": lambda: chunked(b"x", 1),
    "blank lines, in chunks of one byte": lambda: chunked(b"\n", 1),
    "letters, in chunks of one byte with extensions": lambda: chunked(b"x", 1, b";a=b"),
}
BETWEEN: Final = "empty lines between requests"


@dataclass(frozen=True)
class Costs:
    """CPU milliseconds a megabyte, from clients and from origin servers.

    None: the connection was ended instead; NaN: there is no such thing.
    """

    kind: str
    request: float | None
    response: float | None = math.nan


def shown(cost: float | None) -> str:
    """A cost as the table has it."""
    if cost is None:
        return "ended"
    return "–" if math.isnan(cost) else number(cost)


def dearest(costs: Iterable[float | None]) -> float:
    """The dearest over the cheapest of what was taken."""
    taken = [each for each in costs if each is not None and not math.isnan(each)]
    return max(taken) / min(taken)


def cost_of_content(folder: Path, megabytes: int) -> Iterator[Costs]:
    """Measure every kind, in both directions, so many times."""
    messages = {name: make() for name, make in KINDS.items()}
    with origin_server(list(messages.values())) as port:
        place = Place(folder, free_port(), port)
        with started(place) as pid:
            front = ("127.0.0.1", place.port)
            for number, (name, message) in enumerate(messages.items()):
                post = b"POST / HTTP/1.1\r\n%bConnection: close\r\n%b\r\n\r\n" % (HOST, message.field)
                get = b"GET /%d HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (number, HOST)
                request = measured(pid, front, post + message.wire, len(message.wire), megabytes)
                response = measured(pid, front, get, len(message.wire), megabytes)
                yield Costs(name, request, response)
            last = b"GET /- HTTP/1.1\r\n%bConnection: close\r\n\r\n" % HOST
            empty = last.replace(b"Connection: close\r\n", b"") + b"\r\n" * (MEGABYTE // 2)
            yield Costs(BETWEEN, measured(pid, front, empty + last, MEGABYTE, megabytes))


def measured(pid: int, front: tuple[str, int], octets: bytes, size: int, times: int) -> float | None:
    """The CPU milliseconds of a process for each megabyte; None if it does not take all of it."""
    if not answered(front, octets):  # once before it counts
        return None
    before = cpu_seconds(pid)
    for _ in range(times):
        answered(front, octets)
    return (cpu_seconds(pid) - before) * 1000 / (times * size / MEGABYTE)


def answered(front: tuple[str, int], octets: bytes) -> bool:
    """Send this, and read what comes until the end; False if the other side takes no more of it."""
    with socket.create_connection(front, TIMEOUT) as connection:
        sent: list[bool] = []

        def send() -> None:
            with contextlib.suppress(OSError):
                connection.sendall(octets)
                sent.append(True)

        sender = threading.Thread(target=send)
        sender.start()
        begins = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 20):
                begins = begins or piece
        sender.join(TIMEOUT)
        return bool(sent) and begins.startswith(b"HTTP/1.1 200 ")


def cpu_seconds(pid: int) -> float:
    """The CPU time that all threads of a process have had."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextlib.contextmanager
def started(place: Place) -> Iterator[int]:
    """`univocal serve` before the origin server, as a process of its own."""
    server = PEERS["univocal"]
    core, folder = Cores.of_this_machine().server, place.folder
    with running(server.command(place), core, place.port, folder, environment(folder)) as family:
        yield family.pid


@contextlib.contextmanager
def origin_server(messages: list[Message]) -> Iterator[int]:
    """An origin server that takes any content, and answers GET /N with a message; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection, messages), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def answer(connection: socket.socket, messages: list[Message]) -> None:
    """Answer one connection's requests."""
    with connection, contextlib.suppress(OSError):
        parser, target = h11.Connection(h11.SERVER), b""
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(octets := connection.recv(1 << 20))
                if not octets:
                    return
            elif isinstance(event, h11.Request):
                target = event.target
            elif isinstance(event, h11.EndOfMessage):
                number = target[1:]
                message = messages[int(number)] if number.isdigit() else Message(b"Content-Length: 2", b"ok")
                head = b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n%b\r\n\r\n" % message.field
                connection.sendall(head + message.wire)
                parser = h11.Connection(h11.SERVER)
            elif not isinstance(event, h11.Data):
                return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.content", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=8, help="of each kind, in each direction: 8")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        costs = []
        for each in cost_of_content(Path(folder), options.megabytes):
            costs.append(each)
            print(f"{each.kind:50}{shown(each.request):>8}{shown(each.response):>8}", flush=True)
    ratios = [dearest(each.request for each in costs), dearest(each.response for each in costs)]
    print(f"{'the dearest over the cheapest':50}{ratios[0]:8.1f}{ratios[1]:8.1f}")


if __name__ == "__main__":
    main()
