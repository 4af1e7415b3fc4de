"""One origin server: its URL, the transport that reaches it, and what its failures are called."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from univocal.http.errors import ConfigurationError, RefusedError
from univocal.http.messages import Fields, Response

__all__ = ["Timeouts", "Upstream"]

Interim = Callable[[int, Fields], None]

# httpx's own tree, the special before the general.
REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (httpx.PoolTimeout, "overloaded"),
    (httpx.TimeoutException, "origin-timeout"),
    (httpx.LocalProtocolError, "bad-target"),
    (httpx.RemoteProtocolError, "origin-bad-response"),
    (httpx.TransportError, "origin-unreachable"),
)


# Scheme, authority and path; nothing that a request line could not hold (RFC 9112 §3).
_URL: Final = re.compile(r"(https?)://([^/?#@\s]+)((?:/[^?#\x00-\x20\x7F-\U0010FFFF]*)?)")
# An absolute-form's scheme and authority, which a path cannot stand before.
_ABSOLUTE: Final = re.compile(rb"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for the origin server; `read` and `write` are between two reads or writes."""

    connect: float = 5.0
    read: float = 60.0
    write: float = 60.0
    pool: float = 5.0


class Content(httpx.AsyncByteStream):
    """A request's content on its way through."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


class Upstream:
    """An origin server by its URL.

    `authority` is what it is called by in `Host`; `path`, as it was written, stands before every target.
    Raises ConfigurationError for what is no such URL.
    """

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport | None = None, timeouts: Timeouts | None = None
    ) -> None:
        written = _URL.fullmatch(url)
        try:
            self._root = httpx.URL(f"{written[1]}://{written[2]}/") if written else httpx.URL("")
        except httpx.InvalidURL:
            self._root = httpx.URL("")
        if written is None or not self._root.host or not 0 < (self._root.port or 80) < 65536:
            allowed = "http://HOST[:PORT][/PATH] or https://…, without user, query and fragment"
            raise ConfigurationError("upstream", "", url, allowed)
        self.url = url
        self.authority = self._root.netloc
        self.path = (written[3] or "").rstrip("/").encode()
        self._transport = transport or httpx.AsyncHTTPTransport(
            trust_env=False, limits=httpx.Limits(max_connections=1000, max_keepalive_connections=None)
        )
        each = timeouts or Timeouts()
        self._timeout = {"connect": each.connect, "read": each.read, "write": each.write, "pool": each.pool}

    def mapped(self, target: bytes) -> bytes:
        """`target` below this URL's path, where there is one; the asterisk-form stays."""
        if not self.path or target == b"*":
            return target
        path = _ABSOLUTE.sub(b"", target)
        return self.path + (path if path.startswith(b"/") else b"/" + path)

    @asynccontextmanager
    async def forward(
        self,
        method: bytes,
        target: bytes,
        fields: Fields,
        content: AsyncIterator[bytes] | None,
        interim: Interim | None = None,
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Send a request, its target byte for byte; gives the response's head, and its content as it comes.

        Raises RefusedError (also from the content's iterator): origin-unreachable, origin-timeout,
        origin-bad-response, overloaded, or bad-target for what no request line can hold.
        """
        extensions: dict[str, Any] = {"target": target, "timeout": self._timeout}
        if interim is not None:
            extensions["informational"] = interim
        request = httpx.Request(
            method.decode("latin-1"),
            self._url(target),
            headers=fields,
            stream=Content(content) if content is not None else httpx.ByteStream(b""),
            extensions=extensions,
        )
        request.method = method.decode("latin-1")  # methods are case-sensitive (RFC 9110 §9.1): not to httpx
        try:
            response = await self._transport.handle_async_request(request)
        except httpx.TransportError as error:
            raise _refused(error) from error
        try:
            if response.status_code > 599:  # RFC 9110 §15: a status code is from 100 to 599
                raise RefusedError("origin-bad-response")
            raw = [(name.lower(), value) for name, value in response.headers.raw]
            yield Response(response.status_code, raw), _content(response)
        finally:
            await response.aclose()

    def _url(self, target: bytes) -> httpx.URL:
        # For test doubles and logs alone: URL classes respell paths, so transports that send take the target.
        if not getattr(self._transport, "wants_url", True):
            return self._root
        try:
            return self._root.copy_with(raw_path=target)
        except httpx.InvalidURL:
            return self._root

    async def aclose(self) -> None:
        """Close every connection to the origin server."""
        await self._transport.aclose()


async def _content(response: httpx.Response) -> AsyncIterator[bytes]:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    try:
        async for chunk in response.stream:
            yield chunk
    except httpx.TransportError as error:
        raise _refused(error) from error


def _refused(error: httpx.TransportError) -> RefusedError:
    return RefusedError(next(reason for kind, reason in REASONS if isinstance(error, kind)))
