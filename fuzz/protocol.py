"""Feeds mutated requests to both doors' protocols, whole and in pieces, and to h11, and reports disagreement.

    python fuzz/protocol.py --seconds 60 [--seed 7]

A connection before an engine answers half of them at a glance wherever it may. The laws:

- All that accept a request read the same request.
- A request that ExactProtocol accepts and h11 does not is one of the known `LENIENCIES`.
- The cuts between pieces of a stream change nothing.
- h11 can read every answer.

Refusing more than h11 is no disagreement. Exit status: 0 none, 1 some.
"""

# ruff: noqa: S311, T201

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import h11
import uvicorn
from uvicorn.server import ServerState

from univocal.cache.decide import Handling
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.engine.exchange import Engine, Exchange
from univocal.http.framing import is_authority
from univocal.http.messages import Fields, Received, Request, Response
from univocal.http.pipe import NO_CONTENT, Pipe
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.judge.admission import Admission, Gate, Plan
from univocal.judge.hits import Hit, HitFields, Tally
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.server.asgi_service import ExactProtocol
from univocal.server.clients import ReadLimits
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService, Responder, Turn, Uvicorn
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of

HOST = b"Host: a.example\r\n"
POST = b"POST /p?q HTTP/1.1\r\n" + HOST

SEEDS = (
    b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /a;b/%2e%zz?c=d&e#f HTTP/1.1\r\n" + HOST + b"X-Y: z\r\nx-y: \xc3\xa9\r\n\r\n",
    b"GET http://b.example:80/x?y HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /\xc3\xa9/%C3%A9?\xff#\x80 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"BAN /\xe2\x82\xac HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: keep-alive\r\nAccept-Encoding: gzip\r\nCookie: a=b\r\n\r\n",
    b"GET /b?c HTTP/1.1\r\n" + HOST + b"X-Forwarded-Host: b\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
    b"PURGE /a HTTP/1.1\r\n" + HOST + b"Connection: keep-alive\r\n\r\n",
    b"GET /1 HTTP/1.1\r\n" + HOST + b"\r\nGET /2 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    POST + b"Content-Length: 3\r\n\r\nabc",
    b"BAN /b HTTP/1.1\r\n" + HOST + b"Content-Length: 03\r\n\r\nabcX-Y /c HTTP/1.2\r\n" + HOST + b"\r\n",
    POST
    + b"Transfer-Encoding: chunked\r\n\r\n9\r\na\r\n\r\nb: c\r\n0\r\nT: u\r\n\r\nBAN /n HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
    POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabcGET /n HTTP/1.1\r\n" + HOST + b"\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /n HTTP/1.1\r\n" + HOST + b"\r\n",
    POST + b"Transfer-Encoding: chunked\r\nTrailer: T\r\n\r\nA;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
    b"GET /1 HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /2 HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
    POST
    + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nGETGET /n HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
)

TOKENS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\x0b",
        b"\x00",
        b"\x7f",
        b"\x80",
        b"\xff",
        b":",
        b",",
        b";",
        b"/",
        b"?",
        b"#",
    ),
    *(
        b"%",
        b"*",
        b"@",
        b"+",
        b"-",
        b"0",
        b"1",
        b"3",
        b"\r\n ",
        b"\r\n\t",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b" HTTP/1.2\r\n",
        b" RTSP/1.0\r\n",
        b"http://",
    ),
    *(b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Content-Length: 4\r\n", b"Content-Length:3 \r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding:\tchunked \r\n",
    ),
    *(
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: x\r\n chunked\r\n",
    ),
    *(
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\n",
        b"Upgrade: h2c\r\n",
        b"Upgrade: websocket\r\n",
        HOST,
    ),
    *(
        b"Expect: 100-continue\r\n",
        b"0\r\n\r\n",
        b"3\r\nabc\r\n",
        b"GET /x HTTP/1.1\r\n",
        b"Host: b\r\n",
        b"X: y\r\n",
    ),
)

# A stalled machine is no finding: nothing here depends on time.
PATIENT = ReadLimits(header_timeout=0, content_timeout=0)
HOURS = 24 * 3600

