"""Sites in processes of their own, under each ASGI server: rows to ask for, and exact answers."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import forking
from tests.integration.clients.noted import Noted
from tests.ports import free_port
from tests.started import end, until_it_listens

HERE = Path(__file__).parent
STARTS = 60  # seconds
ANSWERS = 5
COMMANDS = {
    "uvicorn with httptools": ["uvicorn", "--http", "httptools", "--port", "{port}"],
    "uvicorn with h11": ["uvicorn", "--http", "h11", "--port", "{port}"],
    "hypercorn": ["hypercorn", "--bind", "127.0.0.1:{port}"],
    "granian": ["granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}"],
    "daphne": ["daphne", "--bind", "127.0.0.1", "--port", "{port}", "--verbosity", "0"],
}
# The modules that they import first, as far as they may be shared: Twisted's loop may not.
IMPORTS = {
    "hypercorn": ["hypercorn.asyncio", "wsproto", "h2"],
    "daphne": ["twisted.web.http", "autobahn.twisted.websocket"],
}
# Fields that a cache, or the time, makes different.
OTHER = frozenset({"age", "cache-status", "date", "expires", "server"})


NOTHING: Mapping[str, str] = MappingProxyType({})


class Row(NamedTuple):
    """A request, and what comes of it: status, content, fields, and events that the shop tells afterwards.

    The status 0 leaves it to the server.
    """

    target: str
    status: int = 200
    content: str | None = None
    method: str = "GET"
    fields: Mapping[str, str] = NOTHING
    body: bytes = b""
    seen: Mapping[str, str] = NOTHING
    events: tuple[str, ...] = ()
    cut: bool = False


class Answer(NamedTuple):
    """An answer, but for the fields that differ by themselves; `cut` is an end before its end."""

    status: int
    fields: list[tuple[str, str]]
    content: bytes
    cut: bool


class Site:
    """A site under one server, in a process of its own."""

    def __init__(
        self,
        server: str,
        folder: Path,
        *,
        mounted: str,
        application: str,
        framework: str = "fastapi",
        program: Any = forking.Program,
        **environment: str,
    ) -> None:
        self.folder, self.port = folder, free_port()
        self._leaves_open, self._heard = server == "daphne", list[str]()
        folder.mkdir()
        self.events = Noted(folder / "events")
        (folder / "file.txt").write_text("0123456789\n")
        os.utime(folder / "file.txt", (1_000_000_000, 1_000_000_000))
        paths = os.pathsep.join([str(HERE), *sys.path])
        environment = {
            **os.environ,
            **environment,
            "PYTHONPATH": paths,
            "SHOP_FOLDER": str(folder),
            "EVENTS": str(folder / "events"),
            "MOUNTED": mounted,
            "PYTHONHASHSEED": "0",
        }
        command = [part.format(port=self.port) for part in COMMANDS[server]]
        self._err = folder.with_suffix(".log")
        with self._err.open("wb") as err:
            self.process = program(
                [sys.executable, "-m", *command, application],
                imports=[framework, *IMPORTS.get(server, [])],
                env=environment,
                stdout=err,
                stderr=err,
            )
        until_it_listens(self.process, self.port, self._err)

    @property
    def log(self) -> str:
        return self._err.read_text()

    def ask(self, row: Row) -> Answer:
        """The answer over a connection of its own."""
        fields = {"Host": "shop.example", "Connection": "close", **row.fields}
        if (row.body or row.method == "POST") and "Transfer-Encoding" not in fields:
            fields["Content-Length"] = str(len(row.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWERS) as connection:
            with contextlib.suppress(ConnectionError):  # a server may answer and close before all is sent
                connection.sendall(f"{row.method} {row.target} HTTP/1.1\r\n{lines}\r\n".encode() + row.body)
            received = b""
            if row.cut and self._leaves_open:
                self._heard = [*self.told(len(row.events)), *self.events()]
                connection.setblocking(False)  # what was sent before that was told is there
            with contextlib.suppress(ConnectionError, TimeoutError, BlockingIOError):
                while octets := connection.recv(65536):
                    received += octets
        return answer_of(received, row.method)

    def told(self, count: int) -> list[str]:
        """The events since the last question, once there are so many."""
        told, self._heard = [*self._heard, *until_noted(self.events, count - len(self._heard))], []
        return told

    def end(self) -> None:
        end(self.process, STARTS)


def until_noted(events: Noted, count: int) -> list[str]:
    """The events since they were last read, once there are so many."""
    told, limit = events(), time.monotonic() + 5
    while len(told) < count and time.monotonic() < limit:
        time.sleep(0.02)
        told += events()
    return told


def answer_of(received: bytes, method: str) -> Answer:
    head, _, content = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(": ") for line in lines]
    fields = sorted((name.lower(), value) for name, _, value in pairs if name.lower() not in OTHER)
    named, cut = dict(fields), False
    if named.get("transfer-encoding") == "chunked":
        cut = not content.endswith(b"0\r\n\r\n")
        content = unchunked(content)
    elif "content-length" in named and method != "HEAD" and " 304" not in first:
        cut = len(content) != int(named["content-length"])
    framing = {"connection", "transfer-encoding", "keep-alive"}
    return Answer(
        int(first.split(" ")[1]), [field for field in fields if field[0] not in framing], content, cut
    )


def unchunked(content: bytes) -> bytes:
    whole = b""
    while content:
        size, _, rest = content.partition(b"\r\n")
        length = int(size or b"0", 16)
        whole, content = whole + rest[:length], rest[length + 2 :]
        if not length:
            break
    return whole


def compared(answer: Answer) -> Answer:
    """Drop the fields that differ: a session's cookie has a time, and the cache joins a 304's Vary."""
    return answer._replace(
        fields=[field for field in answer.fields if field[0] not in {"set-cookie", "vary"}]
    )
