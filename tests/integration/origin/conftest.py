"""Origins of raw sockets that follow a script, and requests to them, on both event loops."""

import asyncio
import contextlib
import socket
import struct
from functools import partial

import httpx
import pytest
import uvloop

import support
from univocal.origin.client_library import OriginTransport


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


class Peer:
    """One accepted connection, as a script sees it."""

    def __init__(self, origin, reader, writer):
        self.origin, self.reader, self.writer = origin, reader, writer

    async def head(self):
        """The next request's head; it ends the script that the client closes the connection instead."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.origin.heads.append(head)
        return head

    async def content(self):
        """The content that the last head announced."""
        head = self.origin.heads[-1].lower()
        if b"transfer-encoding: chunked" in head:
            content = b""
            while size := int(await self.reader.readline(), 16):
                content += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
            return content
        _, _, length = head.partition(b"content-length: ")
        return await self.reader.readexactly(int(length.partition(b"\r\n")[0])) if length else b""

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, content=b"", *fields):
        await self.send(reply(content, *fields))

    def close(self):
        self.writer.close()

    def reset(self):
        """Reset the connection: the client sees ECONNRESET."""
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()

    async def forever(self):
        """Say nothing more until the client has left."""
        await self.reader.read()


def reply(content=b"", *fields):
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(content), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + content


class Origin:
    """A listening socket; `script(peer)` is run for every connection, which is closed behind it."""

    def __init__(self, script):
        self.script = script
        self.heads = []  # as received, over all connections
        self.accepted = 0
        self.open = 0
        self._tasks = set()

    async def start(self, port=0, path=None, **tls):
        if path is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=1000, **tls)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._serve, path, **tls)
            self.port = 80
        self.url = httpx.URL(f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/")

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self.accepted += 1
        self.open += 1
        try:
            with contextlib.suppress(EOFError, OSError, asyncio.CancelledError):
                await self.script(Peer(self, reader, writer))
        finally:
            self.open -= 1
            self._tasks.discard(asyncio.current_task())
            writer.close()

    async def stop(self):
        self._server.close()
        async with asyncio.timeout(20):
            while self._tasks:  # a connection may have been accepted just now
                for task in self._tasks:
                    task.cancel()
                await asyncio.sleep(0)


@pytest.fixture
async def serve():
    """Start an origin: `origin = await serve(script)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(script, **how):
            origin = Origin(script)
            await origin.start(**how)
            stack.push_async_callback(origin.stop)
            return origin

        yield start


@pytest.fixture
async def make_transport():
    """Make a transport that is closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(**settings):
            transport = OriginTransport(**settings)
            stack.push_async_callback(transport.aclose)
            return transport

        yield make


@pytest.fixture
def transport(make_transport):
    return make_transport()


class Content(httpx.AsyncByteStream):
    def __init__(self, chunks):
        self.chunks = chunks

    async def __aiter__(self):
        if hasattr(self.chunks, "__aiter__"):
            async for chunk in self.chunks:
                yield chunk
        else:
            for chunk in self.chunks:
                yield chunk


@pytest.fixture
def ask():
    """Make a request to an origin; `content` is an iterable of bytes."""

    def make(origin, target=b"/", method="GET", fields=(), content=None, timeout=20.0, **extensions):
        seconds = (
            timeout
            if isinstance(timeout, dict)
            else dict.fromkeys(("connect", "read", "write", "pool"), timeout)
        )
        return httpx.Request(
            method,
            origin.url,
            headers=[(b"host", b"en.example"), *fields],
            stream=httpx.ByteStream(b"") if content is None else Content(content),
            extensions={"target": target, "timeout": seconds, **extensions},
        )

    return make


@pytest.fixture
def answered(transport, ask):
    """Ask and read: (status, content)."""

    async def get(origin, *args, by=transport, **named):
        response = await by.handle_async_request(ask(origin, *args, **named))
        return response.status_code, await response.aread()

    return get


@pytest.fixture(name="reply")
def reply_fixture():
    return reply


@pytest.fixture
def eventually():
    """Wait for a condition that the event loop's next iterations bring about."""

    return partial(support.eventually, seconds=20.0)
