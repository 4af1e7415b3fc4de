"""Whom the admin listener answers: nobody but those who may purge (RFC 9110 §15.5.4)."""

from __future__ import annotations

from typing import Any, Final

from starlette.types import ASGIApp

from univocal.asgi.messages import send_problem
from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import received
from univocal.engine.purge import may_purge

__all__ = ["Permitted"]

# Balancers and orchestrators have no right, and nothing is in the answers. The third asks by itself, and
# tells the log of a purge that is refused.
_EXEMPT: Final = frozenset(("/-/health", "/-/ready", "/-/purge"))


class Permitted:
    """Refuses a request from whoever may not purge (403): what is shown tells what clients asked for."""

    def __init__(self, app: ASGIApp, proxy: CacheMiddleware) -> None:
        self._app, self._proxy = app, proxy

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] in _EXEMPT or self._may(scope):
            await self._app(scope, receive, send)
        else:
            await send_problem(send, ("purge-forbidden",), scope)

    def _may(self, scope: Any) -> bool:
        gate, fields = self._proxy.gate, list(scope["headers"])
        return may_purge(gate.sender(received(scope), fields), fields, gate.runtime)
