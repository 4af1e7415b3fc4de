"""An ASGI client that sends a target's exact bytes, and an application that counts what reaches it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pytest

from support import Clock, hurry, idle
from univocal import CacheMiddleware
from univocal.asgi.client import PATIENCE

Fields = list[tuple[bytes, bytes]]


@dataclass
class Answered:
    status: int
    fields: Fields
    body: bytes
    complete: bool = True
    interims: list[tuple[int, Fields]] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return ", ".join(value.decode("latin-1") for key, value in self.fields if key == name.encode())

    @property
    def handling(self) -> set[str]:
        """The members of Cache-Status, without the cache's name."""
        return set(self["cache-status"].split("; ")[1:])

    @property
    def problem(self) -> dict[str, Any]:
        assert self["content-type"] == "application/problem+json"
        assert int(self["content-length"]) == len(self.body)
        return json.loads(self.body)


def scope_of(
    target: bytes, method: str, host: str | None, fields: Sequence[tuple[str, str]], **more: Any
) -> dict[str, Any]:
    path, _, query = target.partition(b"?")
    headers = [(b"host", host.encode())] if host is not None else []
    headers += [(name.encode(), value.encode("latin-1")) for name, value in fields]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8080),
        "extensions": {"univocal.target": {"target": target}, "http.response.informational": {}},
    } | more


async def respond(send: Any, body: bytes = b"", fields: Sequence[Any] = (), status: int = 200) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": status, "headers": list(fields)})
    await send({"type": "http.response.body", "body": body})


class Side:
    """A server's side of a call: it gives these messages, then nothing, and keeps what it is sent."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages, self.sent = list(messages), list[dict[str, Any]]()

    async def receive(self) -> dict[str, Any]:
        while not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def call(self, app: Any, scope: dict[str, Any]) -> list[dict[str, Any]]:
        """Call an application; what it has sent."""
        await app(scope, self.receive, self.send)
        return self.sent


LIFESPAN = {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}
DISCONNECT = {"type": "http.disconnect"}


def content(body: bytes, *, more: bool = False) -> dict[str, Any]:
    """A message with content of a request."""
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """Asks `app`; a body given as a list arrives in that many messages."""

    def __init__(self, app: Any, host: str = "en.example") -> None:
        self.app = app
        self.host: str | None = host

    async def __call__(
        self,
        target: str | bytes,
        method: str = "GET",
        fields: Sequence[tuple[str, str]] = (),
        body: Sequence[bytes] = (),
        leave: asyncio.Event | None = None,
        host: str | None = "same",
        **more: Any,
    ) -> Answered:
        raw = target.encode() if isinstance(target, str) else target
        scope = scope_of(raw, method, self.host if host == "same" else host, fields, **more)
        parts = list(body)
        answered = Answered(0, [], b"", complete=False)

        async def receive() -> dict[str, Any]:
            if parts:
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
            if not body and not getattr(receive, "asked", False):
                receive.asked = True  # type: ignore[attr-defined]
                return {"type": "http.request", "body": b"", "more_body": False}
            await (leave or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answered.status, answered.fields = message["status"], list(message["headers"])
            elif message["type"] == "http.response.body":
                answered.body += message.get("body", b"")
                answered.complete = not message.get("more_body", False)
            else:
                answered.interims.append((message["status"], list(message["headers"])))

        await self.app(scope, receive, send)
        return answered


class Application:
    """Answers what `script` says, counts, and keeps every scope that reached it."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.receives: list[Callable[[], Any]] = []
        self.contents: list[bytes] = []
        self.status = 200
        self.fields: Fields = [(b"cache-control", b"max-age=60")]
        self.body: bytes | None = None
        self.gate: asyncio.Event | None = None  # set by a test to hold answers back
        self.cancelled = 0
        self.script: Callable[[dict[str, Any]], tuple[int, Fields, bytes] | None] = lambda scope: None
        self._reached = asyncio.Event()

    @property
    def count(self) -> int:
        return len(self.scopes)

    @property
    def targets(self) -> list[bytes]:
        return [s["raw_path"] + (b"?" + s["query_string"] if s["query_string"] else b"") for s in self.scopes]

    def fields_seen(self, index: int = -1) -> dict[str, str]:
        """The fields with which a request arrived; of repeats the last."""
        return {name.decode(): value.decode("latin-1") for name, value in self.scopes[index]["headers"]}

    async def reached(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        async with asyncio.timeout(5):
            while self.count < count:
                await self._reached.wait()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        self.receives.append(receive)
        number = self.count
        self._reached.set()
        self._reached.clear()
        try:
            await self._answer(scope, receive, send, number)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Any, number: int) -> None:
        content, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            content += message.get("body", b"")
            more = message.get("more_body", False)
        self.contents.append(content)
        if self.gate is not None:
            await self.gate.wait()
        status, fields, body = self.script(scope) or (
            self.status,
            self.fields,
            b"answer %d" % number if self.body is None else self.body,
        )
        await respond(send, body, fields, status)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def client_of() -> type[Client]:
    return Client


@pytest.fixture
def cached(application: Application, clock: Clock) -> Callable[..., Client]:
    """A client of the application behind a CacheMiddleware: `cached(profile, app, **settings)`."""

    def build(profile: Any = "asgi", app: Any = None, **settings: Any) -> Client:
        return Client(CacheMiddleware(app or application, profile, clock=clock, **settings))

    return build


@pytest.fixture(name="idle")
def idle_fixture() -> Callable[[], Any]:
    return idle


@pytest.fixture
async def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting client is watched from the first moment on, not only after a while."""
    hurry(monkeypatch, PATIENCE)
