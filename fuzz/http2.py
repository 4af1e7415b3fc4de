"""Sends random frames to an HTTP/2 connection in memory, and reports every fault and every stream left.

    python fuzz/http2.py --seconds 60 [--seed 7] [--replay 7.1234]

Whole requests, frames out of turn, damaged octets, silence, clients that read nothing, shutdowns: nothing of
these raises, frames alone are written, and a client that leaves leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time

from tests.http2_client import (
    CONTINUATION,
    GET,
    GOAWAY,
    PING,
    POST,
    PRIORITY,
    Client,
    Page,
    Server,
    block,
    data,
    frame,
    headers,
    rst_stream,
    settings,
    window_update,
)

FIELDS = (
    *((b"x", b"y"), (b"content-length", b"5"), (b"expect", b"100-continue"), (b"cookie", b"a")),
    *((b"te", b"trailers"), (b":path", b"/"), (b"host", b"b"), (b"X", b"")),
)
STORED = ((b"cache-control", b"max-age=9"),)
PASSED = ((b"cache-control", b"no-store"),)


class Faults(logging.Handler):
    """Keeps what is logged as a fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


def octets(random: random.Random) -> bytes:
    """A frame, as a client sends it or as none does."""
    kind, stream = random.random(), random.choice((0, 1, 1, 3, 3, 5, 7, 9, 11, 13, 2))
    if kind < 0.4:
        fields = [*random.choice((GET, POST)), *random.sample(FIELDS, random.choice((0, 0, 0, 1, 2)))]
        flags = random.choice((4, 4, 4, 4, 0, 36, 12))
        return headers(stream, fields, ends=random.random() < 0.5, flags=flags)
    if kind < 0.6:
        return data(stream, bytes(random.randrange(300)), ends=random.random() < 0.3)
    if kind < 0.9:
        return random.choice(
            (
                rst_stream(stream, random.randrange(15)),
                window_update(random.choice((0, 1, 100, 100, 100, 2**31 - 1)), stream),
                settings(
                    (random.randrange(9), random.choice((0, 1, 100, 16384, 65535, 2**31 - 1, 2**32 - 1)))
                ),
                frame(PING, random.randrange(2), 0, bytes(8)),
                frame(GOAWAY, 0, 0, bytes(8)),
                frame(CONTINUATION, random.choice((0, 4)), stream, block([(b"a", b"b")])),
                frame(PRIORITY, 0, stream, bytes(5)),
            )
        )
    if kind < 0.95:
        return frame(
            random.randrange(12), random.randrange(256), stream, random.randbytes(random.randrange(40))
        )
    damaged = bytearray(octets(random))
    for _ in range(random.randrange(4)):
        damaged[random.randrange(len(damaged))] = random.randrange(256)
    return bytes(damaged)


def server_of(random: random.Random) -> Server:
    server = Server()
    server.origin.pages[b"/"] = Page(
        fields=random.choice((STORED, PASSED)),
        content=bytes(random.choice((0, 6, 1000, 100_000))),
        interims=random.choice(((), (), ((103, ()),))),
        is_early=random.random() < 0.2,
        is_cut=random.random() < 0.1,
    )
    server.origin.holds, server.origin.is_greedy = random.random() < 0.4, random.random() < 0.7
    return server


async def play(random: random.Random) -> None:
    """One connection, from its preface to its end."""
    server = server_of(random)
    client = server.connect()
    for _ in range(random.randrange(1, 60)):
        if client.transport.is_closed:
            break
        batch = b"".join(octets(random) for _ in range(random.randrange(1, 5)))
        cut = random.randrange(len(batch) + 1)
        client.give(batch[:cut])
        if random.random() < 0.5:
            await client.settle()
        client.give(batch[cut:])
        if random.random() < 0.5:
            await client.settle()
        disturb(random, server, client)
    await client.settle()
    await client.leave()
    assert not server.state.connections
    assert client.connection.is_resting(), "streams are left"


def disturb(random: random.Random, server: Server, client: Client) -> None:
    """Let time pass, the client stop reading, the server end."""
    if random.random() < 0.1:
        server.clock.pass_time(random.choice((1, 20, 70)))
    if random.random() < 0.05:
        client.transport.reads = False
    if random.random() < 0.1:
        client.transport.read_again()
    if random.random() < 0.03:
        client.connection.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", default="")
    options = parser.parse_args()
    faults, logger = Faults(), logging.getLogger("univocal")
    logger.addHandler(faults)
    logger.propagate = False
    logging.getLogger("uvicorn.error").disabled = True
    end, number = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        name = options.replay or f"{options.seed}.{number}"
        try:
            asyncio.run(asyncio.wait_for(play(random.Random(name)), 20))  # noqa: S311
        except Exception as error:
            faults.found.append(repr(error))
        if faults.found:
            sys.stderr.write(f"--replay {name}: {faults.found[0]}\n")
            return 1
        number += 1
        if options.replay:
            break
    sys.stdout.write(f"{number} connections by HTTP/2, nothing found\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
