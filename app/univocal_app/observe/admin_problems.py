"""Errors of the admin listener: problem details (RFC 9457), or HTML for who prefers it (RFC 9110 §12.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html import escape
from types import MappingProxyType
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from univocal.http.errors import RefusedError, lacks_memory
from univocal.http.messages import PHRASES, prefers_html
from univocal.http.problem import Problem, fault, page, problem

FRESH: Final = {"cache-control": "no-store"}


def refusal(refused: RefusedError, request: Request, request_id: bytes = b"") -> Response:
    """The answer to a request that is refused for reasons of the table."""
    return _response(problem(refused.reasons, request.scope["headers"], request_id=request_id))


def bad_request(detail: str, request: Request, request_id: bytes = b"") -> Response:
    """The answer to a request that cannot be understood (400)."""
    return failed(400, detail, request, request_id=request_id)


def failed(
    status: int,
    detail: str,
    request: Request,
    more: Mapping[str, object] = MappingProxyType({}),
    fields: Mapping[str, str] = MappingProxyType({}),
    request_id: bytes = b"",
) -> Response:
    """The answer to a request that fails otherwise, in these words; `more` are members of the problem."""
    fresh = {**FRESH, **fields, "vary": "Accept"}
    if prefers_html(request.scope["headers"]):
        text = escape(detail).encode("ascii", "xmlcharrefreplace").decode("ascii")
        response = _response(page(status, text.replace("\n", "<br>\n")).identified(request_id))
        response.headers.update(fresh)
        return response
    problem = {"type": "about:blank", "title": PHRASES[status], "status": status, "detail": detail, **more}
    if request_id:
        problem["request_id"] = request_id.decode()
    content = json.dumps(problem, separators=(",", ":")) + "\n"
    return Response(content, status, fresh, "application/problem+json")


def _response(answer: Problem) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers = list(answer.fields)
    return response


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = dict(error.headers or {})
    known = {
        404: "There is nothing under this path.",
        405: f"This path takes only {allowed.get('Allow', 'other methods')}.",
    }
    return failed(error.status_code, known.get(error.status_code, error.detail), request, {}, allowed)


async def _fault(request: Request, error: Exception) -> Response:
    if lacks_memory(error):
        return refusal(RefusedError("overloaded"), request)
    return _response(fault(request.scope["headers"]))


async def _refuse(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, RefusedError)
    return refusal(refused, request)


async def _leave(_: Request, __: Exception) -> Response:
    """Return an empty response: the client has left."""
    return Response()


class Sparing:
    """An application that answers that memory has run out, if it has, as any error; `relieve` frees some."""

    def __init__(self, app: ASGIApp, relieve: Callable[[], None]) -> None:
        self._app, self._relieve = app, relieve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if not lacks_memory(error):
                raise
            self._relieve()


HANDLERS: Final = {
    HTTPException: _no_such,
    RefusedError: _refuse,
    ClientDisconnect: _leave,
    Exception: _fault,
}
