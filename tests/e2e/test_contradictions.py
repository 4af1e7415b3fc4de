"""After an origin server has answered for a URL, no older stored response answers unless it was confirmed.

Each case goes through `univocal serve`, with the default settings and with those that store the most.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "defaults": "",
    "generous": 'errors = "explicit"\nset_cookie = "explicit"\nheuristic = true\n',
}
HOST = "en.example"
RELOAD = "Cache-Control: no-cache\r\n"
FRESH = "Cache-Control: max-age=600\r\n"
# Stale when it comes, and it may be served for ten minutes while it is fetched again.
STALE = "Age: 5\r\nCache-Control: max-age=1, stale-while-revalidate=600\r\n"
FALLBACK = "Age: 5\r\nCache-Control: max-age=1, stale-if-error=600\r\n"
PAGE = "Accept: text/html\r\nUser-Agent: Mozilla\r\n"
BROWSER = PAGE + "Cookie: session=1\r\nX-Requested-With: x\r\n"
LARGEST = 64 << 10
PATIENCE = 10.0
SOON = 1

Reply = tuple[int, str, bytes]


class Site:
    """A running proxy, and an origin server that gives each of its `replies` once, then the last for ever."""

    def __init__(self, running: Any, origin: Any, ask: Callable[..., Any]) -> None:
        self._running, self._origin, self._ask = running, origin, ask
        self.replies: list[Reply] = []
        origin.answer = self._answer

    def _answer(self, head: bytes) -> bytes:
        self._origin.seen.append(head)
        status, fields, body = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        framed = f"Content-Length: {len(body)}\r\n" if status != 304 else ""
        content = b"" if head.startswith(b"HEAD ") else body
        return f"HTTP/1.1 {status} Word\r\n{fields}{framed}\r\n".encode() + content

    @property
    def heads(self) -> list[str]:
        """The heads of the requests that reached the origin server."""
        return [head.decode("latin-1") for head in self._origin.seen]

    def ask(self, fields: str = "", method: str = "GET") -> Any:
        return self._ask(self._running.proxy, "/page", HOST, method, fields)

    def refresh(self, fields: str = "") -> None:
        """Ask for a stale response until it is fetched again in the background, after a refresh under way."""
        asked = len(self.heads)
        assert self.ask(fields).body == b"old"
        until = time.monotonic() + PATIENCE
        while not self._fetches_again(asked) and time.monotonic() < until:
            self.ask(fields)
        assert len(self.heads) == asked + 1

    def _fetches_again(self, asked: int) -> bool:
        """Wait for a request beyond so many, for as long as a refresh takes to begin."""
        until = time.monotonic() + SOON
        while len(self.heads) == asked and time.monotonic() < until:
            time.sleep(0.01)
        return len(self.heads) > asked

    def becomes(self, body: bytes, fields: str = "") -> bool:
        """Tell whether this is what a client gets soon after a refresh, which is not done again."""
        asked, until = len(self.heads), time.monotonic() + PATIENCE
        while (answer := self.ask(fields)).body != body and time.monotonic() < until:
            time.sleep(0.01)
        return bool(answer.body == body and len(self.heads) == asked + 1)


@pytest.fixture(params=SETTINGS)
def site(
    request: pytest.FixtureRequest,
    start: Callable[..., Any],
    origin: Any,
    ask: Callable[..., Any],
    tmp_path: Path,
) -> Site:
    file = tmp_path / "univocal.toml"
    file.write_text(
        '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
        f"[cache]\nmax_object_bytes = {LARGEST}\n{SETTINGS[request.param]}"
        f'[[sites]]\nhosts = ["{HOST}"]\nprofile = "asgi"\nupstream = "{origin.url}"\n'
    )
    return Site(start("serve", "--config", str(file)), origin, ask)


# A 304 that changes Vary


def test_a_304_adding_vary_keeps_others_from_the_response(site: Site) -> None:
    site.replies = [
        (200, FRESH + 'ETag: "1"\r\n', b"old"),
        (304, FRESH + 'ETag: "1"\r\nVary: X-Var\r\n', b""),
        (200, FRESH + "Vary: X-Var\r\n", b"other"),
    ]
    site.ask()
    assert site.ask(RELOAD + "X-Var: a\r\n").body == b"old"
    assert site.ask("X-Var: b\r\n").body == b"other"
    assert site.ask("X-Var: a\r\n").body == b"old"
    assert len(site.heads) == 3


def test_a_304_that_adds_vary_counts_in_the_background(site: Site) -> None:
    site.replies = [
        (200, STALE + 'ETag: "1"\r\n', b"old"),
        (304, FRESH + 'ETag: "1"\r\nVary: Accept\r\n', b""),
        (200, FRESH + "Vary: Accept\r\n", b"other"),
    ]
    site.ask(PAGE)
    site.refresh(PAGE)
    assert site.becomes(b"other", "Accept: image/png\r\n")


def test_a_304_that_adds_vary_keeps_others_from_the_fallback(site: Site) -> None:
    site.replies = [
        (200, FALLBACK + 'ETag: "1"\r\n', b"old"),
        (304, FALLBACK + 'ETag: "1"\r\nVary: X-Var\r\n', b""),
        (503, "Cache-Control: no-store\r\n", b"failed"),
    ]
    site.ask()
    assert site.ask("X-Var: a\r\n").body == b"old"
    assert site.ask("X-Var: b\r\n").body == b"failed"
    assert site.ask("X-Var: a\r\n").body == b"old"


# A 304 that forbids to store


@pytest.mark.parametrize("news", ["Cache-Control: no-store", "Cache-Control: private", "Vary: *"])
@pytest.mark.parametrize("client", ["", BROWSER], ids=["plain", "browser"])
def test_a_304_that_forbids_storing_ends_the_response(site: Site, news: str, client: str) -> None:
    site.replies = [
        (200, FRESH + 'ETag: "1"\r\n', b"old"),
        (304, f'{news}\r\nETag: "1"\r\n', b""),
        (200, FRESH, b"new"),
    ]
    site.ask()
    assert site.ask(RELOAD + client).body == b"old"
    assert site.ask().body == b"new"


def test_a_304_forbidding_storage_ends_the_response_in_the_background(site: Site) -> None:
    site.replies = [
        (200, STALE + 'ETag: "1"\r\n', b"old"),
        (304, 'Cache-Control: private\r\nETag: "1"\r\n', b""),
        (200, FRESH, b"new"),
    ]
    site.ask()
    site.refresh(BROWSER)
    assert site.becomes(b"new")


def test_a_full_answer_to_a_range_request_ends_the_response(site: Site) -> None:
    site.replies = [
        (200, FRESH + 'ETag: "1"\r\n', b"old"),
        (200, "Cache-Control: no-cache\r\n", b"new"),
        (200, FRESH, b"newer"),
    ]
    site.ask()
    assert site.ask(RELOAD + 'Range: bytes=0-1\r\nIf-Range: "9"\r\n').body == b"new"
    assert site.ask().body == b"newer"


def test_a_part_with_another_validator_ends_the_response(site: Site) -> None:
    part = 'Cache-Control: private\r\nETag: "2"\r\nContent-Range: bytes 0-1/3\r\n'
    site.replies = [(200, FRESH + 'ETag: "1"\r\n', b"old"), (206, part, b"ne"), (200, FRESH, b"new")]
    site.ask()
    assert site.ask(RELOAD + "Range: bytes=0-1\r\n").body == b"ne"
    assert site.ask().body == b"new"


# HEAD


def test_a_head_does_not_displace_what_a_get_has_brought(site: Site) -> None:
    gone = 'Cache-Control: max-age=600\r\nETag: "2"\r\n'
    site.replies = [(200, FRESH + "Vary: Accept, X-Var\r\n", b"old"), (404, gone, b"gone")]
    site.ask()
    assert site.ask("X-Var: b\r\n").body == b"gone"
    assert site.ask(RELOAD + "Accept: text/html\r\n", method="HEAD").status == 404
    assert site.ask("X-Var: b\r\n").body == b"gone"
    assert site.ask().body == b"old"  # for requests without X-Var


def test_a_200_to_a_conditional_head_confirms_nothing(site: Site) -> None:
    site.replies = [
        (200, 'Age: 5\r\nCache-Control: max-age=1\r\nETag: "1"\r\n', b"old"),
        (200, FRESH, b"new"),
    ]
    site.ask()
    site.ask(method="HEAD")
    assert "if-none-match" in site.heads[-1].lower()
    assert site.ask().body == b"new"


# What a refresh in the background brings


def test_a_refresh_that_is_too_large_ends_the_response(site: Site) -> None:
    large = b"x" * (LARGEST + 1)
    site.replies = [(200, STALE, b"old"), (200, STALE, large)]
    site.ask()
    site.refresh()
    assert site.becomes(large)


@pytest.mark.parametrize("client", ["", BROWSER], ids=["plain", "browser"])
@pytest.mark.parametrize("status", [401, 403, 404, 410, 451])
def test_a_refresh_that_is_refused_ends_the_response(site: Site, status: int, client: str) -> None:
    site.replies = [(200, STALE, b"old"), (status, "", b"gone")]
    site.ask()
    site.refresh(client)
    assert site.becomes(b"gone")


@pytest.mark.parametrize("client", ["", BROWSER], ids=["plain", "browser"])
@pytest.mark.parametrize("news", ["Cache-Control: no-store", "Cache-Control: private", "Vary: *"])
def test_a_refresh_that_cannot_be_stored_ends_the_response(site: Site, news: str, client: str) -> None:
    site.replies = [(200, STALE, b"old"), (200, f"{news}\r\n", b"new")]
    site.ask()
    site.refresh(client)
    assert site.becomes(b"new")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refresh_that_fails_leaves_the_response(site: Site, status: int) -> None:
    site.replies = [(200, STALE, b"old"), (status, "", b"failed")]
    site.ask()
    for _ in range(3):
        site.refresh(BROWSER)
    assert site.ask().body == b"old"


def test_a_refresh_has_nothing_of_the_client(site: Site) -> None:
    site.replies = [(200, STALE + "Vary: X-Var\r\n", b"old"), (200, FRESH, b"new")]
    site.ask("X-Var: a\r\n")
    site.refresh(BROWSER + "X-Var: a\r\nX-Api-Key: 1\r\n")
    names = re.findall(r"(?m)^([^:\r\n]+): ", site.heads[-1].lower())
    assert {"x-var", "accept", "user-agent"} <= set(names)
    assert {"cookie", "x-api-key", "x-requested-with"}.isdisjoint(names)


# To become cacheable again


def test_one_storable_answer_is_enough_to_store_again(site: Site) -> None:
    site.replies = [
        (200, 'Cache-Control: no-store\r\nETag: "1"\r\n', b"old"),
        (200, FRESH + 'ETag: "2"\r\n', b"new"),
    ]
    site.ask()
    for _ in range(3):
        assert site.ask('If-None-Match: "1"\r\n').body == b"new"
    assert len(site.heads) == 2


def test_a_304_that_allows_storing_is_enough_to_store_again(site: Site) -> None:
    site.replies = [
        (200, 'Cache-Control: no-store\r\nETag: "1"\r\n', b"old"),
        (304, FRESH + 'ETag: "1"\r\n', b""),
        (200, FRESH + 'ETag: "1"\r\n', b"old"),
    ]
    site.ask()
    for _ in range(4):
        assert site.ask('If-None-Match: "1"\r\n').status == 304
    assert len(site.heads) == 3


# Connection


def test_connection_cannot_hide_vary_and_validators_from_the_cache(site: Site) -> None:
    site.replies = [
        (200, FRESH + 'ETag: "1"\r\nVary: X-Var\r\nConnection: vary, etag\r\n', b"old"),
        (200, FRESH, b"other"),
    ]
    site.ask("X-Var: a\r\n")
    hit = site.ask("X-Var: a\r\n")
    assert (hit.value("ETag"), hit.value("Vary")) == ('"1"', "X-Var")
    assert site.ask("X-Var: b\r\n").body == b"other"
