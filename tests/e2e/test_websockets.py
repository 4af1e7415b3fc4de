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
from websockets.typing import Subprotocol

from authority import Authority


@contextlib.contextmanager
def application_at():
    connections = []

    def serving(connection):
        connections.append(connection)
        for message in connection:
            if message == "close":
                connection.close(4001, "as you like")
                return
            connection.send(message)

    def judge(connection, request):
        return connection.respond(403, "not you\n") if request.path.startswith("/private") else None

    with serve(serving, "127.0.0.1", 0, subprotocols=[Subprotocol("chat")], process_request=judge) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.socket.getsockname()[1]}", connections
        server.shutdown()
        thread.join()


@pytest.fixture
def application():
    """An application's address: it sends back what it is sent, closes as it is told, refuses /private."""
    with application_at() as made:
        yield made


@pytest.fixture
def configured(inside):
    """Serve the host 127.0.0.1, by a thread or otherwise: WebSockets go on for half a second at the end."""

    def configured(upstream, server="", site="", begin=inside):
        where = f'hosts = ["127.0.0.1"]\nupstream = "{upstream}"'
        return begin(f"shutdown_timeout = 1.5\n{server}\n[[sites]]\n{where}\n{site}\n")

    return configured


@pytest.fixture
def running(configured, application):
    return configured(f"http://{application[0]}")


def at(running, path="/chat", **settings):
    host, port = running.proxy
    settings = {"subprotocols": ["other", "chat"], **settings}
    return connect(f"ws://{host}:{port}{path}", proxy=None, compression=None, **settings)


def test_messages_pass_both_ways(running, application):
    with at(running, "/a/./b%7E?c", origin="http://a.example") as socket:
        assert socket.subprotocol == "chat"
        for message in ("text", b"\0\xff", "x" * 300_000, ""):
            socket.send(message)
            assert socket.recv(timeout=20) == message
        (behind,) = application[1]
        assert behind.request is not None
        assert behind.request.path == "/a/b~?c"
        assert behind.request.headers["Origin"] == "http://a.example"
        assert behind.request.headers["X-Forwarded-For"] == "127.0.0.1"
    assert running.end() == 0
    (line,) = [json.loads(line) for line in running.out.splitlines()]
    assert (line["status"], line["cache"]) == (101, "bypass")
    assert line["bytes"] > 300_000


def test_a_closing_code_and_its_reason_pass(running):
    with at(running) as socket:
        socket.send("close")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=20)
        assert (socket.close_code, socket.close_reason) == (4001, "as you like")


async def test_over_tls_on_both_sides(configured, start_with, tmp_path):
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
        running = configured(upstream, tls, '[sites.origin]\ntls_ca = "ca.pem"', start_with)
        url = f"wss://127.0.0.1:{running.proxy[1]}/chat"
        for how in ("close", "leave", "stay"):
            async with (
                asyncio.timeout(60),
                asyncio_client.connect(url, ssl=authority.client(), proxy=None, compression=None) as socket,
            ):
                for message in ("text", "x" * 300_000):
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
def test_a_reload_lets_a_websocket_be(configured, application, change, tmp_path):
    running = configured(f"http://{application[0]}")
    with application_at() as (another, connections), at(running) as socket:
        file = tmp_path / "univocal.toml"
        text = file.read_text()
        if change == "upstream":
            file.write_text(text.replace(application[0], another))
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


def test_at_sigterm_a_websocket_gets_1001(configured, start_with, application):
    running = configured(f"http://{application[0]}", begin=start_with)
    with at(running) as socket:
        socket.send("still here")
        assert socket.recv(timeout=20) == "still here"
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
        assert socket.close_code == 1001
    running.process.communicate(timeout=30)
    assert running.process.returncode == 0
