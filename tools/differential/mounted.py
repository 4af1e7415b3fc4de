"""The middleware before the scripted origin server, for an ASGI server; its URL is in the file `origin`."""

from __future__ import annotations

from pathlib import Path

from univocal import CacheMiddleware, ReverseProxy


def application() -> CacheMiddleware:
    """The middleware with its defaults around a reverse proxy."""
    return CacheMiddleware(ReverseProxy(Path("origin").read_text("utf-8")))