# Messages that llhttp lets pass and h11 does not; the bytes that are left when h11 stops begin like this.
LENIENCIES = {
    "empty lines before the request line": re.compile(rb"\r?\n"),
    "several blanks in the request line": re.compile(rb"[A-Z-]+ (?: +\S+ +| *\S+  +)HTTP/1\.[0-9]\r\n"),
    "octets above 0x7F in a target": re.compile(
        rb"[A-Z_-]+ +[!-~]*[\x80-\xff][!-~\x80-\xff]* +HTTP/1\.[0-9]\r\n"
    ),
}


Finding: TypeAlias = tuple[bytes, str]  # the octets, and what is wrong


@dataclass
class Reading:
    """The reading of a stream of bytes: complete requests, and where it ended."""

    requests: list[tuple[object, ...]] = field(default_factory=list)
    end: str = "more"  # more | closed | refused
    rest: bytes = b""  # h11: the octets that it refused
    sent: bytes = b""


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed, self.paused = bytearray(), False, False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not self.closed:
            self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Harness:
    """One uvicorn configuration for all connections; its application records every complete request."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.config = uvicorn.Config(
            self._application,
            interface="asgi3",
            lifespan="off",
            ws="none",
            timeout_keep_alive=HOURS,
            log_config=None,
        )
        self.config.load()
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)

    async def _application(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        reading, body, more = self.reading, b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        target = scope["extensions"]["univocal.target"]["target"]
        version, fields = scope["http_version"].encode(), comparable(target, scope["headers"])
        reading.requests.append((scope["method"].encode(), target, version, fields, body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def protocol(self) -> Http1Connection:
        """A new connection."""
        self.state = ServerState()
        return ExactProtocol(self.config, self.state, {}, limits=PATIENT)

    async def read(self, pieces: list[bytes]) -> Reading:
        """The protocol's reading of these pieces."""
        reading = self.reading = Reading()
        transport = _Transport()
        protocol = self.protocol()
        protocol.connection_made(transport)
        for piece in pieces:
            if transport.paused:
                await self._settle(transport)
            if transport.closed:
                break
            protocol.data_received(piece)
        await self._settle(transport)
        reading.sent = bytes(transport.sent)
        if transport.closed:
            reading.end = "refused" if b'"reason"' in reading.sent else "closed"
        transport.closed = True
        protocol.connection_lost(None)
        await asyncio.gather(*self.state.tasks)
        return reading

    async def _settle(self, transport: _Transport) -> None:
        still, seen = 0, -1
        while still < 6:
            await asyncio.sleep(0)
            now = len(transport.sent) + len(self.reading.requests)
            still, seen = (still + 1, seen) if now == seen else (0, now)


