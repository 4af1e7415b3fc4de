"""The admin listener answers nobody but those who may purge (RFC 9110 §15.5.4)."""

from __future__ import annotations

from typing import Any, Final

from starlette.types import ASGIApp

from univocal.asgi.messages import send_problem
from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.scope import request_line
from univocal.http.accept import prefers_html
from univocal.judge.orders import may_purge
from univocal_app.observe.admin_hosts import Hosts
from univocal_app.observe.admin_page import ASSETS, locked

# Balancers and orchestrators have no right, and nothing is in the answers. The third asks by itself, and
# tells the log of a purge that is refused.
_EXEMPT: Final = frozenset(("/-/health", "/-/ready", "/-/purge"))

_READ: Final = frozenset(("GET", "HEAD"))


class Permitted:
    """Refuses a request from whoever may not purge (403): what is shown tells what clients asked for.

    The page's files are everybody's: they are those of the package. With them a browser asks its reader for
    the token, which it cannot send when it asks for a document.
    """

    def __init__(self, app: ASGIApp, proxy: CacheMiddleware, hosts: Hosts) -> None:
        self._app, self._proxy, self._hosts = app, proxy, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or _is_everybodys(scope["path"]) or self._may(scope):
            await self._app(scope, receive, send)
        elif scope["path"] == "/" and scope["method"] in _READ and prefers_html(scope["headers"]):
            await locked()(scope, receive, send)
        else:
            await send_problem(send, ("purge-forbidden",), scope)

    def _may(self, scope: Any) -> bool:
        gate, fields = self._proxy.gate, list(scope["headers"])
        if scope["method"] in _READ and (b"sec-fetch-mode", b"navigate") in fields:
            # A link on another site leads here: that site reads nothing of what its reader is shown.
            fields = [field for field in fields if field[0] != b"sec-fetch-site"]
        return may_purge(gate.sender(request_line(scope), fields), fields, gate.runtime, self._hosts.names)


def _is_everybodys(path: str) -> bool:
    return path in _EXEMPT or path.startswith(ASSETS)
