"""Faults of origin servers over real sockets leave nothing behind."""

import asyncio
import socket
import threading
from typing import NamedTuple

import httpx
import pytest

from support import open_files
from tests.ports import free_port

OK = b"HTTP/1.1 200 OK\r\n"
HEAD = OK + b"Content-Length: 10\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def says(*pieces, then="close"):
    """A script that answers the first request with `pieces`."""

    async def script(peer):
        await peer.head()
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0)
        if then == "reset":
            await asyncio.sleep(0.005)
            peer.reset()
        elif then == "hang":
            await peer.forever()

    return script


class At(NamedTuple):
    """An origin server that is not one of `serve`."""

    url: httpx.URL


async def hangs_up(peer):
    peer.close()


async def resets_at_once(peer):
    peer.reset()


# One of each way for a connection to end; each rule for heads and chunks has its row in test_response_reader.
FAULTS = [
    hangs_up,
    resets_at_once,
    says(),
    says(then="reset"),
    says(HEAD[:20]),
    says(HEAD[:20], then="reset"),
    says(HEAD),
    says(HEAD, then="reset"),
    says(HEAD, b"hello"),
    says(HEAD, b"hello", then="reset"),
    says(CHUNKED, b"3\r\nabc\r\n"),
    says(CHUNKED, b"3\r\nabc\r\n0\r\n"),
    says(OK + b"\r\nabc", then="reset"),
    says(b"SSH-2.0-OpenSSH_9.6\r\n", then="hang"),
    says(b"<html>"),
    says(OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    says(CHUNKED, b"3\r\nabcd\r\n", then="hang"),
    says(b"HTTP/1.1 103 Early Hints\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
    says(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n"),
]


@pytest.mark.parametrize("pause", [None, 0, 0.0005])
async def test_an_early_refusal_outlives_the_reset_that_follows_it(answered, pause):
    """The origin runs at its own pace: the reset may come between two turns of the event loop."""
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"

    def refuse():
        for _ in range(40):
            peer, _ = listener.accept()
            peer.recv(1)
            peer.sendall(refusal)
            peer.close()  # with much unread: the kernel resets

    async def content():
        for _ in range(400):
            if pause is not None:
                await asyncio.sleep(pause)
            yield b"x" * 10_000

    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = At(httpx.URL(f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        thread = threading.Thread(target=refuse)
        thread.start()
        for _ in range(40):
            fields = [(b"content-length", b"4000000")]
            assert await answered(origin, method="POST", fields=fields, content=content()) == (413, b"no")
        thread.join()


async def test_a_name_that_is_none(answered):
    with pytest.raises(httpx.ConnectError):
        await answered(At(httpx.URL("http://" + "a" * 70 + ".invalid/")))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "ws://127.0.0.1/", "//127.0.0.1/", "http:///a"])
async def test_unsupported_urls_are_refused(answered, url):
    with pytest.raises(httpx.UnsupportedProtocol):
        await answered(At(httpx.URL(url)))


async def test_bytes_on_an_idle_connection_are_no_response(serve, answered, eventually):
    async def script(peer):
        await peer.head()
        await peer.answer(b"ok")
        await asyncio.sleep(0.005)
        await peer.send(OK + b"Content-Length: 4\r\n\r\nevil")
        await peer.reader.read()

    origin = await serve(script)
    await answered(origin)
    await eventually(lambda: origin.open == 0)
    assert await answered(origin) == (200, b"ok")


async def test_an_origin_that_disappears_and_comes_back_under_load(serve, answered, transport, eventually):
    async def script(peer):
        while True:
            await peer.head()
            await peer.answer(b"ok")

    origin = await serve(script, port=free_port())
    outcomes = {"ok": 0, "failed": 0}
    over = asyncio.Event()

    async def client():
        while not over.is_set():
            try:
                await answered(origin)
                outcomes["ok"] += 1
            except httpx.TransportError:
                outcomes["failed"] += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as clients:
        for _ in range(10):
            clients.create_task(client())
        try:
            for _ in range(3):
                await eventually(lambda: outcomes["ok"] > 50)
                await origin.stop()
                await eventually(lambda: outcomes["failed"] > 20)
                outcomes.update(ok=0, failed=0)
                await origin.start(port=origin.port)
            await eventually(lambda: outcomes["ok"] > 50)
            outcomes["failed"] = 0
            await eventually(lambda: outcomes["ok"] > 100)
        finally:
            over.set()
    assert outcomes["failed"] == 0
    assert transport.connections <= 10


async def test_faults_of_every_kind_leave_nothing(serve, answered, transport, eventually):
    async def script(peer):
        await FAULTS[peer.origin.accepted % len(FAULTS)](peer)

    origin = await serve(script)

    async def client(times):
        for _ in range(times):
            with pytest.raises(httpx.TransportError):
                await answered(origin)

    await client(len(FAULTS))
    await eventually(lambda: origin.open == 0)
    tasks, files = len(asyncio.all_tasks()), open_files()
    async with asyncio.TaskGroup() as clients:
        for _ in range(20):
            clients.create_task(client(len(FAULTS)))
    await eventually(lambda: origin.open == 0)
    await eventually(lambda: len(asyncio.all_tasks()) == tasks and open_files() <= files)
    assert transport.connections == 0
    assert [pool._free for pool in transport.origin_connections._pools.values()] == [1000]
