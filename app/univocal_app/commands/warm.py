"""`univocal warm`: requests to a running proxy, so that it has the responses before clients ask for them."""

from __future__ import annotations

import html
import http.client
import itertools
import re
import ssl
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final, NamedTuple

import typer

from univocal.http.grammar import is_token
from univocal_app.commands.pace import Pace
from univocal_app.commands.progress import progress
from univocal_app.commands.server import Ca, Insecure, Server, trust
from univocal_app.commands.settings import Texts, option, usage_errors
from univocal_app.commands.urls import VIA, Files, Rate, Urls, Via, loopback, read_urls, request_of
from univocal_app.observe.explain import Url
from univocal_app.terminal import printable

_AT_ONCE: Final = 8  # requests, each in a thread
_LONGEST: Final = 50 * 2**20  # bytes of a sitemap (sitemaps.org)
_MOST: Final = 50_000  # sitemaps of an index
_LOCATION: Final = re.compile(rb"<loc>\s*(?:<!\[CDATA\[)?\s*(.*?)\s*(?:\]\]>)?\s*</loc>", re.DOTALL)


def warm_command(
    urls: Urls = None,
    *,
    file: Files = None,
    sitemap: Annotated[Texts, option("URL", "A sitemap, or an index of them. Repeatable.")] = None,
    header: Annotated[
        Texts,
        option("FIELD", 'A field, such as "Accept-Encoding: br". Repeated: one request for each value.'),
    ] = None,
    rate: Rate = 20,
    via: Via = None,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Request URLs from a running proxy, so that it stores their responses.

    Exit status: 0 if every response is a success or a redirect, 1 if not, 2 usage error.
    """
    if not (urls or file or sitemap):
        raise typer.BadParameter("nothing to request: give a URL, --file or --sitemap")
    with usage_errors(ValueError, OSError, http.client.HTTPException):
        warmer = Warmer(via, trust(ca, insecure=insecure), rate)
        variants = variants_of(header or [])
        listed = read_urls(urls, file)
        listed += itertools.chain.from_iterable(map(warmer.sitemap, sitemap or []))
        for url in listed:
            request_of(url)
    raise typer.Exit(0 if warmer.warm(listed, variants) else 1)


class WarmResult(NamedTuple):
    """The result of one request; `status` 0: there was no response."""

    url: str
    status: int
    said: str  # Cache-Status, or why there was no response

    @property
    def is_good(self) -> bool:
        """True for a success or a redirect."""
        return 0 < self.status < 400

    def line(self) -> str:
        """The line that is printed."""
        return f"{self.url}\t{self.status or 'failed'}\t{printable(self.said.encode('latin-1', 'replace'))}"


class Warmer:
    """Requests URLs of one proxy, or of those at the loopback addresses that they name themselves."""

    def __init__(self, via: str | None, context: ssl.SSLContext | None, rate: float) -> None:
        """Raise ValueError for an invalid address."""
        self._via, self._context, self._pace = via, context, Pace(1 / rate)
        self._own = threading.local()
        if via is not None:
            self._server(via)

    def warm(self, urls: Sequence[str], variants: Sequence[Mapping[str, str]]) -> bool:
        """Request each variant of each URL and print what came of it; False if one is an error."""
        jobs = [(url, variant) for url in urls for variant in variants]
        failed = stored = 0
        at_once = ThreadPoolExecutor(min(_AT_ONCE, len(jobs) or 1))
        with progress("warming", len(jobs)) as tell, at_once as threads:
            for each in threads.map(lambda job: self.fetch(*job), jobs):
                failed += not each.is_good
                stored += "; stored" in each.said
                tell(each.line())
        typer.echo(f"{len(jobs)} requested, {stored} stored, {failed} failed", err=True)
        return not failed

    def fetch(self, url: str, fields: Mapping[str, str]) -> WarmResult:
        """Request one URL at its turn; every failure is a result, too."""
        self._pace.wait()
        try:
            status, said, _ = self._get(url, fields, 0)
        except (ValueError, OSError, http.client.HTTPException) as error:
            return WarmResult(url, 0, str(error) or type(error).__name__)
        return WarmResult(url, status, said)

    def _get(self, url: str, fields: Mapping[str, str], most: int) -> tuple[int, str, bytes]:
        server = self._server(self._via or loopback(url) or VIA)
        target, sent = request_of(url)
        if Url.parse(url).scheme == b"https" and server.scheme != "https":
            sent["X-Forwarded-Proto"] = "https"  # the key of those who ask over TLS
        return server.fetch(target, {"User-Agent": "univocal", **sent, **fields}, most)

    def _server(self, address: str) -> Server:
        servers: dict[str, Server] = self._own.__dict__
        if address not in servers:
            servers[address] = Server(address, self._context, "a proxy")
        return servers[address]

    def sitemap(self, url: str) -> list[str]:
        """The URLs of a sitemap, or of all that an index has.

        Raises ValueError for what is none, OSError and HTTPException for a proxy that does not answer.
        """
        content = self._sitemap(url)
        if b"<sitemapindex" not in content:
            return _locations(content)
        parts = _locations(content)[:_MOST]
        return [each for part in parts for each in _locations(self._sitemap(part))]

    def _sitemap(self, url: str) -> bytes:
        self._pace.wait()
        status, _, content = self._get(url, {}, _LONGEST)
        if content[:2] == b"\x1f\x8b":
            content = _unpacked(content, url)
        if status != 200 or not (b"<urlset" in content or b"<sitemapindex" in content):
            raise ValueError(f"--sitemap {url}: no sitemap (status {status})")
        return content


def _unpacked(content: bytes, url: str) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(content, _LONGEST)
    except zlib.error as error:
        raise ValueError(f"--sitemap {url}: {error}") from None


def _locations(content: bytes) -> list[str]:
    return [html.unescape(each.decode("utf-8", "replace")) for each in _LOCATION.findall(content)]


def variants_of(fields: Iterable[str]) -> list[dict[str, str]]:
    """The fields of each request for a URL: all combinations of the values of each name.

    Raises ValueError for what is no field.
    """
    named = dict[str, list[str]]()
    for field in fields:
        name, colon, value = field.partition(":")
        value = value.strip(" \t")
        if not (colon and name.isascii() and is_token(name.encode())) or not value.isprintable():
            raise ValueError(f'--header {field!r}: write "NAME: VALUE", such as "Accept-Encoding: br"')
        named.setdefault(name.title(), []).append(value)
    return [dict(zip(named, values, strict=True)) for values in itertools.product(*named.values())]
