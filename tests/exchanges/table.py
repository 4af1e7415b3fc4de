"""A table of exchanges: each row is what clients and an origin server do, and what they see of it.

A row is played on every way in (see `ways`), whole, byte by byte, and with bytes behind each message that are
no part of it. In a table a name begins a row, and its steps stand behind it:

    asks(…)      a client asks; the steps behind it are about this request until another asks
    goes(…)      it has reached the origin server with these fields
    stays()      it has not
    answers(…)   the origin server answers the oldest request that it has not answered
    got(…)       what the client has by now
    sends(…)     a client of HTTP/1.1 sends bytes
    adds(…)      it sends more of them
    wrote(…)     what the bytes begin with that it has been sent, and whether its connection is open
    replies(…)   the origin server answers with bytes
    miss(…)      all of these for a request that the origin server answers
    hit(…)       all of these for one that a stored response answers
    where(…)     the ways in and the settings of the row

Expected content is what the client has once it has undone the content coding.

Expected fields are lines: `"age: 3"` is the field's whole value, `"cache-status ~ hit"` a part of it, and
`"-age"` says that there is none.
"""

import gzip
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeAlias

import brotli
import pytest
import zstandard

from examples import LONG
from exchanges.ways import SURPLUS, Asgi, Http1, Http2, Mounted, Plain, Seen, Sent
from fuzz.exchanges.grammar import Scenario
from fuzz.exchanges.messages import Message
from fuzz.exchanges.world import Served, World, played, runtime_of
from univocal.judge.runtime import Runtime

FRESH = "Cache-Control: max-age=60"
TAG = 'ETag: "a"'
BODY = b"0123456789"
MAX_OBJECT = 8000  # bytes that a response may have to be stored
WAYS = {"engine": Plain, "http1": Http1, "http2": Http2, "asgi": Asgi, "mounted": Mounted}
MODES = ("whole", "pieces", "surplus")
DECODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": brotli.decompress,
    "zstd": lambda content: zstandard.ZstdDecompressor().decompressobj().decompress(content),
}
POISON = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\npoison"

Lines: TypeAlias = Iterable[tuple[bytes, bytes]]


class Row(NamedTuple):
    """Steps under these settings of the cache; with `ways`, on those ways in alone."""

    name: str
    steps: tuple[Any, ...]
    rules: dict[str, Any]
    ways: tuple[str, ...]


class Where(NamedTuple):
    """The ways of a row, and the settings of its cache."""

    ways: tuple[str, ...]
    rules: dict[str, Any]


def where(ways: Iterable[str] = WAYS, **rules: Any) -> Where:
    return Where(tuple(ways), rules)


def row(name: str, *steps: Any, ways: Iterable[str] = WAYS, **rules: Any) -> Row:
    return Row(name, steps, rules, tuple(ways))


def every(table: Sequence[Any], **rules: Any) -> list[Any]:
    """The rows of a table as parameters, with these settings besides their own.

    A name begins a row, whose steps stand behind it; whole rows stand between.
    """
    rows: list[Row] = []
    for part in table:
        match part:
            case Row():
                rows.append(part)
            case str():
                rows.append(row(part))
            case Where():
                rows[-1] = rows[-1]._replace(ways=part.ways, rules=part.rules)
            case _:
                assert rows[-1].name in table, f"{rows[-1].name} is whole"
                rows[-1] = rows[-1]._replace(steps=(*rows[-1].steps, part))
    return [pytest.param(each._replace(rules=each.rules | rules), id=each.name) for each in rows]


async def play(row: Row, modes: Sequence[str] = MODES) -> None:
    """Play a row in these modes on each of its ways; a failure says in which.

    `make test` plays it whole on each way, and by turns in pieces or with surplus.
    """
    runtime = runtime_of(row.rules)
    for at, way in enumerate(row.ways):
        for mode in modes:
            is_its_turn = MODES.index(mode) in {0, 1 + (at + len(row.name)) % 2}
            if LONG or is_its_turn:
                try:
                    await play_once(row, way, mode, runtime)
                except BaseException as failure:
                    failure.add_note(f"on the way {way}, {mode}, by {row.rules}")
                    raise


async def play_once(row: Row, way: str, mode: str, runtime: Runtime) -> None:
    """Play a row; nothing may fail unseen, and what stands behind a message is for no client."""
    world = World(Scenario(row.rules, MAX_OBJECT, []), runtime)
    with ExitStack() as stack:
        stack.enter_context(played(world))
        stage = Stage(world, WAYS[way], mode)
        try:
            await stage.carry_out(row.steps)
            stage.check_surplus()
        finally:
            await world.close()
        assert not world.errors


class Asking(NamedTuple):
    """A request under way: its client, and how many requests the origin server had got before."""

    client: Any
    known: int
    surplus: bool


