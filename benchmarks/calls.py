"""The Python calls of the library for one request, the modules they are in, and the lookups in the store.

    python -m benchmarks.calls

A hit, misses and a purge go through `univocal serve`'s listener to an origin server and back, with a
browser's 13 fields. A hit and a miss of a mounted application go by ASGI. An `__init__` that only assigns is
not counted, and comprehensions are not. Each count has a ceiling: what was counted when it was set. Exit
status 1: a count is above its ceiling. A change that needs more calls raises it, and says why.
"""

from __future__ import annotations

import asyncio
import dis
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import univocal
from benchmarks.contents import BROWSER
from univocal import CacheMiddleware, MemoryStore, Rules
from univocal.engine import outcome
from univocal.server import clients
from univocal_app.config.tables import validate
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Bound
from univocal_app.run.serve import Serving

LIBRARY = str(Path(univocal.__file__).parent)
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>"}
# A question to the store, by a key or by an entry that was found before.
LOOKUPS = ("MemoryStore.may_hold", "MemoryStore.lookup", "Tiers.revisit")
CONTENT = bytes(1024)
TOLD = {b"stored": b"max-age=3600", b"stale": b'max-age=0\r\nETag: "1"'}
LINES = "".join(f"{line}\r\n" for line in BROWSER).encode()
FIELDS = [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in LINES.splitlines())]


@dataclass(frozen=True)
class Ceiling:
    """The most calls, modules and lookups that a request may take."""

    calls: int
    modules: int
    lookups: int


CEILINGS = {
    "hit": Ceiling(13, 9, 1),
    "stale hit that is fetched": Ceiling(217, 30, 1),
    "miss that is not stored": Ceiling(118, 27, 1),
    "miss that is stored": Ceiling(140, 28, 1),
    "purge": Ceiling(140, 22, 0),
    "mounted hit": Ceiling(12, 7, 1),
    "mounted miss": Ceiling(148, 25, 1),
}


@dataclass
class Counted:
    """The calls by function, as `module.py: qualified name`."""

    calls: Counter[str] = field(default_factory=Counter)

    @property
    def modules(self) -> int:
        """The number of modules in which the functions are."""
        return len({place.partition(":")[0] for place in self.calls})

    @property
    def lookups(self) -> int:
        """The number of times that the memory was asked for what is stored under a key."""
        return sum(number for place, number in self.calls.items() if place.partition(": ")[2] in LOOKUPS)

    def excess(self, ceiling: Ceiling) -> str:
        """The functions with their numbers, if a count is above its ceiling; else an empty string."""
        counts = self.calls.total(), self.modules, self.lookups
        most = ceiling.calls, ceiling.modules, ceiling.lookups
        if all(count <= bound for count, bound in zip(counts, most, strict=True)):
            return ""
        listed = "\n".join(f"{number:4} {place}" for place, number in self.calls.most_common())
        return f"{counts}, more than {most}:\n{listed}"


@cache
def only_assigns(code: CodeType) -> bool:
    """Tell whether a function is an `__init__` such as dataclasses write."""
    return code.co_name == "__init__" and not any(
        step.opname.startswith("CALL") for step in dis.get_instructions(code)
    )


async def counted(act: Callable[[], Awaitable[None]]) -> Counted:
    """The calls of the library while `act` runs, all that the event loop does meanwhile included."""
    found = Counted()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(LIBRARY):
            return
        if code.co_name not in COMPREHENSIONS and not only_assigns(code):
            found.calls[f"{code.co_filename[len(LIBRARY) + 1 :]}: {code.co_qualname}"] += 1

    sys.setprofile(profile)
    try:
        await act()
    finally:
        sys.setprofile(None)
    return found


async def least(act: Callable[[int], Awaitable[None]]) -> Counted:
    """The least of several counts, before which what is remembered has been remembered."""
    for number in range(3):
        await act(number)
    counts = [await counted(lambda number=number: act(number)) for number in range(3, 8)]  # type: ignore[misc]
    return min(counts, key=lambda each: each.calls.total())


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be the origin server: below /stored/ and /stale/ are responses that may be stored."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # it is over
            writer.close()
            return
        told = TOLD.get(head.split(b"/", 2)[1], b"no-store")
        writer.write(
            b"HTTP/1.1 200 OK\r\nCache-Control: %b\r\nContent-Length: %d\r\n\r\n" % (told, len(CONTENT))
        )
        writer.write(CONTENT)


