"""A client of HTTP/2 that sends whatever frames a test likes, and the connection that it talks to.

Frames are written and read here octet by octet, so that nothing of the library under test judges itself; only
sections of fields are hpack's.
"""

import asyncio
from types import SimpleNamespace
from typing import NamedTuple

import hpack

from tests.pages import Origin
from tests.support import Clock, Transport
from univocal.cache.rules import Rules
from univocal.engine.exchange import Engine
from univocal.judge.admission import Gate
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits, Runtime
from univocal.server.clients import SUITS, Clients, ReadLimits
from univocal.server.http2.connection import Http2Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService, Uvicorn
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 5, 6, 7, 8
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 3, 4, 5, 6

LIMITS, NO_LIMITS = ReadLimits(), Limits()
NOW = 1_790_000_000.0  # September 2026
HOST = b"en.example"
GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/"), (b":authority", HOST)]
POST = [(b":method", b"POST"), *GET[1:]]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind, flags=0, stream=0, payload=b""):
    """A frame's octets."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(*pairs):
    return frame(
        SETTINGS,
        payload=b"".join(key.to_bytes(2, "big") + number.to_bytes(4, "big") for key, number in pairs),
    )


def window_update(increment, stream=0):
    return frame(WINDOW_UPDATE, stream=stream, payload=increment.to_bytes(4, "big"))


def rst_stream(stream, code=CANCEL):
    return frame(RST_STREAM, stream=stream, payload=code.to_bytes(4, "big"))


def data(stream, content=b"", *, ends=False):
    return frame(DATA, END_STREAM if ends else 0, stream, content)


def block(fields):
    """A section of fields that leaves no trace in a table."""
    octets = b""
    for name, value in fields:
        octets += b"\x10" + _length(name) + name + _length(value) + value
    return octets


def _length(octets):
    number = len(octets)
    if number < 127:
        return bytes((number,))
    number -= 127
    encoded = b"\x7f"
    while number >= 128:
        encoded += bytes((number % 128 + 128,))
        number //= 128
    return encoded + bytes((number,))


def headers(stream, fields=GET, *, ends=True, flags=END_HEADERS):
    return frame(HEADERS, flags | (END_STREAM if ends else 0), stream, block(fields))


def changed(fields, **pseudo):
    """`fields` with other values of pseudo-header fields; None: without it."""
    named = {b":" + name.encode(): value for name, value in pseudo.items()}
    kept = [(name, named.get(name, value)) for name, value in fields]
    return [(name, value) for name, value in kept if value is not None]


class ReadTransport(Transport):
    """A transport whose client reads, until a test says that it `reads` no more."""

    HIGH = 64 * 1024

    def __init__(self, protocol, suits):
        super().__init__(sockname=("192.0.2.2", 443), sslcontext=self)
        self._extra[SUITS] = suits
        self.protocol = protocol
        self.unread, self.writes, self.reads = bytearray(), 0, True

    def write(self, octets):
        assert not self.closed, "a write after the end"
        self.writes += 1
        if self.reads:
            self.sent += octets
            return
        full = len(self.unread) > self.HIGH
        self.unread += octets
        if not full and len(self.unread) > self.HIGH:
            self.protocol.pause_writing()

    def read_again(self):
        """Have the client read what waits."""
        full, self.reads = len(self.unread) > self.HIGH, True
        self.sent += self.unread
        self.unread.clear()
        if full:
            self.protocol.resume_writing()

    def get_write_buffer_size(self):
        return len(self.unread)


class Server:
    """A listener whose engine forwards to an `Origin`; each client of it is a connection."""

    def __init__(self, *, limits=LIMITS, clients=None, rules=None, runtime_limits=NO_LIMITS):
        self.origin, self.outcomes, self.refusals = Origin(), [], []
        self.clock = Clock(1000.0)
        profile = builtin_profiles()["asgi"]
        runtime = Runtime.everywhere(profile, rules or Rules(), limits=runtime_limits)
        gate = Gate(runtime, tiers_of(MemoryStore()))
        self.engine = Engine(gate, (self.outcomes.append,), lambda: NOW)
        self.clients = Clients() if clients is None else clients
        service = EngineService(self.engine, self.origin)
        self.listener = Listener(
            service,
            limits,
            lambda received, reasons: self.refusals.append((received, reasons)),
            self.clients,
            self.clock.tick,
        )
        self.state = SimpleNamespace(connections=set(), tasks=set(), total_requests=0, default_headers=[])

    def connect(self, *, suits=None, greets=True):
        return Client(self, suits, greets)


class Client:
    """A client's end of one connection."""

    def __init__(self, server, suits=None, greets=True):
        config = SimpleNamespace(timeout_keep_alive=5, timeout_graceful_shutdown=10, limit_concurrency=None)
        self.server, self.clock = server, server.clock
        self.connection = Http2Connection(server.listener, Uvicorn(config, server.state, {}, server.clock))
        self.transport = ReadTransport(self.connection, suits)
        self.connection.connection_made(self.transport)
        self.decoder = hpack.Decoder()
        self.frames, self._unread, self._section = [], b"", b""
        if greets:
            self.give(PREFACE + settings())

    def give(self, octets):
        """Hand octets over, if the connection still reads."""
        if not self.transport.closed:
            self.connection.data_received(octets)

    async def send(self, *frames):
        """Send frames, and let everything happen that can."""
        self.give(b"".join(frames))
        return await self.settle()

    async def settle(self):
        for _ in range(12):
            await asyncio.sleep(0)
        self._unread += bytes(self.transport.sent)
        self.transport.sent.clear()
        return self._parse()

    def _parse(self):
        """The frames that have come since the last time; sections of fields become lists."""
        new = []
        octets = self._unread
        while len(octets) >= 9 and len(octets) >= 9 + (size := int.from_bytes(octets[:3], "big")):
            number = int.from_bytes(octets[5:9], "big")
            new.append(Frame(octets[3], octets[4], number, octets[9 : 9 + size]))
            octets = octets[9 + size :]
        self._unread = octets
        read = [
            each._replace(payload=self._fields(each)) if each.kind in {HEADERS, CONTINUATION} else each
            for each in new
        ]
        self.frames += read
        return read

    def _fields(self, each):
        self._section += each.payload
        if not each.flags & END_HEADERS:
            return []
        section, self._section = self._section, b""
        return [tuple(field) for field in self.decoder.decode(section, raw=True)]

    async def leave(self):
        self.connection.connection_lost(None)
        await asyncio.sleep(0)

    # Frames received

    def of(self, stream, *kinds):
        return [each for each in self.frames if each.stream == stream and (not kinds or each.kind in kinds)]

    def head(self, stream):
        """The status and the fields of the final response, None if it has not come."""
        for each in self.of(stream, HEADERS):
            fields = dict(each.payload)
            if not fields.get(b":status", b"1").startswith(b"1"):
                return int(fields.pop(b":status")), fields
        return None

    def content(self, stream):
        return b"".join(each.payload for each in self.of(stream, DATA))

    def response(self, stream):
        """Status, fields, content."""
        status, fields = self.head(stream)
        return status, fields, self.content(stream)

    def interims(self, stream):
        found = [dict(each.payload) for each in self.of(stream, HEADERS)]
        return [fields for fields in found if fields.get(b":status", b"").startswith(b"1")]

    def has_ended(self, stream):
        return any(each.flags & END_STREAM for each in self.of(stream, HEADERS, DATA))

    def resets(self, stream):
        return [int.from_bytes(each.payload, "big") for each in self.of(stream, RST_STREAM)]

    @property
    def goodbyes(self):
        """The last stream and the code of each GOAWAY."""
        found = [each.payload for each in self.frames if each.kind == GOAWAY]
        return [(int.from_bytes(each[:4], "big"), int.from_bytes(each[4:8], "big")) for each in found]

    @property
    def error(self):
        """The code with which the connection was ended; None: it stands."""
        return self.goodbyes[-1][1] if self.goodbyes and self.transport.closed else None

    def granted(self, stream=0):
        """The octets of windows that were given, beyond the initial one."""
        return sum(int.from_bytes(each.payload, "big") for each in self.of(stream, WINDOW_UPDATE))

    async def ask(self, stream, fields=(), *, content=None, **pseudo):
        """One exchange: status, fields and content of its response."""
        base = changed(GET if content is None else POST, **pseudo)
        frames = [headers(stream, [*base, *fields], ends=content is None)]
        if content is not None:
            frames.append(data(stream, content, ends=True))
        await self.send(*frames)
        return self.response(stream)