class Stage:
    """A world in which a row is played."""

    def __init__(self, world: World, way: Callable[[World], Any], mode: str) -> None:
        self.world, self._way, self.mode = world, way, mode
        self.askings: dict[str, Asking] = {}
        self.latest = ""

    async def carry_out(self, steps: Iterable[Any]) -> None:
        for step in steps:
            if isinstance(step, tuple | list):
                await self.carry_out(step)
            else:
                await step(self)

    @property
    def served(self) -> list[Served]:
        """The requests at the origin server, without those behind others."""
        return [each for each in self.world.served if each.request.target != SURPLUS]

    @property
    def unanswered(self) -> Served:
        """The oldest request that still wants an answer."""
        return next(each for each in self.served if not each.octets and not each.wire.closed)

    async def settle(self) -> None:
        """Carry out all that is due; requests that stand behind others are answered."""
        await self.world.rest()
        for each in self.world.served:
            if each.request.target == SURPLUS and each.octets == b"":
                each.octets = (
                    b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 7\r\n\r\nsurplus"
                )
                each.wire.protocol.data_received(each.octets)
                await self.world.rest()

    async def ask(self, sent: Sent, name: str, *, leaves_room: bool) -> None:
        client = self._way(self.world)
        surplus = self.mode == "surplus" and leaves_room and hasattr(client, "surplus_is_answered")
        self.askings[name], self.latest = Asking(client, len(self.served), surplus), name
        client.ask(sent, pieces=self.mode == "pieces", surplus=surplus)
        await self.settle()

    def asking(self, name: str = "") -> Asking:
        return self.askings[name or self.latest]

    def forwarded(self, name: str = "") -> Message | None:
        found = self.served[self.asking(name).known :]
        return found[0].request if found else None

    async def answer(self, octets: bytes, *, close: bool, framed: bool) -> None:
        """Have the origin server send these octets for the oldest request that has no answer."""
        served = self.unanswered
        served.octets = octets
        wire = served.wire
        if self.mode == "surplus" and framed and not close:
            octets += POISON
        size = 1 if self.mode == "pieces" else len(octets)
        for at in range(0, len(octets), size):
            if wire.closed:
                break
            while wire.paused:
                await self.world.rest()
            wire.protocol.data_received(octets[at : at + size])
        await self.settle()
        if close and not wire.closed:
            wire.protocol.eof_received()
            wire.lose()
            await self.settle()

    def check_surplus(self) -> None:
        for asking in self.askings.values():
            assert b"poison" not in asking.client.seen().content
            if asking.surplus and asking.client.seen().complete:
                assert asking.client.surplus_is_answered()


def holds(line: str, fields: Lines) -> bool:
    """Tell whether fields are as a line says."""
    name, sign, wanted = (part.strip() for part in _parts(line))
    values = [value for key, value in fields if key.lower() == name.lower().encode()]
    whole = b", ".join(values).decode("latin-1")
    if sign == "-":
        return not values
    return bool(values) and (wanted in whole if sign == "~" else wanted == whole)


def _parts(line: str) -> tuple[str, str, str]:
    if line.startswith("-"):
        return line[1:], "-", ""
    return line.partition(" ~ ") if " ~ " in line else line.partition(":")  # type: ignore[return-value]


Step: TypeAlias = Callable[[Stage], Awaitable[None]]


def asks(
    *lines: str,
    target: str = "/a",
    method: str = "GET",
    content: bytes | None = None,
    name: str = "",
    room: bool = True,
) -> Step:
    """A client asks with these fields; another step may mean it by its name."""
    split = (line.partition(":") for line in lines)
    fields = [(key.encode(), value.strip().encode("latin-1")) for key, _, value in split]
    sent = Sent(target.encode(), method.encode(), fields, content)
    return lambda stage: stage.ask(sent, name or f"#{len(stage.askings)}", leaves_room=room)


def sends(octets: bytes, method: bytes = b"GET") -> Step:
    """A client of HTTP/1.1 sends these bytes."""

    async def step(stage: Stage) -> None:
        client = Http1(stage.world)
        stage.latest = f"#{len(stage.askings)}"
        stage.askings[stage.latest] = Asking(client, len(stage.served), False)
        client.say(octets, method)
        await stage.settle()

    return step


def adds(octets: bytes) -> Step:
    """The client of HTTP/1.1 sends more."""

    async def step(stage: Stage) -> None:
        stage.asking().client.say(octets)
        await stage.settle()

    return step


def wrote(begin: bytes, *, is_open: bool | None = None) -> Step:
    """Check how the bytes sent to a client of HTTP/1.1 begin."""

    async def step(stage: Stage) -> None:
        client = stage.asking().client
        assert client.heard.startswith(begin)
        assert is_open in {None, client.is_open}

    return step


def replies(octets: bytes, *, close: bool = False) -> Step:
    """The origin server answers with these bytes."""
    return lambda stage: stage.answer(octets, close=close, framed=False)


def problem(reason: str) -> Step:
    """Check that the client has a problem with this reason."""

    async def step(stage: Stage) -> None:
        assert json.loads(stage.asking().client.seen().content)["reason"] == reason

    return step


