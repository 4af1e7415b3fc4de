"""`POST /-/origins/drain` and `/-/origins/enable`: take an origin server out, and put it back."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from univocal_app.observe.admin_problems import FRESH, bad_request, failed
from univocal_app.observe.origin_states import OriginStates

logger: Final = logging.getLogger("univocal")

LONGEST: Final = 4096  # bytes of a request's content


class Drains:
    """The origin servers that are taken out, by scheme and authority; `set_in_force` tells all processes."""

    def __init__(self, set_in_force: Callable[[frozenset[str]], Awaitable[None]]) -> None:
        self.urls: frozenset[str] = frozenset()
        self._set_in_force = set_in_force
        self.lock = asyncio.Lock()

    async def change(self, urls: frozenset[str]) -> None:
        """Have these taken out from now on, in every process."""
        self.urls = urls
        await self._set_in_force(urls)


class Draining:
    """The two endpoints."""

    def __init__(self, states: OriginStates, drains: Drains) -> None:
        self._states, self._drains = states, drains

    async def drain(self, request: Request) -> Response:
        """Give an origin server no new request; 409 for the last of its upstream that is up."""
        return await self._answer(request, enable=False)

    async def enable(self, request: Request) -> Response:
        """Give an origin server requests again."""
        return await self._answer(request, enable=True)

    async def _answer(self, request: Request, *, enable: bool) -> Response:
        try:
            url = await _url(request)
        except (ValueError, RecursionError) as error:
            return bad_request(str(error), request)
        except ClientDisconnect:
            return Response()
        drains = self._drains
        async with drains.lock:
            servers = self._states.servers(url)
            if not servers:
                return failed(
                    404, f"no origin server has the URL {url}; configured: {self._states.known()}", request
                )
            urls = drains.urls - servers if enable else drains.urls | servers
            if not enable and (site := self._states.left_alone(urls)):
                return failed(409, f"no other origin server of {site} is up and takes requests", request)
            if urls != drains.urls:
                await drains.change(urls)
                for server in sorted(servers):
                    logger.warning("%s is %s by an operator", server, "enabled" if enable else "drained")
        rows = [each for each in await self._states.document() if each["url"].startswith(tuple(servers))]
        return JSONResponse({"enabled" if enable else "drained": url, "origins": rows}, headers=FRESH)


async def _url(request: Request) -> str:
    """The URL in a request's content. Raises ValueError, RecursionError, ClientDisconnect."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > LONGEST:
            raise ValueError(f"more than {LONGEST} bytes of content")
    document = json.loads(content)
    url = document.get("url") if isinstance(document, dict) else None
    if not isinstance(url, str) or len(document) > 1:
        raise ValueError('the content must be a JSON object with one member, the "url" of an origin server')
    return url
