"""The cost of a request in process under each of uvicorn's protocol classes: µs, with 1 and with 13 fields.

    python benchmarks/protocol.py

Three depths: the parser alone; a head judged and a ready answer written, with no task and no scope, which is
what a hit can cost; and a whole request through an ASGI application that answers at once. The transport is
null. Each number is the best of seven rounds: the machine's noise only ever adds.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from univocal.server.asgi_service import ExactProtocol
from univocal.server.http1.messages import IncomingHead

ONE = b"GET /wiki/Steve_Fuller_(sociologist)?action=view HTTP/1.1\r\nHost: en.example\r\n\r\n"
THIRTEEN = ONE[:-2] + (
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    b"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nDNT: 1\r\n"
    b"Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n"
    b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nSec-Fetch-User: ?1\r\nPriority: u=0, i\r\n\r\n"
)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
ROUNDS, REQUESTS, CONNECTIONS = 7, 20_000, 100


class NullTransport(asyncio.Transport):
    written = 0

    def write(self, _data: bytes) -> None:  # type: ignore[override]
        self.written += 1

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class Callbacks:
    def on_message_begin(self) -> None: ...
    def on_url(self, url: bytes) -> None: ...
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def on_headers_complete(self) -> None: ...
    def on_message_complete(self) -> None: ...


class Ready(ExactProtocol):
    """ExactProtocol with an answer that needs no application."""

    def _take(self, head: IncomingHead) -> None:  # noqa: ARG002
        self._reader.accept()
        self.transport.write(ANSWER)


async def application(_scope, _receive, send) -> None:  # type: ignore[no-untyped-def]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def protocols(cls: type, number: int) -> list[asyncio.Protocol]:
    config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None, proxy_headers=False)
    config.load()
    made = [cls(config, ServerState(), {}) for _ in range(number)]
    for protocol in made:
        protocol.connection_made(NullTransport())
    return made


def parser_httptools(request: bytes) -> Callable[[], object]:
    parser = httptools.HttpRequestParser(Callbacks())
    return lambda: parser.feed_data(request)


def ready_exact(request: bytes) -> Callable[[], object]:
    (protocol,) = protocols(Ready, 1)
    return lambda: protocol.data_received(request)


def synchronous(make: Callable[[bytes], Callable[[], object]]) -> Callable[[bytes], Awaitable[float]]:
    async def measure(request: bytes) -> float:
        serve = make(request)
        begun = time.perf_counter()
        for _ in range(REQUESTS):
            serve()
        return (time.perf_counter() - begun) / REQUESTS

    return measure


def through_asgi(cls: type) -> Callable[[bytes], Awaitable[float]]:
    async def measure(request: bytes) -> float:
        made = protocols(cls, CONNECTIONS)
        begun = time.perf_counter()
        for _ in range(REQUESTS // CONNECTIONS):
            for protocol in made:
                protocol.data_received(request)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        spent = time.perf_counter() - begun
        answered = sum(protocol.transport.written >= REQUESTS // CONNECTIONS for protocol in made)  # type: ignore[attr-defined]
        assert answered == CONNECTIONS
        return spent / REQUESTS

    return measure


async def main() -> None:
    logging.disable(logging.CRITICAL)
    rows = {
        "parser: httptools, empty callbacks": synchronous(parser_httptools),
        "ready answer: ExactProtocol": synchronous(ready_exact),
        "ASGI: HttpToolsProtocol": through_asgi(HttpToolsProtocol),
        "ASGI: ExactProtocol": through_asgi(ExactProtocol),
    }
    print(f"{platform.python_implementation()} {platform.python_version()}, uvicorn {uvicorn.__version__}")
    print(f"{'µs per request':36}{'1 field':>10}{'13 fields':>12}")
    for name in sorted(rows):
        best = [min([await rows[name](request) for _ in range(ROUNDS)]) for request in (ONE, THIRTEEN)]
        print(f"{name:36}{best[0] * 1e6:10.2f}{best[1] * 1e6:12.2f}")


if __name__ == "__main__":
    asyncio.run(main())
