"""Sends random frames to an HTTP/2 connection in memory, and reports every fault and every stream left.

    python fuzz/http2.py --seconds 60 [--seed 7] [--replay 7.1234]

Whole requests, frames out of turn, damaged octets, silence, clients that read nothing, shutdowns. The laws:
nothing raises, frames alone are written, and a client that leaves leaves nothing behind; no stream stays open
that nobody looks after; what the session takes for a state without h2 is h2's state; every complete request
has an answer once its origin server has answered; and a client that pads its HEADERS frames, which h2 hears
one by one, sees what another sees.
"""

# ruff: noqa: S311

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
import traceback
from collections.abc import Iterable
from typing import Any

import hpack
from h2.stream import StreamState

from tests.http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    POST,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Asked,
    Client,
    Page,
    Server,
    block,
    changed,
    data,
    frame,
    rst_stream,
    settings,
    window_update,
)
from univocal.http.messages import Response
from univocal.server.http2.session import MOST_STREAMS, Session, SessionState

RESERVED = 2**31
LARGEST = RESERVED - 1
SIZES = (0, 1, 100, 16384, 16384, 65535, LARGEST, 2**32 - 1)
FIELDS = (
    *((b"x", b"y"), (b"x", b"z" * 200), (b"content-length", b"5"), (b"content-length", b"0")),
    *((b"expect", b"100-continue"), (b"cookie", b"a"), (b"te", b"trailers"), (b"accept", b"*/*")),
)
MALFORMED = (
    *((b":path", b"/"), (b":status", b"100"), (b":status", b"204"), (b"host", b"b"), (b"X", b"")),
    *((b"content-length", b"x"), (b"content-length", b"6"), (b"connection", b"close"), (b"", b"")),
)
STORED = ((b"cache-control", b"max-age=9"),)
PASSED = ((b"cache-control", b"no-store"),)
PATHS = (b"/", b"/", b"/stored", b"/large", b"/none", b"/passed")
OPEN = (StreamState.OPEN, StreamState.HALF_CLOSED_LOCAL)  # for what comes


