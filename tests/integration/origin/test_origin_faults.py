"""What origins do wrong, over real sockets: each fault has its error, and nothing is left behind."""

import asyncio
import socket
import threading

import httpx
import pytest

from support import open_files
from tests.ports import free_port

OK = b"HTTP/1.1 200 OK\r\n"
BROKEN = httpx.RemoteProtocolError
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


async def hangs_up(peer):
    peer.close()


async def resets_at_once(peer):
    peer.reset()


async def drips_its_head(peer):
    await peer.head()
    for octet in HEAD:
        await peer.send(bytes((octet,)))
        await asyncio.sleep(0.02)


FAULTS = {
    "closes before the request": (hangs_up, (BROKEN, httpx.ReadError)),
    "resets before the request": (resets_at_once, (BROKEN, httpx.ReadError)),
    "closes before the head": (says(), BROKEN),
    "resets before the head": (says(then="reset"), httpx.ReadError),
    "closes in the head": (says(HEAD[:20]), BROKEN),
    "resets in the head": (says(HEAD[:20], then="reset"), httpx.ReadError),
    "closes after the head": (says(HEAD), BROKEN),
    "resets after the head": (says(HEAD, then="reset"), httpx.ReadError),
    "closes after half of the content": (says(HEAD, b"hello"), BROKEN),
    "resets after half of the content": (says(HEAD, b"hello", then="reset"), httpx.ReadError),
    "closes between chunks": (says(CHUNKED, b"3\r\nabc\r\n"), BROKEN),
    "closes before the last CRLF": (says(CHUNKED, b"3\r\nabc\r\n0\r\n"), BROKEN),
    "resets content that ends with the connection": (
        says(OK + b"\r\nabc", then="reset"), httpx.ReadError),
    "says nothing": (says(then="hang"), httpx.ReadTimeout),
    "stops in the head": (says(HEAD[:20], then="hang"), httpx.ReadTimeout),
    "stops in the content": (says(HEAD, b"hello", then="hang"), httpx.ReadTimeout),
    "drips its head": (drips_its_head, httpx.ReadTimeout),
    "sends garbage": (says(b"\x16\x03\x01\x02\x00\x01garbage"), BROKEN),
    "speaks SSH": (says(b"SSH-2.0-OpenSSH_9.6\r\n", then="hang"), BROKEN),
    "sends garbage in a chunk": (says(CHUNKED, b"3\r\nabcd\r\n", then="hang"), BROKEN),
    "sends a chunk size that is none": (says(CHUNKED, b"xyz\r\n", then="hang"), BROKEN),
    "sends two Content-Lengths": (
        says(OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), BROKEN),
    "sends a Content-Length of nineteen digits": (
        says(OK + b"Content-Length: 1000000000000000000\r\n\r\nabc"), BROKEN),
    "sends Content-Length with Transfer-Encoding": (
        says(OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), BROKEN),
    "sends Transfer-Encoding with Content-Length": (
        says(OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"), BROKEN),
    "codes its chunks again": (
        says(OK + b"Transfer-Encoding: chunked, foo\r\n\r\n3\r\nabc"), BROKEN),
    "sends chunks in chunks": (
        says(OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), BROKEN),
    "compresses unasked": (says(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), BROKEN),
    "sends a folded field": (says(OK + b"A: b\r\n c\r\n\r\n"), BROKEN),
    "sends a blank before the colon": (says(OK + b"A : b\r\n\r\n"), BROKEN),
    "sends NUL in a field": (says(OK + b"A: b\0c\r\n\r\n"), BROKEN),
    "speaks HTTP/0.9": (says(b"<html>"), BROKEN),
    "codes its content": (says(OK + b"Transfer-Encoding: foo\r\n\r\nabc"), BROKEN),
    "ends lines in two ways": (says(OK + b"A: b\nContent-Length: 3\r\n\r\nabc"), BROKEN),
    "speaks RTSP": (says(b"RTSP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"), BROKEN),
    "speaks RTSP behind a hint": (
        says(b"HTTP/1.1 103 Early Hints\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"), BROKEN),
    "claims HTTP/0.9": (says(b"HTTP/0.9 200 OK\r\n\r\n"), BROKEN),
    "claims HTTP/2": (says(b"HTTP/2.0 200 OK\r\n\r\n"), BROKEN),
    "sends status 099": (says(b"HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n"), BROKEN),
    "switches protocols unasked": (
        says(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n"), BROKEN),
    "never stops its head": (says(OK, *[b"A: %b\r\n" % (b"b" * 8000)] * 20, then="hang"),
                             BROKEN),
    "never stops a field": (says(OK + b"A: ", *[b"b" * 8000] * 20, then="hang"), BROKEN),
    "never stops its trailers": (says(CHUNKED, b"0\r\n", *[b"A: %b\r\n" % (b"b" * 8000)] * 20, then="hang"),
                                 BROKEN),
    "never stops a chunk extension": (says(CHUNKED, b"1;", *[b"b" * 8000] * 20, then="hang"), BROKEN),
    "never stops its interim responses": (says(*[b"HTTP/1.1 103 Early Hints\r\n\r\n"] * 40, then="hang"),
                                          BROKEN),
}  # fmt: skip


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

        class Refusing:
            url = httpx.URL(f"http://127.0.0.1:{listener.getsockname()[1]}/")

        thread = threading.Thread(target=refuse)
        thread.start()
        for _ in range(40):
            fields = [(b"content-length", b"4000000")]
            assert await answered(Refusing, method="POST", fields=fields, content=content()) == (413, b"no")
        thread.join()


async def test_a_name_that_is_none(answered):
    class Nowhere:
        url = httpx.URL("http://" + "a" * 70 + ".invalid/")

    with pytest.raises(httpx.ConnectError):
        await answered(Nowhere)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "ws://127.0.0.1/", "//127.0.0.1/", "http:///a"])
async def test_what_no_origin_speaks(answered, url):
    class Elsewhere:
        pass

    Elsewhere.url = httpx.URL(url)
    with pytest.raises(httpx.UnsupportedProtocol):
        await answered(Elsewhere)


async def test_what_an_idle_connection_says_is_no_response(serve, answered, eventually):
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


async def test_two_thousand_faults_leave_nothing(serve, answered, transport, eventually):
    quick = [
        name
        for name, (_, error) in FAULTS.items()
        if error is not httpx.ReadTimeout and "never stops" not in name
    ]

    async def script(peer):
        await FAULTS[quick[peer.origin.accepted % len(quick)]][0](peer)

    origin = await serve(script)

    async def client(times):
        for _ in range(times):
            with pytest.raises(httpx.TransportError):
                await answered(origin)

    await client(len(quick))
    await eventually(lambda: origin.open == 0)
    tasks, files = len(asyncio.all_tasks()), open_files()
    async with asyncio.TaskGroup() as clients:
        for _ in range(50):
            clients.create_task(client(40))
    await eventually(lambda: origin.open == 0)
    await eventually(lambda: len(asyncio.all_tasks()) == tasks and open_files() <= files)
    assert transport.connections == 0
    assert [pool._free for pool in transport.origin_connections._pools.values()] == [1000]
