"""The visitors of the soak: each asks, and checks every byte of what it is answered."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import httpx
from websockets.asyncio.client import connect

from benchmarks.soak_origin import Pages, body_of

HOST: Final = "soak.example"
NUMBERS: Final = 400  # pages that are asked for again and again
# The statuses that may come while origin servers die, come back, or are at fault.
TROUBLE: Final = frozenset({502, 503, 504})


@dataclass
class Tally:
    """The events of a soak, which is passed if nothing is `wrong`."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        """Keep what must not be: the first hundred."""
        if len(self.wrong) < 100:
            self.wrong.append(text)


class Visitors:
    """All who ask the proxy at `proxy` and the admin listener at `admin`, two ports."""

    def __init__(self, pages: Pages, proxy: int, admin: int, reload: Callable[[], None]) -> None:
        self._pages, self._proxy, self._admin, self._rewrite = pages, proxy, admin, reload
        self._floors = Counter[str]()  # the least version that may be answered since a confirmed purge
        self._random = random.Random(1)
        self.tally = Tally()
        self.over = asyncio.Event()

    async def visit(self) -> None:
        """Ask until it is over."""
        kinds: list[tuple[int, Callable[[httpx.AsyncClient], Awaitable[None]]]] = [
            (6, self._read),
            (2, self._read_once),
            (1, self._fault),
            (1, self._edit),
            (2, self._read_slowly),
            (1, self._ask_slowly),
            (2, self._talk),
            (1, self._reload),
        ]
        async with asyncio.TaskGroup() as group:
            for many, kind in kinds:
                for _ in range(many):
                    group.create_task(self._again(kind))

    async def fill(self, many: int) -> None:
        """Ask for so many pages once: what is bounded is full then."""
        numbers = iter(range(many))

        async def ask() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy)
            for number in numbers:
                path = f"/fill/{number}"
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                if await reader.readexactly(length) != body_of(path, 0):
                    self.tally.fail(f"{path}: {head[:60]!r}")
            writer.close()

        await asyncio.gather(*(ask() for _ in range(16)))

    async def _again(self, act: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self._proxy}", headers={"host": HOST}, timeout=30, trust_env=False
        ) as client:
            while not self.over.is_set():
                try:
                    await act(client)
                except (httpx.TransportError, OSError) as error:
                    # An answer that began may be cut with its origin server; nothing else may.
                    self.tally.seen[f"{act.__name__}: {type(error).__name__}"] += 1
                    if not isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
                        self.tally.fail(f"{act.__name__}: {error!r}")

    def _page(self, kind: str = "page") -> str:
        return f"/{kind}/{min(int(self._random.expovariate(1 / 60)), NUMBERS - 1)}"

    def _spelled(self, path: str) -> str:
        at = self._random.randrange(1, path.rindex("/"))
        return self._random.choice((path, f"{path[:at]}%{ord(path[at]):02x}{path[at + 1 :]}"))

    async def _read(self, client: httpx.AsyncClient) -> None:
        path = self._page("never" if self._random.random() < 0.2 else "page")
        floor = self._floors[path]
        self._check(path, floor, await client.get(self._spelled(path)))

    async def _read_once(self, client: httpx.AsyncClient) -> None:
        path = f"/once/{self._random.randrange(10**12)}"
        self._check(path, 0, await client.get(path))

    def _check(self, path: str, floor: int, answer: httpx.Response) -> None:
        self.tally.seen[str(answer.status_code)] += 1
        if answer.status_code in TROUBLE:
            return
        latest = self._pages.versions[path]
        allowed = [body_of(path, version) for version in range(floor, latest + 1)]
        if answer.status_code != 200 or answer.content not in allowed:
            begun = answer.content[:60]
            self.tally.fail(f"{path}: {answer.status_code} {begun!r}, version {floor} to {latest} is right")
        elif "hit" in answer.headers.get("cache-status", ""):
            self.tally.seen["hits"] += 1

    async def _fault(self, client: httpx.AsyncClient) -> None:
        kind = self._random.choice(("reset", "garbage", "short", "slow"))
        answer = await client.get(f"/fault/{kind}/{self._random.randrange(10**6)}")
        self.tally.seen[f"fault {kind}: {answer.status_code}"] += 1
        if answer.status_code == 200 and kind != "slow":
            self.tally.fail(f"fault {kind} was answered as if it were none")
        await asyncio.sleep(0.05)

    async def _edit(self, client: httpx.AsyncClient) -> None:
        """A page changes, and is purged: whoever asks then gets no older version."""
        path = self._page()
        self._pages.versions[path] += 1
        version = self._pages.versions[path]
        url, number = f"http://{HOST}{self._spelled(path)}", path.rpartition("/")[2]
        order = self._random.choice(({"url": url}, {"tag": f"number-{number}"}, {"prefix": url}))
        if self._random.random() < 0.5:
            answer = await client.request("PURGE", self._spelled(path))
        else:
            answer = await client.post(
                f"http://127.0.0.1:{self._admin}/-/purge", json=order, headers={"host": "localhost"}
            )
        if answer.status_code == 200:
            self._floors[path] = version
            self.tally.seen["purges"] += 1
        else:
            self.tally.fail(f"a purge was answered {answer.status_code}: {answer.text[:200]}")
        await asyncio.sleep(0.02)

    async def _read_slowly(self, _: httpx.AsyncClient) -> None:
        path = f"/large/{self._random.randrange(20)}"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy, limit=4096)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            body = bytearray()
            whole = self._random.random() < 0.5
            while piece := await reader.read(4096):
                body += piece
                if not whole and len(body) > 50_000:
                    self.tally.seen["readers that left"] += 1
                    return
                await asyncio.sleep(0.01)
        finally:
            writer.close()
        if head.startswith(b"HTTP/1.1 200"):
            # A client that is cut with an origin server has the beginning.
            if not body_of(path, 0).startswith(body):
                self.tally.fail(f"{path}: other bytes")
            self.tally.seen["slow readers"] += 1

    async def _ask_slowly(self, _: httpx.AsyncClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy)
        try:
            for octet in f"GET {self._page()} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode():
                writer.write(bytes((octet,)))
                await asyncio.sleep(0.01)
            if not (await reader.read()).startswith(b"HTTP/1.1 "):
                self.tally.fail("a slow head was not answered")
            self.tally.seen["slow heads"] += 1
        finally:
            writer.close()

    async def _talk(self, _: httpx.AsyncClient) -> None:
        async with connect(f"ws://127.0.0.1:{self._proxy}/socket/{self._random.random()}") as socket:
            for number in range(20):
                message = f"{number} " * self._random.randrange(1, 2000)
                await socket.send(message)
                if await socket.recv() != message:
                    self.tally.fail("a message came back as another")
                await asyncio.sleep(0.02)
        self.tally.seen["WebSockets"] += 1

    async def _reload(self, client: httpx.AsyncClient) -> None:
        await asyncio.sleep(3)
        self._rewrite()
        answer = await client.post(f"http://127.0.0.1:{self._admin}/-/reload", headers={"host": "localhost"})
        self.tally.seen["reloads"] += 1
        if answer.status_code != 200:
            self.tally.fail(f"a reload was answered {answer.status_code}: {answer.text[:300]}")
