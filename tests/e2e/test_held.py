"""Origin servers that hold what clients wait for: `univocal serve` before real ones, over sockets."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support import head_of, serving

Fixture = Callable[..., Any]

BODY = b"p" * 5000


class StallingOrigin(socketserver.ThreadingTCPServer):
    """Stops in the middle of its first answer, behind `sent` bytes of content, until it is let go."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, sent: int) -> None:
        super().__init__(("127.0.0.1", 0), StallingHandler)
        self.sent, self.asked = sent, 0
        self.stalled, self.go = threading.Event(), threading.Event()


class StallingHandler(socketserver.StreamRequestHandler):
    server: StallingOrigin

    def handle(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        with contextlib.suppress(ConnectionError):
            while head_of(self.rfile):
                self.server.asked += 1
                sent = self.server.sent if self.server.asked == 1 else len(BODY)
                self.wfile.write(head + BODY[:sent])
                if sent < len(BODY):
                    self.server.stalled.set()
                    self.server.go.wait(20)
                    self.wfile.write(BODY[sent:])


@pytest.fixture(params=[0, 1000], ids=["behind the head", "in the content"])
def stalling(request: pytest.FixtureRequest) -> Iterator[StallingOrigin]:
    with StallingOrigin(request.param) as server, serving(server):
        yield server
        server.go.set()


@pytest.fixture
def before(start: Fixture, tmp_path: Path) -> Fixture:
    """before(server, origin="", rules=""): a proxy before a server, with these lines of its tables."""

    def before(server: socketserver.BaseServer, origin: str = "", rules: str = "") -> Any:
        host, port = server.server_address[:2]
        file = tmp_path / "univocal.toml"
        file.write_text(
            f'[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n[origin]\n{origin}\n[cache]\n{rules}\n'
            f'[[sites]]\nhosts = ["en.example"]\nupstream = "http://{host}:{port}"\n'
        )
        return start("serve", "--config", str(file)).proxy

    return before


@pytest.mark.parametrize("rules", ["", 'errors = "explicit"\nset_cookie = "explicit"\nheuristic = true'])
def test_content_that_stalls_holds_the_first_client_alone(
    before: Fixture, stalling: StallingOrigin, ask: Fixture, rules: str
) -> None:
    front = before(stalling, rules=rules)
    with ThreadPoolExecutor(8) as clients:
        first = clients.submit(ask, front, "/", "en.example")
        assert stalling.stalled.wait(10)
        begun = time.monotonic()
        others = [clients.submit(ask, front, "/", "en.example") for _ in range(5)]
        assert {(each.result().status, each.result().body) for each in others} == {(200, BODY)}
        assert 4 < time.monotonic() - begun < 10
        assert not first.done()
        # Whoever comes now has what they brought.
        assert ask(front, "/", "en.example").body == BODY
        stalling.go.set()
        assert first.result().body == BODY
    assert stalling.asked <= 6