class Faults(logging.Handler):
    """Keeps what is logged as a fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


class Script:
    """Writes a client's frames, most of them in order; the table of its encoder changes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.encoder = hpack.Encoder()
        self.latest = -1  # the stream that was opened last
        self.unfinished: list[int] = []  # streams whose request goes on

    def frames(self, *, is_sound: bool = False) -> list[bytes]:
        """The next frames; `is_sound`: none of them is a frame that no client sends."""
        ways = (self.request, self.content, self.control, self.late, self.stray, self.damaged, self.burst)
        weights = (40, 25, 25, 8, 0, 0, 0) if is_sound else (40, 25, 25, 8, 2, 1, 0.5)
        (way,) = self.chance.choices(ways, weights)
        return way()

    def request(self) -> list[bytes]:
        """A request, or its head."""
        chance = self.chance
        self.latest += 2 * chance.choice((1, 1, 1, 1, 1, 1, 2, 9))
        ends = chance.random() < 0.7
        base = GET if ends else POST
        if chance.random() < 0.1:
            base = changed(base, method=b"HEAD")
        more = chance.sample(FIELDS, chance.choice((0, 0, 0, 1, 2)))
        if chance.random() < 0.08:
            more.insert(0, chance.choice(MALFORMED))
        if not ends:
            self.unfinished.append(self.latest)
        fields = [*changed(base, path=chance.choice(PATHS)), *more]
        if chance.random() < 0.02:
            chance.shuffle(fields)
        return self.section(self.latest, fields, ends=ends)

    def section(self, stream: int, fields: list[tuple[bytes, bytes]], *, ends: bool) -> list[bytes]:
        """A section of fields in one frame, or in several."""
        chance = self.chance
        if chance.random() < 0.05:
            self.encoder.header_table_size = chance.choice((0, 60, 200, 4096))
        octets = self.encoder.encode(fields) if chance.random() < 0.7 else block(fields)
        flags = END_STREAM if ends else 0
        rest: list[bytes] = []
        if chance.random() < 0.1:
            at, again = sorted(chance.randrange(len(octets) + 1) for _ in range(2))
            rest = [octets[at:again], octets[again:]]
            octets = octets[:at]
        if chance.random() < 0.15:
            flags, octets = (
                flags | PRIORITIZED,
                chance.choice((b"\x80\0\0\0", b"\0\0\0\x7f")) + b"\xff" + octets,
            )
        if chance.random() < 0.1:
            padding = chance.randrange(9)
            flags, octets = flags | PADDED, bytes((padding,)) + octets + bytes(padding)
        kinds = [(HEADERS, flags, octets), *[(CONTINUATION, 0, part) for part in rest]]
        last = len(kinds) - 1
        return [
            frame(kind, own | (END_HEADERS if place == last else 0), stream, part)
            for place, (kind, own, part) in enumerate(kinds)
        ]

    def content(self) -> list[bytes]:
        """Content or trailers of a request that goes on."""
        chance = self.chance
        if not self.unfinished:
            return self.request()
        stream = chance.choice(self.unfinished)
        ends = chance.random() < 0.4
        if ends:
            self.unfinished.remove(stream)
        if ends and chance.random() < 0.3:
            fields = [(b"x", b"y")] if chance.random() < 0.8 else [chance.choice(MALFORMED)]
            return self.section(stream, fields, ends=True)
        octets = bytes(chance.choice((0, 1, 5, 5, 5, 300, 16000)))
        if chance.random() < 0.15:
            padding = chance.randrange(9)
            octets = bytes((padding,)) + octets + bytes(padding)
            return [frame(DATA, PADDED | ends, stream, octets)]
        return [data(stream, octets, ends=ends)]

    def stream(self) -> int:
        """A stream that was opened, or is beside one."""
        return max(1, self.latest - 2 * self.chance.choice((0, 0, 1, 1, 2, 3, 9)))

    def control(self) -> list[bytes]:
        chance, stream = self.chance, self.stream()
        return [
            chance.choice(
                (
                    rst_stream(stream, chance.randrange(15)),
                    window_update(chance.choice((1, 100, 100, 1000, 70_000, RESERVED + 100)), stream),
                    window_update(chance.choice((1, 100, 70_000, 70_000, RESERVED + 70_000))),
                    settings((chance.choice((1, 3, 4, 4, 6, 8, 0xFF)), chance.choice(SIZES[:-2]))),
                    settings(*((chance.randrange(7, 2**16), 1) for _ in range(20))),
                    frame(SETTINGS, ACK),
                    frame(PING, chance.randrange(2), RESERVED * chance.randrange(2), b"farewell"),
                    frame(PRIORITY, 0, stream, b"\0\0\0\0\xff"),
                    frame(chance.choice((10, 12, 16, 0x7F)), chance.randrange(256), stream, bytes(3)),
                    frame(10, 0, 0, bytes(3)),
                )
            )
        ]

    def late(self) -> list[bytes]:
        """A frame for a stream that may be over."""
        chance, stream = self.chance, self.stream()
        if chance.random() < 0.1:
            return self.section(stream, [(b"x", b"y")], ends=True)
        return [
            chance.choice(
                (
                    data(stream, bytes(chance.randrange(300)), ends=chance.random() < 0.5),
                    rst_stream(stream),
                    window_update(100, stream),
                    frame(GOAWAY, 0, 0, bytes(8)) if chance.random() < 0.1 else rst_stream(stream),
                )
            )
        ]

    def stray(self) -> list[bytes]:
        """A frame that no client sends."""
        chance = self.chance
        stream = chance.choice((0, 2, self.stream(), self.latest + 2))
        return [
            chance.choice(
                (
                    frame(PUSH_PROMISE, chance.choice((0, END_HEADERS)), stream, b"\0\0\0\x02" + block(GET)),
                    frame(CONTINUATION, chance.choice((0, END_HEADERS)), stream, block([(b"a", b"b")])),
                    frame(HEADERS, chance.choice((0, 1, 4, 5)), stream, block(GET)),
                    frame(HEADERS, END_HEADERS | PADDED, stream, b"\xff" + block(GET)),
                    frame(HEADERS, 5 | PRIORITIZED, stream, stream.to_bytes(4, "big") + b"\0" + block(GET)),
                    frame(DATA, PADDED, stream, chance.choice((b"", b"\x09test"))),
                    frame(PRIORITY, 0, stream, stream.to_bytes(4, "big") + b"\0"),
                    frame(RST_STREAM, 0, stream, bytes(chance.randrange(6))),
                    window_update(chance.choice((0, LARGEST)), stream),
                    settings((chance.randrange(9), chance.choice(SIZES))),
                    frame(SETTINGS, chance.randrange(2), 0, bytes(chance.randrange(13))),
                )
            )
        ]

    def damaged(self) -> list[bytes]:
        if self.chance.random() < 0.5:
            kind, flags = self.chance.randrange(12), self.chance.randrange(256)
            return [frame(kind, flags, self.stream(), self.chance.randbytes(self.chance.randrange(40)))]
        octets = bytearray(b"".join(self.frames()))
        for _ in range(self.chance.randrange(1, 4)):
            octets[self.chance.randrange(len(octets))] = self.chance.randrange(256)
        return [bytes(octets)]

    def burst(self) -> list[bytes]:
        """More streams than may be open at the same time."""
        return [each for _ in range(MOST_STREAMS + 10) for each in self.request()]


