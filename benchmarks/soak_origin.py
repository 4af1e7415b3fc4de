"""The origin servers of the soak: every body carries its own URL and version, and some answers are faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from websockets.asyncio.server import ServerConnection, serve

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%b\r\n"
LARGE: Final = 300_000  # bytes


def body_of(path: str, version: int) -> bytes:
    """The content of a page: its path and version, again and again."""
    line = b"%b v%d\n" % (path.encode(), version)
    if path.startswith("/large/"):
        return line * (LARGE // len(line))
    return line * (1 + sum(path.encode()) % 97 * 4)


class Pages:
    """The versions of all pages, the same at each origin server."""

    def __init__(self) -> None:
        self.versions = Counter[str]()

    def answer(self, target: str) -> bytes:
        """The response to a GET, whole."""
        path = target.partition("?")[0]
        body = body_of(path, self.versions[path])
        if path.startswith("/never/"):
            told = b"Cache-Control: no-store\r\n"
        else:
            tag = path.rpartition("/")[2].encode()
            told = b"Cache-Control: s-maxage=600\r\nSurrogate-Key: number-%b\r\n" % tag
        return HEAD % (len(body), told) + body


class Origin:
    """One origin server, which may die and live again on the same port."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open = set[asyncio.StreamWriter]()
        self.port = 0

    async def live(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def die(self) -> None:
        """Refuse connections, and cut those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while await self._answer(await reader.readuntil(b"\r\n\r\n"), writer):
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> bool:
        target = head.split(b" ", 2)[1].decode()
        match target.split("/")[1:3]:
            case ["fault", "reset"]:
                return False
            case ["fault", "garbage"]:
                writer.write(b"\x16\x03\x01 garbage\r\n\r\n")
                return False
            case ["fault", "short"]:
                writer.write(HEAD % (1000, b"") + b"cut")
                return False
            case ["fault", "slow"]:
                await asyncio.sleep(0.5)
        writer.write(self._pages.answer(target))
        return True


async def echo(connection: ServerConnection) -> None:
    """Send each message back."""
    async for message in connection:
        await connection.send(message)


async def sockets() -> tuple[object, int]:
    """A server of WebSockets, which must be held, and its port."""
    server = await serve(echo, "127.0.0.1", 0)
    return server, next(iter(server.sockets)).getsockname()[1]