def goes(
    *lines: str, target: str = "", start: bytes = b"", content: bytes | None = None, name: str = ""
) -> Step:
    """The request has reached the origin server."""

    async def step(stage: Stage) -> None:
        request = stage.forwarded(name)
        assert request is not None, "it did not reach the origin server"
        assert request.complete
        for line in lines:
            assert holds(line, request.fields), (line, request.fields)
        assert target in {"", request.target.decode()}
        assert start in {b"", request.start}
        assert content is None or request.content == content

    return step


def stays(name: str = "") -> Step:
    """The request has not reached the origin server."""

    async def step(stage: Stage) -> None:
        assert stage.forwarded(name) is None, "it reached the origin server"

    return step


def reached(count: int) -> Step:
    """Check the number of requests that have reached the origin server."""

    async def step(stage: Stage) -> None:
        assert len(stage.served) == count

    return step


def answers(
    *lines: str, status: str = "200 OK", content: bytes = BODY, coding: str = "length", interim: bytes = b""
) -> Step:
    """The origin server answers; `coding` is how it frames the content: length, chunked, or close."""

    async def step(stage: Stage) -> None:
        served = stage.unanswered
        bodiless = served.request.method == b"HEAD" or status[:3] in {"204", "304"}
        framing = {"length": f"Content-Length: {len(content)}", "chunked": "Transfer-Encoding: chunked"}
        told = [] if status[:3] in {"204", "304"} else [framing[coding]] if coding in framing else []
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines, *told, "", ""]).encode("latin-1")
        parts = (
            [content] if coding != "chunked" else [b"%x\r\n%b\r\n" % (len(content), content), b"0\r\n\r\n"]
        )
        octets = interim + head + (b"" if bodiless else b"".join(parts))
        await stage.answer(octets, close=coding == "close", framed=coding in framing or bodiless)

    return step


def breaks() -> Step:
    """The origin server's connection breaks, instead of an answer."""

    async def step(stage: Stage) -> None:
        served = stage.unanswered
        served.octets = b"-"
        served.wire.lose(ConnectionResetError("reset"))
        await stage.settle()

    return step


def cut_short(*lines: str, content: bytes = b"012") -> Step:
    """The origin server closes its connection in the middle of the content."""

    async def step(stage: Stage) -> None:
        head = "\r\n".join(["HTTP/1.1 200 OK", *lines, "Content-Length: 10", "", ""]).encode()
        await stage.answer(head + content, close=True, framed=False)

    return step


def got(
    status: int = 200,
    *lines: str,
    content: bytes | None = None,
    complete: bool = True,
    interims: tuple[int, ...] = (),
    name: str = "",
) -> Step:
    """Check the response that a client has; it is whole unless `complete` says otherwise."""

    async def step(stage: Stage) -> None:
        seen: Seen = stage.asking(name).client.seen()
        assert (seen.status, seen.complete, seen.interims) == (status, complete, interims)
        for line in lines:
            assert holds(line, seen.fields), (line, seen.fields)
        assert content is None or _decoded(seen) == content

    return step


def _decoded(seen: Seen) -> bytes:
    coding = next((value.decode() for name, value in seen.fields if name == b"content-encoding"), "")
    return DECODE[coding](seen.content) if coding in DECODE and seen.content else seen.content


def waits_still(name: str = "") -> Step:
    """The client has no answer."""

    async def step(stage: Stage) -> None:
        assert stage.asking(name).client.seen().status == 0

    return step


def wait(seconds: float) -> Step:
    """So much time passes."""
    return lambda stage: stage.world.wait(seconds)


def purge(target: str = "/a", *lines: str) -> Step:
    """The machine itself purges."""

    async def step(stage: Stage) -> None:
        client = stage.world.connect("127.0.0.1")
        head = "\r\n".join([f"PURGE {target} HTTP/1.1", "Host: en.example", *lines, "", ""])
        client.outbox.append(head.encode())
        await stage.settle()
        assert client.wire.sent.startswith(b"HTTP/1.1 200 "), bytes(client.wire.sent)

    return step


def leaves(name: str = "") -> Step:
    """The client of a request leaves."""

    async def step(stage: Stage) -> None:
        stage.asking(name).client.leave()
        await stage.settle()

    return step


def miss(
    *lines: str, asked: Iterable[str] = (), sees: Iterable[str] = (), target: str = "/a", **answer: Any
) -> Any:
    """The origin server answers with `lines`, and the client has `sees` among them."""
    status = int(answer.get("status", "200")[:3])
    return asks(*asked, target=target), goes(), answers(*lines, **answer), got(status, *sees)


def hit(
    *sees: str, asked: Iterable[str] = (), target: str = "/a", status: int = 200, content: bytes = BODY
) -> Any:
    """A client asks with `asked`, and a stored response answers it."""
    return asks(*asked, target=target), stays(), got(status, "cache-status ~ hit", *sees, content=content)
