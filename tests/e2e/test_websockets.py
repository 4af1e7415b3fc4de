"""WebSockets through `univocal serve`, with the library websockets at both ends."""

import asyncio
import contextlib
import json
import signal
import ssl
import threading
import time

import pytest
from websockets.asyncio import client as asyncio_client
from websockets.asyncio import server as asyncio_server
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import serve

from authority import Authority


@contextlib.contextmanager
def application_at():
    """An application's address, which sends back what it is sent, and its connections."""
    connections = []

    def serving(connection):
        connections.append(connection)
        for message in connection:
            connection.send(message)

    with serve(serving, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.socket.getsockname()[1]}", connections
        server.shutdown()
        thread.join()


def settings(upstream, server="", site=""):
    """Those of the host 127.0.0.1: WebSockets go on for half a second at the end."""
    where = f'hosts = ["127.0.0.1"]\nupstream = "{upstream}"'
    return f"shutdown_timeout = 1.5\n{server}\n[[sites]]\n{where}\n{site}\n"


def at(running):
    host, port = running.proxy
    return connect(f"ws://{host}:{port}/chat", proxy=None, compression=None)


async def test_over_tls_on_both_sides(start_with, tmp_path):
    """In one thread: TLS of Python 3.11 loses what one thread sends while another receives."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "IP:127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / certificate, tmp_path / key)

    async def serving(connection):
        async for message in connection:
            if message == "close":
                await connection.close(4001, "as you like")
            else:
                await connection.send(message)

    async with asyncio_server.serve(serving, "127.0.0.1", 0, ssl=context) as server:
        (listener,) = server.sockets
        tls = f'tls_cert = "{certificate}"\ntls_key = "{key}"'
        upstream = f"https://127.0.0.1:{listener.getsockname()[1]}"
        running = start_with(settings(upstream, tls, '[sites.origin]\ntls_ca = "ca.pem"'))
        url = f"wss://127.0.0.1:{running.proxy[1]}/chat"
        for how in ("close", "leave", "stay"):
            async with (
                asyncio.timeout(60),
                asyncio_client.connect(url, ssl=authority.client(), proxy=None, compression=None) as socket,
            ):
                for message in ("text", b"\0\xff", "x" * 300_000, ""):
                    await socket.send(message)
                    assert await socket.recv() == message
                if how == "close":
                    await socket.send("close")
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()
                    assert (socket.close_code, socket.close_reason) == (4001, "as you like")
                if how == "stay":
                    running.process.send_signal(signal.SIGTERM)
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()
                    assert socket.close_code == 1001
        out, err = await asyncio.to_thread(running.process.communicate, timeout=30)
    assert running.process.returncode == 0
    assert [json.loads(line)["status"] for line in out.splitlines()] == [101] * 3
    assert [line for line in err.splitlines() if not line.endswith("SIGTERM: ends in 1.5 s at most")] == []


@pytest.mark.parametrize("change", ["upstream", "upgrade_timeout"])
def test_a_reload_lets_a_websocket_be(inside, change, tmp_path):
    with (
        application_at() as (first, _),
        application_at() as (another, connections),
        at(running := inside(settings(f"http://{first}"))) as socket,
    ):
        file = tmp_path / "univocal.toml"
        text = file.read_text()
        if change == "upstream":
            file.write_text(text.replace(first, another))
        else:
            file.write_text(text.replace("[server]", "[server]\nupgrade_timeout = 100"))
        assert running.reload()[1]["changed"]
        for _ in range(3):
            socket.send("still here")
            assert socket.recv(timeout=20) == "still here"
            time.sleep(0.1)
        with at(running) as later:
            later.send("new")
            assert later.recv(timeout=20) == "new"
        assert len(connections) == (change == "upstream")