class DirectHarness(Harness):
    """The same before an engine, whose origin server records every complete request: a `Service`.

    The engine is asked for one target, whatever a request's own is: only the connection judges these. Every
    ordinary request may have a stored answer, with `glances`.
    """

    dates = True

    def __init__(self) -> None:
        super().__init__()
        runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules())
        self.gate = Gate(runtime, tiers_of(MemoryStore()))
        self.engine = Engine(self.gate)
        self.clock = self.engine.clock
        self.service = EngineService(self.engine, self)
        self.glances = False
        self.glanced = 0
        self._head: tuple[bytes, bytes, bytes, Fields]  # of the request that the engine has
        canonical = self._admit(b"GET").canonical
        fresh = Response(200, [(b"cache-control", b"max-age=9"), (b"content-length", b"0")])
        begun = may_store(b"", Fetched(Request(b"GET", b"/", []), fresh, 0.0, 0.0), Rules())
        assert isinstance(begun, Stored)
        stored = complete(begun, b"")
        assert stored is not None
        assert canonical is not None
        self._stored, self._canonical = stored, canonical

    def protocol(self) -> Http1Connection:
        self.state = ServerState()
        return Http1Connection(
            Listener(self, PATIENT, ticks=lambda: 0.0),
            Uvicorn(self.config, self.state, {}, asyncio.get_running_loop()),
        )

    def _admit(self, method: bytes) -> Admission:
        return self.gate.admit(Received(method, b"/"), [(b"host", b"a.example")], 0.0)

    # Called by the connection

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        """The protocol that a request asks to switch to."""
        return self.service.upgrade(received, fields)

    def respond(self, turn: Turn) -> Responder:
        """Have the engine answer, and keep what it is asked."""
        received = turn.received
        self._head = received.method, received.target, received.version, turn.fields
        content = turn.content or NO_CONTENT
        return Exchange(self.engine, turn, self._admit(b"POST"), self, content, (0.0, 0.0))

    def at_a_glance(
        self,
        received: Received,
        plan: Plan,
        values: tuple[bytes, ...],
        now: float,  # noqa: ARG002
    ) -> Hit | None:
        """The same stored response for every ordinary request."""
        if not self.glances or not is_authority(values[plan.host]):
            return None
        fields = comparable(received.target, plan.fields(values))
        self.reading.requests.append((b"GET", received.target, b"1.1", fields, b""))
        self.glanced += 1
        told = HitFields(Handling(), [], b"")
        return Hit(self._stored, self._stored.head, 0, None, told, Tally(self._canonical), plan, values)

    def tell(self, hit: Hit, received: Received, seconds: float, now: float) -> None:
        """Hear of a hit that was sent."""

    # Called by the engine

    @property
    def takes_targets(self) -> bool:
        """A target of its own may be asked for."""
        return True

    def ask(self, request: OriginRequest, answer: Answer) -> UnderWay:
        """Answer once the content is complete."""
        method, target, version, fields = self._head
        assert request.content is not None
        head = (method, target, version, comparable(target, fields))
        return _Taken(self.reading, head, request.content, answer)


class _Taken:
    """A request that the origin server takes."""

    def __init__(self, reading: Reading, head: tuple[object, ...], content: Pipe, answer: Answer) -> None:
        self._reading, self._head, self._content, self._answer = reading, head, content, answer
        self._body = b""
        self._over = False
        content.attach(self)

    def write(self, chunk: bytes) -> bool:
        self._body += chunk
        return True

    def finish(self) -> None:
        if self._over:
            return
        self._reading.requests.append((*self._head, self._body))
        self._answer.start(Response(200, [(b"content-length", b"0")]))
        self._answer.finish()

    def pause(self) -> None:
        pass

    resume = pause

    def cancel(self) -> None:
        self._over = True
        self._content.detach()