def server_of(chance: random.Random) -> Server:
    server = Server()
    server.origin.pages = {
        b"/": Page(
            fields=chance.choice((STORED, PASSED)),
            content=bytes(chance.choice((0, 6, 1000, 100_000))),
            interims=chance.choice(((), (), ((103, ()),))),
            is_early=chance.random() < 0.2,
            is_cut=chance.random() < 0.1,
        ),
        b"/stored": Page(fields=STORED),
        b"/large": Page(fields=STORED, content=bytes(70_000)),
        b"/none": Page(status=204, content=b""),
    }
    server.origin.holds, server.origin.is_greedy = chance.random() < 0.4, chance.random() < 0.7
    return server


async def play(chance: random.Random) -> None:
    """One connection, from its preface to its end."""
    server, script = server_of(chance), Script(chance)
    client = server.connect()
    for _ in range(chance.randrange(1, 60)):
        if client.transport.is_closed:
            break
        batch = b"".join(each for _ in range(chance.randrange(1, 5)) for each in script.frames())
        cut = chance.randrange(len(batch) + 1)
        for part in (batch[:cut], batch[cut:]):
            client.give(part)
            if chance.random() < 0.5:
                await client.settle()
            agree(client)
        disturb(chance, server, client)
    await finish(server, client)
    await client.leave()
    assert not server.state.connections
    assert client.connection.is_resting(), "streams are left"


def disturb(chance: random.Random, server: Server, client: Client) -> None:
    """Let time pass, the origin server answer, the client stop reading, the server end."""
    if chance.random() < 0.1:
        server.clock.pass_time(chance.choice((1, 20, 70)))
    if chance.random() < 0.05:
        client.transport.reads = False
    if chance.random() < 0.1:
        client.transport.read_again()
    if chance.random() < 0.03:
        client.connection.shutdown()
    if server.origin.holds and server.origin.asked and chance.random() < 0.5:
        asked = server.origin.asked.pop(chance.randrange(len(server.origin.asked)))
        if chance.random() < 0.5:
            asked.answer()
        elif not (asked.is_cancelled or asked.is_answered):
            answer_in_part(chance, asked)


def answer_in_part(chance: random.Random, asked: Asked) -> None:
    """Answer with a head, and a while later, perhaps, with its end."""
    answer: Any = asked._answer
    asked.is_answered = True
    answer.start(Response(asked.page.status, [*PASSED]))
    end = chance.choice((answer.finish, lambda: answer.fail(ConnectionResetError())))

    def later() -> None:
        if not asked.is_cancelled:
            end()

    asyncio.get_running_loop().call_later(0, asyncio.get_running_loop().call_soon, later)


def agree(client: Client) -> None:
    """Assert that the session's own state agrees with h2's."""
    session: Session = client.connection.session
    if session.state is SessionState.ENDED:
        return
    h2, brief = session._h2, session._brief
    assert session._whole is None, "a request that was read is neither entered nor answered"
    assert session._decoder._ahead is None, "a section that was read ahead is still to be decoded"
    assert brief._entered == h2.highest_inbound_stream_id <= brief.highest
    assert brief._window + brief._owed == h2.outbound_flow_control_window <= LARGEST
    assert brief.initial_window == h2.remote_settings.initial_window_size
    assert session._frames._in_fields == bool(h2.incoming_buffer._headers_buffer)
    assert not h2.incoming_buffer._data, "h2 waits for the rest of a frame"
    for stream in session._lengths:
        assert h2.streams[stream].state_machine.state in OPEN, f"{stream} is over, its content is awaited"
    for stream in session._dropped:
        assert stream not in h2.streams or h2.streams[stream].closed, f"{stream} is dropped, and open"
    for number, each in client.connection._streams.items():
        assert each._ended or not h2.streams[number].closed, f"{number} is over, its response is awaited"
        takes = number in h2.streams and h2.streams[number].state_machine.state in OPEN
        assert takes or each.is_complete, f"the request of {number} is over, its end is awaited"
    for number, each in h2.streams.items():
        kept = number in client.connection._streams or number in session._unended
        assert kept or each.state_machine.state not in OPEN, f"nobody looks after {number}, and it is open"
    assert len(client.connection._streams) <= MOST_STREAMS
    assert len(session._unended) <= MOST_STREAMS
    tables = session._decoder
    for first, field in tables._known.items():
        assert tables._decoder.decode(bytes((first,)), raw=True) == [field], "a field is another's"
    for octets, (_, fields) in tables._sections.items():
        assert tables._read(octets) == fields, "a section is another's"


