"""A client that does not read holds its origin back instead of filling the memory between them."""

import asyncio
import socket

import pytest

from univocal import CacheMiddleware, MemoryStore, ReverseProxy
from univocal.origin.client_library import OriginTransport

PIECE = b"x" * (256 << 10)
PIECES = 512  # 128 MiB


class Firehose:
    """An origin that sends as fast as it may, and counts the pieces that its socket has taken."""

    def __init__(self, control):
        self.control, self.taken = control, 0
        self.ended = asyncio.Event()

    async def __call__(self, reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nCache-Control: %b\r\n\r\n"
            writer.write(head % (PIECES * len(PIECE), self.control))
            for _ in range(PIECES):
                writer.write(PIECE)
                await writer.drain()
                self.taken += 1
        except OSError:
            pass
        finally:
            writer.close()
            self.ended.set()

    async def standstill(self):
        """Wait until nothing moves any more."""
        before = 0
        async with asyncio.timeout(30):
            while before == 0 or before != self.taken:
                before = self.taken
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("control", [b"no-store", b"max-age=60"])
async def test_a_client_that_does_not_read_holds_the_origin_back(serve, control):
    origin = Firehose(control)
    listening = await asyncio.start_server(origin, "127.0.0.1", 0)
    proxy = ReverseProxy(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", OriginTransport())
    store = MemoryStore(max_bytes=8 << 20, max_object_bytes=1 << 20)
    front = await serve(CacheMiddleware(proxy, store=store))
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", front.port))
        await loop.sock_sendall(client, b"GET /a HTTP/1.1\r\nHost: en.example\r\n\r\n")
        await origin.standstill()
        assert 0 < origin.taken < PIECES // 2
        received = 0
        while received < (32 << 20):
            received += len(await loop.sock_recv(client, 1 << 20))
    async with asyncio.timeout(30):
        await origin.ended.wait()  # the client has gone: so does the request to the origin
    assert origin.taken < PIECES
    assert store.stats.responses == 0
    await proxy.aclose()
    listening.close()