def comparable(target: bytes, fields: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The fields without what one reader respells: h11 the codings, and we Host for an absolute-form."""
    named = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in fields]
    return named if target.startswith((b"/", b"*")) else [each for each in named if each[0] != b"host"]


def by_h11(data: bytes) -> Reading:
    """The reading of the bytes by h11."""
    reading, connection = Reading(), h11.Connection(h11.SERVER)
    fed = 0
    head, body = None, b""
    connection.receive_data(data)
    while True:
        fed = len(connection.trailing_data[0])
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            reading.end, reading.rest = "refused", data[len(data) - fed :]
            return reading
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return reading
        if isinstance(event, h11.Request):
            head, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            fields = comparable(head.target, head.headers)
            # RFC 9110 §2.5: a higher minor version is read as the highest that is known
            version = b"1.1" if re.fullmatch(rb"1\.[1-9]", head.http_version) else head.http_version
            reading.requests.append((head.method, head.target, version, fields, body))
            connection.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            if connection.our_state is h11.SWITCHED_PROTOCOL:
                return reading
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                reading.end = "closed"
                return reading
            connection.start_next_cycle()


def readable(sent: bytes, requests: list[tuple[object, ...]]) -> bool:
    """Tell whether h11, as the client, can read these bytes."""
    rest, number = sent, 0
    while rest:
        client = h11.Connection(h11.CLIENT)
        method = requests[number][0] if number < len(requests) else b"GET"
        client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"a")]))  # type: ignore[arg-type]
        client.send(h11.EndOfMessage())
        client.receive_data(rest)
        try:
            while not isinstance(event := client.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    return rest.startswith(b"HTTP/1.1 100 ")  # asked to go on, and no more came
        except h11.RemoteProtocolError:
            return False
        rest, number = client.trailing_data[0], number + 1
    return True


def disagreement(ours: Reading, theirs: Reading, seen: Counter[str]) -> str:
    """The fault of our reading beside h11's; counts in `seen` the known leniencies."""
    for number, (mine, other) in enumerate(zip(ours.requests, theirs.requests, strict=False)):
        if mine != other:
            return f"request {number}: {mine} is {other} to h11"
    if len(ours.requests) > len(theirs.requests):
        if theirs.end == "refused":
            for name, pattern in LENIENCIES.items():
                if pattern.match(theirs.rest):
                    seen[name] += 1
                    return ""
        return (
            f"{ours.requests[len(theirs.requests)]} is no request to h11 ({theirs.end}, {theirs.rest[:80]!r})"
        )
    if not readable(ours.sent, ours.requests):
        return f"h11 cannot read {ours.sent!r}"
    return ""


def differ(whole: Reading, pieces: Reading) -> bool:
    """Tell whether the bytes read differently whole and in pieces."""
    return (whole.requests, whole.end) != (pieces.requests, pieces.end)


def mutate(chance: random.Random) -> bytes:
    """A stream of one or two seeds with a few changes."""
    data = bytearray(b"".join(chance.choices(SEEDS, k=chance.choice((1, 1, 2)))))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 | 1:
                data[at:at] = chance.choice(TOKENS)
            case 2:
                lines = [0, *(found.end() for found in re.finditer(rb"\r\n", data))]
                at = chance.choice(lines)
                data[at:at] = chance.choice(TOKENS)
            case 3:
                del data[at : at + chance.choice((1, 1, 2, 8))]
            case 4:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 5:
                end = min(len(data), at + chance.randrange(40))
                data[at:at] = data[at:end]
    return bytes(data)


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    """The data in pieces, of one octet each or at random places."""
    if chance.random() < 0.3:
        return [data[i : i + 1] for i in range(len(data))]
    places = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(chance.randrange(1, 6)))})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def apart(data: bytes) -> list[bytes]:
    """The data as a client sends it that waits for each answer: in pieces that end with a head."""
    places = [0, *(found.end() for found in re.finditer(rb"\r\n\r\n", data)), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places) if a < b]


async def fuzz(
    seed: int, seconds: float, streams: float, seen: Counter[str], most: float = math.inf
) -> list[Finding]:
    """The disagreements, `most` at most, of so many seconds or streams, whichever is over first."""
    chance, harness, direct = random.Random(seed), Harness(), DirectHarness()
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end and seen["streams"] < streams and len(found) < most:
        data = mutate(chance)
        seen["streams"] += 1
        whole, pieces = await harness.read([data]), await harness.read(cut(data, chance))
        seen["requests"] += len(whole.requests)
        seen[whole.end] += 1
        wrong = disagreement(whole, by_h11(data), seen)
        if differ(whole, pieces):
            wrong = f"whole {whole} is in pieces {pieces}"
        direct.glances = chance.random() < 0.5
        for way in ([data], cut(data, chance), apart(data)):
            other = await direct.read(way)
            if not readable(other.sent, other.requests):
                wrong = f"h11 cannot read {other.sent!r}"
            if differ(whole, other):
                wrong = f"ExactProtocol's {whole} is an engine's {other} of {way}"
        seen["at a glance"] = direct.glanced
        if wrong:
            found.append((data, wrong))
    return found


def findings(
    seed: int, *, seconds: float = math.inf, streams: float = math.inf, most: float = math.inf
) -> tuple[list[Finding], Counter[str]]:
    """The disagreements of a run, `most` at most, and what it has seen."""
    seen: Counter[str] = Counter()
    return asyncio.run(fuzz(seed, seconds, streams, seen, most)), seen


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    found, seen = findings(chosen.seed, seconds=chosen.seconds)
    for data, wrong in found[:20]:
        print(f"{data!r}\n    {wrong}")
    print(", ".join(f"{name}: {number}" for name, number in seen.most_common()))
    print(f"{len(found)} disagreements")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