async def through_the_listener() -> dict[str, Counted]:
    """The counts of requests through the listener of `univocal serve`."""
    origin = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = origin.sockets[0].getsockname()[1]
    site = {"hosts": ["*"], "upstream": f"http://127.0.0.1:{port}", "profile": "rfc3986"}
    proxy = Proxy(validate({"server": {"access_log": "/dev/null"}, "sites": [site]}, "calls"))
    # A connection's part of a turn is long: on a busy machine some steps would come behind the count.
    with patch.object(clients, "ITERATION_SHARE", 60.0), socket.create_server(("127.0.0.1", 0)) as bound:
        serving = Serving([proxy.front(Bound(bound))], [proxy.start], [proxy.aclose])
        ready = asyncio.Event()
        served = asyncio.create_task(serving.serve(ready.set))
        await ready.wait()
        reader, writer = await asyncio.open_connection(*bound.getsockname())

        async def ask(method: bytes, target: bytes, length: int) -> None:
            writer.write(b"%b %b HTTP/1.1\r\nHost: calls.example\r\n%b\r\n" % (method, target, LINES))
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(length)

        async def purge(number: int) -> None:
            writer.write(b"PURGE /stored/%d HTTP/1.1\r\nHost: calls.example\r\n\r\n" % number)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))

        size = len(CONTENT)
        found = {
            "miss that is not stored": await least(lambda number: ask(b"GET", b"/other/%d" % number, size)),
            "miss that is stored": await least(lambda number: ask(b"GET", b"/stored/%d" % number, size)),
            "hit": await least(lambda _: ask(b"GET", b"/stored/0", size)),
            "stale hit that is fetched": await least(lambda _: ask(b"GET", b"/stale/0", size)),
            "purge": await least(purge),
        }
        writer.close()
        serving.end()
        await served
    proxy.log.close()
    origin.close()
    return found


async def mounted() -> dict[str, Counted]:
    """The counts of requests to a mounted application, between the server's call and its last message."""

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        length = (b"content-length", b"%d" % len(CONTENT))
        fields = [(b"cache-control", b"max-age=3600"), length]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": CONTENT})

    cache = CacheMiddleware(application, store=MemoryStore(), rules=Rules())

    async def ask(target: bytes) -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": target.decode(), "raw_path": target, "query_string": b"", "root_path": "",
            "headers": [(b"host", b"calls.example"), *FIELDS],
            "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8080),
        }  # fmt: skip
        await cache(scope, receive, send)
        assert len(sent[-1]["body"]) == len(CONTENT)

    return {
        "mounted miss": await least(lambda number: ask(b"/%d" % number)),
        "mounted hit": await least(lambda _: ask(b"/0")),
    }


def measured() -> dict[str, Counted]:
    """The counts by kind of request."""
    with patch.object(outcome, "ALIKE", 1.0):  # on a busy machine each hit would be told alone
        return {**asyncio.run(through_the_listener()), **asyncio.run(mounted())}


def main() -> int:
    """Print the counts and their ceilings; the exit status."""
    counts = measured()
    print("| | calls | modules | lookups | at most |\n|---|---|---|---|---|")
    for kind, ceiling in CEILINGS.items():
        found = counts[kind]
        most = f"{ceiling.calls}, {ceiling.modules}, {ceiling.lookups}"
        print(f"| {kind} | {found.calls.total()} | {found.modules} | {found.lookups} | {most} |")
    excesses = [f"{kind}: {excess}" for kind in CEILINGS if (excess := counts[kind].excess(CEILINGS[kind]))]
    print("\n".join(excesses), end="", file=sys.stderr)
    return 1 if excesses else 0


if __name__ == "__main__":
    sys.exit(main())