async def finish(server: Server, client: Client) -> None:
    """Let everything be answered: no complete request waits for anybody but its client."""
    client.transport.read_again()
    server.origin.holds, server.origin.is_greedy = False, True
    for _ in range(3):
        asked, server.origin.asked = server.origin.asked, []
        for each in asked:
            if each._incoming is not None and not each.is_complete and not each.is_cancelled:
                each.take_more()
            elif each._left == each.page.content and not each.page.is_early:
                each.answer()
        await asyncio.sleep(0.001)
        await client.settle()
    if client.transport.is_closed:
        return
    agree(client)
    if not client.connection.session._frames.awaits_fields:
        waiting = [
            number
            for number, stream in client.connection._streams.items()
            if stream.is_complete and not stream.awaits_window
        ]
        assert not waiting, f"{waiting} have no answer"


async def compare(chance: random.Random) -> None:
    """Two clients send the same, and one pads its HEADERS frames: h2 hears of all of them."""
    script, seed = Script(chance), chance.random()
    frames = [each for _ in range(chance.randrange(1, 30)) for each in script.frames(is_sound=True)]
    plain = await conversation(random.Random(seed), frames)
    other = await conversation(random.Random(seed), [padded(each) for each in frames])
    for one, two in zip(plain, other, strict=True):
        assert one == two, f"{one} is {two} with padding"


def padded(octets: bytes) -> bytes:
    kind, flags, stream = octets[3], octets[4], int.from_bytes(octets[5:9], "big")
    if kind != HEADERS or flags & PADDED:
        return octets
    return frame(kind, flags | PADDED, stream, b"\0" + octets[9:])


async def conversation(chance: random.Random, frames: Iterable[bytes]) -> list[object]:
    """The frames of each stream as a client sees them, and the end of the connection."""
    server = server_of(chance)
    server.origin.holds, server.origin.is_greedy = False, True
    client = server.connect()
    for each in frames:
        await client.send(each)
        agree(client)
    streams = sorted({each.stream for each in client.frames} - {0})
    seen: list[object] = [
        [
            stream,
            [[one for one in each.payload if one[0] != b"date"] for each in client.of(stream, HEADERS)],
            client.content(stream),
            client.has_ended(stream),
            set(client.resets(stream)),  # h2 says so for each frame
        ]
        for stream in streams
    ]
    seen += [each for each in client.of(0) if each.kind != WINDOW_UPDATE]
    await client.leave()
    return [streams, *seen, client.transport.is_closed]


def broken(name: str) -> str:
    """The law that the connection of this name breaks, or ""."""
    faults, logger, chance = Faults(), logging.getLogger("univocal"), random.Random(name)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(faults)
    try:
        asyncio.run(asyncio.wait_for((play if chance.random() < 0.7 else compare)(chance), 60))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        faults.found.append(f"{error!r} at {where.filename}:{where.lineno}")
    finally:
        logger.removeHandler(faults)
        logger.propagate = propagates
    return faults.found[0] if faults.found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", default="")
    options = parser.parse_args()
    logging.getLogger("uvicorn.error").disabled = True
    end, number = time.monotonic() + options.seconds, 0
    while time.monotonic() < end and not (options.replay and number):
        name = options.replay or f"{options.seed}.{number}"
        wrong = broken(name)
        if wrong:
            sys.stderr.write(f"--replay {name}: {wrong}\n")
            return 1
        number += 1
    sys.stdout.write(f"{number} connections by HTTP/2, nothing found\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
