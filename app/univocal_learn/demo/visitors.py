"""Visitors of the demo's sites: the same requests in the same order, each page by several spellings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import count, cycle, islice
from typing import Final

from univocal_app.config.values import Address

# None is of a page that the demo's own lines ask for first.
VISITS: Final = (
    ("wiki", "/wiki/AC/DC"),
    ("wiki", "/wiki/AC%2FDC"),
    ("shop", "/shop/cart"),
    ("wiki", "/wiki/%D0%9A%D0%BE%D1%88%D0%BA%D0%B0"),
    ("files", "/commons/a/a1/%C3%89toile,_bleue.svg"),
    ("wiki", "/wiki/AC%2fDC"),
    ("shop", "/shop;jsessionid=1A/cart"),
    ("wiki", "/wiki/Who%27s_Afraid_of_Virginia_Woolf%3F"),
    ("wiki", "/wiki/AC/DC"),
    ("shop", "/shop/cart;jsessionid=2B"),
    ("files", "/commons/a/a1/%c3%89toile%2C_bleue.svg"),
    ("wiki", "/wiki/%d0%9a%d0%be%d1%88%d0%ba%d0%b0"),
    ("shop", "/shop/cart"),
    ("wiki", "/wiki/Who's_Afraid_of_Virginia_Woolf%3f"),
    ("shop", "/shop/..;/admin"),
    ("wiki", "/wiki/%41C/DC"),
    ("files", "/commons/a/a1/%C3%89toile,_bleue.svg"),
    ("wiki", "/wiki/AC/DC"),
    ("shop", "/shop/%63art"),
    ("wiki", "/wiki/Bells_and_whistles"),
    ("wiki", "/wiki/AC%2FDC"),
    ("shop", "/shop/%2e%2e/admin"),
    ("wiki", "/wiki/%D0%9A%D0%BE%D1%88%D0%BA%D0%B0"),
    ("wiki", "/wiki/AC/DC%00"),
)
# Visits a second: the tide comes and goes.
TIDE: Final = (6, 8, 11, 14, 16, 17, 16, 14, 11, 8, 6, 5)

_HOSTS: Final = {"wiki": "wiki.localhost", "shop": "servlet.localhost", "files": "files.localhost"}
_PATIENCE: Final = 10.0  # seconds that an answer is waited for


def visits() -> Iterator[list[tuple[str, str]]]:
    """The host and target of each visit, second by second, without end."""
    each = cycle((_HOSTS[site], target) for site, target in VISITS)
    for number in cycle(TIDE):
        yield list(islice(each, number))


class Visitors:
    """Asks the proxy at an address, from `begin` to `aclose`, or until it answers no more."""

    def __init__(self, proxy: Address) -> None:
        self._proxy = proxy
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self.come())

    async def aclose(self) -> None:
        """End, in the middle of a visit if need be."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def come(self, seconds: int | None = None) -> None:
        """Send requests for so many seconds; None: without end."""
        with suppress(OSError, TimeoutError):
            async for visited in _each_second(seconds):
                for host, target in visited:
                    async with asyncio.timeout(_PATIENCE):
                        await self._ask(host, target)

    async def _ask(self, host: str, target: str) -> None:
        reader, writer = await asyncio.open_connection(self._proxy.host.strip("[]"), self._proxy.port)
        try:
            head = f"GET {target} HTTP/1.1\r\nHost: {host}:{self._proxy.port}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode("ascii"))
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _each_second(seconds: int | None) -> AsyncIterator[list[tuple[str, str]]]:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number, visited in zip(count() if seconds is None else range(seconds), visits(), strict=False):
        await asyncio.sleep(begun + number - loop.time())
        yield visited
