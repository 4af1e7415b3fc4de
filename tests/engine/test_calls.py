"""A regression guard without a clock: Python calls within the library for a hit and for a miss.

A ceiling is a few calls above what was measured when it was set. Who needs more calls raises it and says
why; who needs fewer lowers it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import univocal
from counting import only_assigns
from neighbours import FRESH, House, PlayedClient
from univocal import CacheMiddleware, MemoryStore
from univocal.forward.upstream import Upstream
from univocal.http.messages import Field, Received, Response
from univocal.http.roles import OriginRequest

pytestmark = pytest.mark.pure("Python's calls are counted")

LIBRARY = str(Path(univocal.__file__).parent)
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>"}
BROWSER: list[Field] = [
    (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"),
    (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (b"accept-language", b"en-US,en;q=0.5"),
    (b"accept-encoding", b"gzip, deflate, br, zstd"),
    (b"referer", b"http://en.example/"),
    (b"connection", b"keep-alive"),
    (b"cookie", b"theme=dark"),
    (b"upgrade-insecure-requests", b"1"),
    (b"sec-fetch-dest", b"document"),
    (b"sec-fetch-mode", b"navigate"),
    (b"sec-fetch-site", b"same-origin"),
    (b"priority", b"u=0, i"),
]
# What the policy has to weigh takes the long way.
WEIGHED: list[Field] = [*BROWSER, (b"cache-control", b"max-age=3600")]


def calls_of(act: Callable[[], object]) -> Counter[str]:
    """The calls within the library while `act` runs, by the function's place.

    Comprehensions are none: from Python 3.12 on they have no frame of their own. Nor is an `__init__` that
    only assigns.
    """
    found = Counter[str]()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        counts = code.co_filename.startswith(LIBRARY) and code.co_name not in COMPREHENSIONS
        if event == "call" and counts and not only_assigns(code):
            found[f"{code.co_filename[len(LIBRARY) + 1 :]}: {code.co_qualname}"] += 1

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def check(act: Callable[[], object], ceiling: int) -> None:
    for _ in range(3):  # what is remembered is remembered
        act()
    found = calls_of(act)
    listed = "\n".join(f"{number:4} {place}" for place, number in found.most_common())
    assert found.total() <= ceiling, f"{found.total()} calls, more than {ceiling}:\n{listed}"


def door(fields: list[Field]) -> Callable[[], object]:
    """A hit by the ASGI door, which awaits nothing that is not there."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/a",
        "raw_path": b"/a",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"en.example"), *fields],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8080),
    }
    house = House(store=MemoryStore())
    house.store_away(bytes(1024))
    middleware = CacheMiddleware(nobody, runtime=house.engine.gate.runtime, store=house.store)
    middleware.engine.clock = house.clock
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    def act() -> None:
        sent.clear()
        with pytest.raises(StopIteration):
            middleware(scope, receive, send).send(None)
        assert len(sent[1]["body"]) == 1024

    return act


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError


def miss(fields: list[Field], told: list[Field]) -> Callable[[], object]:
    """A miss of another target each time, whose answer comes when it has been asked for."""
    house, numbers = House(), count()
    content = bytes(1024)

    def act() -> None:
        client = house.ask(b"/%d" % next(numbers), b"GET", *fields, client=PlayedClient())
        house.origin.last.answers(content, fields=told)
        assert len(client.body) == 1024

    return act


class Server:
    """An origin server (see origin.server) that answers at once."""

    url, authority, name, came = "http://origin.example", b"origin.example", None, True

    def mapped(self, target: bytes) -> bytes:
        return target

    def ask(
        self, method: bytes, target: bytes, fields: Any, content: Any, answer: Any, moved: Any, bond: Any
    ) -> Any:
        answer.start(Response(200, FRESH))
        answer.write(b"content")
        answer.finish()
        return self

    def cancel(self) -> None: ...


def forwarding(servers: int) -> Callable[[], object]:
    upstream = Upstream.of([Server() for _ in range(servers)])  # type: ignore[misc]
    received = Received(b"GET", b"/a", client="127.0.0.1")

    def act() -> None:
        answer = Heard()
        fields = [(b"host", b"en.example"), *BROWSER]
        upstream.send(OriginRequest(b"GET", b"/a", fields, received, key=b"key"), answer)
        assert answer.finished

    return act


class Heard:
    finished = False

    def interim(self, status: int, fields: Any) -> None: ...
    def start(self, response: Response) -> None: ...
    def fail(self, error: Exception) -> None: ...

    def write(self, chunk: bytes) -> bool:
        return True

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize(("servers", "ceiling"), [(1, 13), (2, 28)])
def test_a_request_on_its_way_to_origin_servers(servers: int, ceiling: int) -> None:
    check(forwarding(servers), ceiling)


@pytest.mark.parametrize(
    ("fields", "ceiling"), [([], 15), (BROWSER, 15), (WEIGHED, 87)], ids=["bare", "browser", "weighed"]
)
def test_a_hit_by_the_asgi_door(fields: list[Field], ceiling: int) -> None:
    check(door(fields), ceiling)


@pytest.mark.parametrize(("fields", "ceiling"), [([], 161), (BROWSER, 166)], ids=["bare", "browser"])
def test_a_miss_that_is_stored(fields: list[Field], ceiling: int) -> None:
    check(miss(fields, [*FRESH, (b"content-length", b"1024")]), ceiling)


@pytest.mark.parametrize(("fields", "ceiling"), [([], 102), (BROWSER, 110)], ids=["bare", "browser"])
def test_a_miss_that_is_not_stored(fields: list[Field], ceiling: int) -> None:
    check(miss(fields, [(b"cache-control", b"no-store"), (b"content-length", b"1024")]), ceiling)


@pytest.mark.parametrize(("fields", "ceiling"), [([], 83), (BROWSER, 91)], ids=["bare", "browser"])
def test_a_miss_of_a_key_that_is_passed_by(fields: list[Field], ceiling: int) -> None:
    house, content = House(), bytes(1024)

    def act() -> None:
        client = house.ask(b"/a", b"GET", *fields, client=PlayedClient())
        house.origin.last.answers(content, fields=[(b"cache-control", b"no-store")])
        assert len(client.body) == 1024

    check(act, ceiling)


def test_a_call_too_many_is_told_with_where_it_is() -> None:
    with pytest.raises(
        AssertionError, match=r"calls, more than 3:\n(.*\n)* +1 engine/exchange.py: Exchange.begin"
    ):
        check(miss([], FRESH), 3)
