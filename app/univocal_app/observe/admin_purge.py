"""Purges at the admin listener by name, `POST /-/purge`, and what one would remove."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import request_line
from univocal.engine.outcome import NotedFields, Outcome, Purged, Times, carry_out, foresee
from univocal.http.errors import RefusedError
from univocal.http.messages import EXTENSION
from univocal.judge.orders import may_purge, ordered
from univocal_app.observe.admin_door import Hosts
from univocal_app.observe.admin_problems import FRESH, bad_request, refusal
from univocal_app.observe.explain import Url

logger: Final = logging.getLogger("univocal")
REFETCH_RATE: Final = 20  # requests a second, at most
MAX_PURGE: Final = 4 * 2**20  # bytes of a purge request's content


async def purge(cache: CacheMiddleware, hosts: Hosts, request: Request) -> Response:
    """Carry out what the request's content names, if its sender may; the cache's listeners hear of it."""
    begun, ticks = time.time(), time.perf_counter()
    gate, said, fields = cache.gate, request_line(request.scope), list(request.scope["headers"])
    peer, purged, reasons = gate.sender(said, fields), None, tuple[str, ...]()
    if gate.runtime.request_ids is not None:
        gate.runtime.request_ids.identify(said, fields)
    try:
        if not may_purge(peer, fields, gate.runtime.purging, hosts.names):
            raise RefusedError("purge-forbidden")
        if not hosts.has(request.scope):
            raise RefusedError("unknown-host")
        document = await content_of(request)
        again = _to_refetch(document)
        purged = Purged(await ordered(document, gate.runtime))
        purged = await carry_out(purged.order, cache.tiers, time.time())
        if again:
            task = asyncio.get_running_loop().create_task(_refetch(cache, again))
            cache.engine.tasks.add(task)
            task.add_done_callback(cache.engine.tasks.discard)
        response = Response(purged.body(), media_type="application/json", headers=FRESH)
    except RefusedError as refused:
        response, reasons = refusal(refused, request, said.request_id), refused.reasons
    except (ValueError, RecursionError) as error:
        response = bad_request(str(error), request, said.request_id)
    except ClientDisconnect:  # before it had said what to purge
        response = None
    status, octets = (0, 0) if response is None else (response.status_code, len(response.body))
    seconds = time.perf_counter() - ticks
    times = Times(begun, seconds, seconds)
    noted = NotedFields.of(fields)
    outcome = Outcome.of_purge(said, purged, status, octets, times, peer.client, reasons, noted)
    cache.engine.audience.announce(outcome)
    return response or Response()


def _to_refetch(document: dict[str, object]) -> list[str]:
    """The URLs that are to be stored again; `refetch` goes from the document. Raises ValueError."""
    refetch = document.pop("refetch", False)
    if not isinstance(refetch, bool):
        raise ValueError(f"refetch: found {refetch!r}; allowed: true or false")
    urls = document.get("urls", [document.get("url")])
    if not refetch:
        return []
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise ValueError("refetch: found true; allowed: false without url or urls")
    return [url for url in urls if isinstance(url, str)]


async def _refetch(cache: CacheMiddleware, urls: Sequence[str]) -> None:
    """Ask for each URL as a client of whom nothing is known does, one after the other."""
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()  # for ever: no client leaves
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        """Take nothing down: the response is for the store."""

    for url in urls:
        begun = time.monotonic()
        parsed = Url.parse(url)
        path, _, query = parsed.origin_form.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "root_path": "",
            "client": None,
            "server": None,
            "scheme": parsed.scheme.decode("latin-1"),
            "path": unquote_to_bytes(path).decode("utf-8", "replace"),
            "raw_path": path,
            "query_string": query,
            "headers": [(b"host", parsed.authority), (b"user-agent", b"univocal")],
            "extensions": {EXTENSION: {"target": parsed.origin_form}},
        }
        try:
            await cache(scope, receive, send)
        except Exception:
            logger.exception("%s could not be requested again", url)
        await asyncio.sleep(begun + 1 / REFETCH_RATE - time.monotonic())


async def preview(cache: CacheMiddleware, request: Request) -> Response:
    """Tell how many stored responses the purge that the request's content names would mean."""
    try:
        order, count = await foresee(await content_of(request), cache.gate.runtime, cache.tiers)
    except (ValueError, RecursionError) as error:
        return bad_request(str(error), request)
    selectors = (order.selector, *order.also)
    exact = {} if all(map(cache.tiers.counts, selectors)) else {"exact": False}
    return JSONResponse({"would_purge": count, **exact, **order.members}, headers=FRESH)


async def content_of(request: Request) -> dict[str, object]:
    """The JSON object in a request. Raises RefusedError, ValueError, RecursionError, ClientDisconnect."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_PURGE:
            raise RefusedError("body-too-large")
    try:
        document = json.loads(content)  # a JSONDecodeError is a ValueError
    except UnicodeDecodeError:  # its message has bytes of the content in it
        raise ValueError("the content is not in a Unicode encoding") from None
    if not isinstance(document, dict):
        raise ValueError("the content is not a JSON object")
    return document
