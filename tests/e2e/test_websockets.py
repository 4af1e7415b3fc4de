"""WebSockets through `univocal serve`, with the library websockets at both ends."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

Opened = Callable[..., Any]


@pytest.fixture
def application() -> Iterator[tuple[str, list[ServerConnection]]]:
    """An application's URL: it sends back what it is sent, closes as it is told, refuses /private."""
    connections: list[ServerConnection] = []

    def serving(connection: ServerConnection) -> None:
        connections.append(connection)
        for message in connection:
            if message == "close":
                connection.close(4001, "as you like")
                return
            connection.send(message)

    def judge(connection: ServerConnection, request: Any) -> Any:
        return connection.respond(403, "not you\n") if request.path.startswith("/private") else None

    with serve(serving, "127.0.0.1", 0, subprotocols=["chat"], process_request=judge) as server:  # type: ignore[list-item]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}", connections
        server.shutdown()
        thread.join()


@pytest.fixture
def running(start: Callable[..., Any], application: tuple[str, Any]) -> Any:
    return start("serve", "--upstream", application[0], "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")


def at(running: Any, path: str = "/chat", **settings: Any) -> Any:
    host, port = running.proxy
    settings = {"subprotocols": ["other", "chat"], **settings}
    return connect(f"ws://{host}:{port}{path}", proxy=None, compression=None, **settings)


def test_messages_pass_both_ways(running: Any, application: tuple[str, list[ServerConnection]]) -> None:
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


def test_a_closing_code_and_its_reason_pass(running: Any) -> None:
    with at(running) as socket:
        socket.send("close")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=20)
        assert (socket.close_code, socket.close_reason) == (4001, "as you like")


def test_a_handshake_that_the_application_refuses(running: Any) -> None:
    with pytest.raises(InvalidStatus) as refused:
        at(running, "/private")
    assert refused.value.response.status_code == 403
    assert refused.value.response.body == b"not you\n"
    assert refused.value.response.headers["Cache-Status"] == "univocal; fwd=bypass"


def test_a_handshake_that_univocal_refuses(running: Any, application: tuple[str, Any]) -> None:
    with pytest.raises(InvalidStatus) as refused:
        at(running, "/%00")
    assert refused.value.response.status_code == 400
    assert application[1] == []


def test_with_no_names_in_upgrades_there_is_no_websocket(
    start: Callable[..., Any], application: tuple[str, Any], tmp_path: Any
) -> None:
    file = tmp_path / "univocal.toml"
    file.write_text(
        '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nupgrades = []\n'
        f'[[sites]]\nhosts = ["127.0.0.1"]\nupstream = "{application[0]}"\n'
    )
    with pytest.raises(InvalidStatus) as refused:
        at(start("serve", "--config", str(file)))
    assert refused.value.response.status_code == 426  # by the application, which was asked for a page


def test_at_sigterm_a_websocket_gets_1001(running: Any) -> None:
    with at(running) as socket:
        socket.send("still here")
        assert socket.recv(timeout=20) == "still here"
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
        assert socket.close_code == 1001
    running.process.communicate(timeout=30)
    assert running.process.returncode == 0
