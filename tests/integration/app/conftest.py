"""Files for the program `univocal`, and its admin listener before a proxy."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.inside import Ended
from univocal import CacheMiddleware, MemoryStore
from univocal_app.config.tables import Configuration
from univocal_app.observe.admin import Life, admin
from univocal_app.observe.admin_views import Views
from univocal_app.observe.events import Events
from univocal_app.observe.figures import Figures
from univocal_app.run.configured import runtime_of


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """written(text): the file univocal.toml with this text."""

    def written(text: str) -> Path:
        (file := tmp_path / "univocal.toml").write_text(text, "utf-8")
        return file

    return written


@pytest.fixture
def checked(univocal: Callable[..., Ended], written: Callable[[str], Path]) -> Callable[[str], Ended]:
    """checked(text): what `univocal check` says of a file with this text."""
    return lambda text: univocal("check", "--config", str(written(text)))


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """An application whose pages are stored, but for /never; those below /own/ say nothing of it."""
    control = b"no-store" if scope["path"] == "/never" else b"max-age=60"
    fields = [(b"surrogate-key", b"article"), (b"cache-control", control)]
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": fields[: 1 if scope["path"].startswith("/own/") else 2],
        }
    )
    await send({"type": "http.response.body", "body": b"content"})


def before_admin(
    configuration: Configuration,
    *heard: Any,
    store: MemoryStore | None = None,
    clock: Callable[[], float] = time.time,
    **views: Any,
) -> tuple[CacheMiddleware, Any]:
    """The cache around `pages`, which its listeners and `heard` hear, and its admin application."""
    store, shown = store or MemoryStore(), Views(Figures(), clock, **views)
    shown.figures.attend(store)
    listeners = [shown.figures, *shown.listeners, *heard]
    runtime = runtime_of(configuration)
    proxy = CacheMiddleware(pages, runtime=runtime, store=store, listeners=listeners, clock=clock)
    events = Events(proxy.engine.audience.listeners)
    return proxy, admin(proxy, lambda: configuration, shown, events, Life())


def client(app: Any, peer: str = "127.0.0.1", at: str = "127.0.0.1:8081", **fields: str) -> httpx.AsyncClient:
    """A client at this address, which asks for URLs of this authority."""
    transport = httpx.ASGITransport(app, client=(peer, 50000))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{at}", headers=fields)


@pytest.fixture
def proxy(stack: tuple[CacheMiddleware, Any]) -> CacheMiddleware:
    """The cache of `before_admin`, where a file's `stack` is what that gives."""
    return stack[0]


@pytest.fixture
def application(stack: tuple[CacheMiddleware, Any]) -> Any:
    """Its admin application."""
    return stack[1]
