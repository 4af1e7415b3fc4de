"""Sends random frames to an HTTP/2 connection in memory, and reports every fault and every stream left.

    python fuzz/http2.py --seconds 60 [--seed 7] [--replay 7.1234]

Whole requests, frames out of turn, damaged octets, silence, clients that read nothing, shutdowns. The laws:
nothing raises, frames alone are written, and a client that leaves leaves nothing behind; no stream stays open
that nobody looks after; every complete request has an answer once its origin server has answered; and h2, a
second opinion that hears each frame of both sides, finds no fault in ours, and has our states and windows.
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
from contextlib import suppress
from typing import Any

import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import InvalidBodyLengthError, NoSuchStreamError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from h2.stream import StreamState as Theirs

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
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Client,
    Server,
    block,
    changed,
    data,
    frame,
    rst_stream,
    settings,
    window_update,
)
from tests.pages import Asked, Page
from univocal.http.messages import Response
from univocal.server.http2.connection import HeadSent
from univocal.server.http2.fields import head_of
from univocal.server.http2.session import MOST_STREAMS, STREAM_WINDOW, Session, SessionState, StreamState

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
STATES = {
    Theirs.OPEN: StreamState.OPEN,
    Theirs.HALF_CLOSED_REMOTE: StreamState.REMOTE,
    Theirs.HALF_CLOSED_LOCAL: StreamState.LOCAL,
}


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
        if octets and chance.random() < 0.1:  # h2 takes a frame of padding alone for an error
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
        if client.transport.closed:
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
    """Have time pass, the origin server answer, the client stop reading, the server end."""
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
    """Assert that the session and the connection agree about the streams."""
    session: Session = client.connection.session
    if session.state is SessionState.ENDED:
        return
    own, responses = session._streams, client.connection._streams
    assert max(session._window, session.incoming.left) <= LARGEST
    for number, stream in own.items():
        assert number in responses or number in session._unended, f"nobody looks after {number}"
        assert stream.window <= LARGEST
        assert (stream.incoming is None) == (stream.state is StreamState.REMOTE)
    for number, each in responses.items():
        has_ended = isinstance(each.state, HeadSent) and each.state.has_ended
        assert has_ended or number in own, f"{number} is over, its response is awaited"
        incoming = number in own and own[number].incoming is not None
        assert incoming or each.is_complete, f"the request of {number} is over, its end is awaited"
    assert set(session._unended) <= set(own)
    assert not set(own) & set(session._closed)
    assert max(len(responses), len(session._unended)) <= MOST_STREAMS
    tables = session._decoder
    for first, field in tables._known.items():
        assert tables._decoder.decode(bytes((first,)), raw=True) == [field], "a field is another's"
    for octets, head in tables._sections.items():
        assert head_of(tables.fields(octets)) == head, "a section is another's"


async def finish(server: Server, client: Client) -> None:
    """Answer everything: a complete request waits for its client alone."""
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
    if client.transport.closed:
        return
    agree(client)
    if client.connection.session.fields_since is None:
        waiting = [
            number
            for number, stream in client.connection._streams.items()
            if stream.is_complete and not stream.awaits_window
        ]
        assert not waiting, f"{waiting} have no answer"


class Oracle:
    """h2 as another server on the same connection, which hears what the client and our side send."""

    def __init__(self) -> None:
        config = H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = H2Connection(config)
        self.h2.local_settings = Settings(
            client=False, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: LARGEST}
        )
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window((2 * MOST_STREAMS - 1) * STREAM_WINDOW)
        self.h2.receive_data(PREFACE + settings())
        self._reset = set[int]()  # the streams that our side has reset
        self._ended = set[int]()  # and those that it has ended

    def hears(self, octets: bytes) -> bool | None:
        """Hear a client's frame; False: it is an error. None: one that our side need not see any more.

        Frames on a stream that it has reset are ignored (RFC 9113 §5.1). So is content that contradicts its
        length once the response has ended, and so are trailers that no message may have.
        """
        if octets[3] == WINDOW_UPDATE:
            octets = octets[:9] + bytes((octets[9] & 0x7F,)) + octets[10:]  # h2 refuses the reserved bit
        stream = int.from_bytes(octets[5:9], "big")
        opened = self.h2.streams.get(stream)
        is_answered = opened is not None and opened.state_machine.state is Theirs.HALF_CLOSED_LOCAL
        ends = octets[3] == HEADERS and bool(octets[4] & END_STREAM)
        is_trailer = is_answered and (ends or octets[3] == CONTINUATION)
        try:
            self.h2.receive_data(octets)
        except ProtocolError as error:
            is_late = stream in self._ended and (isinstance(error, InvalidBodyLengthError) or is_trailer)
            return None if is_late or stream in self._reset else False
        return True

    def hears_us(self, frames: list[Any]) -> None:
        """Hear our frames; what h2 would never send is an error."""
        for each in frames:
            ends = each.kind in {HEADERS, DATA} and bool(each.flags & END_STREAM)
            if ends:
                self._ended.add(each.stream)
            if each.kind == HEADERS:
                self.h2.send_headers(each.stream, each.payload, end_stream=ends)
            elif each.kind == DATA:
                self.h2.send_data(each.stream, each.payload, end_stream=ends)
            elif each.kind == RST_STREAM:
                self._reset.add(each.stream)
                with suppress(StreamClosedError, NoSuchStreamError):  # h2 has reset it, too
                    self.h2.reset_stream(each.stream)
            elif each.kind == WINDOW_UPDATE:
                increment = int.from_bytes(each.payload, "big")
                self.h2.increment_flow_control_window(increment, each.stream or None)

    def agrees(self, session: Session) -> None:
        """Assert that both have the same streams, in the same states, and the same windows."""
        h2 = self.h2
        theirs = {number: each for number, each in h2.streams.items() if each.state_machine.state in STATES}
        assert set(theirs) == set(session._streams)
        assert h2.outbound_flow_control_window == session._window
        assert h2.inbound_flow_control_window == session.incoming.left
        for number, each in theirs.items():
            own = session._streams[number]
            assert STATES[each.state_machine.state] is own.state, f"{number} is {each.state_machine.state}"
            assert each.outbound_flow_control_window == own.window, f"the window of {number}"
            if own.incoming is not None:
                assert each.inbound_flow_control_window == own.incoming.window.left


def is_disputed(octets: bytes, session: Session) -> bool:
    """Tell whether h2 takes a frame for another than it is: an extension, a setting, RST_STREAM too early."""
    kind, stream = octets[3], int.from_bytes(octets[5:9], "big")
    if kind == SETTINGS:
        return any(octets[place] or octets[place + 1] > 6 for place in range(9, len(octets), 6))
    return kind > CONTINUATION or (kind == RST_STREAM and stream > session.highest)


async def compare(chance: random.Random) -> None:
    """A client sends frame by frame what clients send, and h2 hears both sides."""
    script, oracle, server = Script(chance), Oracle(), server_of(chance)
    client = server.connect()
    await client.settle()
    session = client.connection.session
    for octets in [each for _ in range(chance.randrange(1, 30)) for each in script.frames(is_sound=True)]:
        if octets[3] == GOAWAY or client.transport.closed:  # for h2 that is the end
            break
        if is_disputed(octets, session):
            oracle.hears_us(await client.send(octets))
            continue
        is_sound, answers = oracle.hears(octets), await client.send(octets)
        agree(client)
        if is_sound is None:
            break
        if not is_sound:
            refused = any(each.kind in {RST_STREAM, GOAWAY} for each in answers)
            # The answer that says why may wait for a window.
            refused = refused or any(each.is_malformed for each in client.connection._streams.values())
            assert refused, f"{octets.hex()} is no error"
            break
        if octets[3] == HEADERS and not octets[4] & END_HEADERS and session.state is SessionState.ENDED:
            break  # fields for a stream that is over: h2 says so once all of them are there
        assert session.state is not SessionState.ENDED, f"{octets.hex()} ends the connection"
        oracle.hears_us(answers)
        oracle.agrees(session)
    await client.leave()


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
