"""The paths that every origin of the benchmarks answers, and their contents."""

from __future__ import annotations

CACHEABLE, UNCACHEABLE = b"public, max-age=86400", b"no-store"
LINE = b"0123456789abcdefghijklmnopqrstuvwxyz-0123456789-ABCDEFGHIJKLMN\n\n"  # 64 bytes

CONTENTS = {
    "/hit": LINE * 16,
    "/hit64k": LINE * 1024,
    "/hit1m": LINE * 16384,
    "/nostore": LINE * 16,
}  # and /key/<number>, as /hit

# The 12 fields that a browser sends besides Host.
BROWSER = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "DNT: 1",
    "Connection: keep-alive",
    "Upgrade-Insecure-Requests: 1",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Site: none",
    "Sec-Fetch-User: ?1",
    "Priority: u=0, i",
)


def content_of(path: str) -> bytes:
    """The content that belongs to a path."""
    return CONTENTS.get(path, CONTENTS["/hit"])
