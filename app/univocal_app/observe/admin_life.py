"""The admin listener tells whether the program takes requests, and has it read its configuration again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from univocal.asgi.middleware import CacheMiddleware
from univocal.http.errors import ConfigurationError, UnivocalError
from univocal_app.observe.admin_drain import Drains
from univocal_app.observe.admin_problems import FRESH, failed


class NotTakenError(UnivocalError):
    """A new configuration is in force, but not in every process; it says in which it is not."""


async def _nothing_new() -> list[str]:
    return []


async def _nobody_else() -> None:
    pass


async def _nothing_drains(_: frozenset[str]) -> None:
    pass


@dataclass(frozen=True)
class Life:
    """The program behind the listener, as far as it is asked about here.

    `working` gives the number of processes that serve clients, `leaving` is true from the moment on at which
    the program was told to end. `reload` returns the keys that have changed; it raises ConfigurationError,
    and NotTakenError. `look` returns when the other processes have written down what they have counted.
    `drains` are the origin servers that are taken out.
    """

    working: Callable[[], int] = lambda: 1
    leaving: Callable[[], bool] = lambda: False
    reload: Callable[[], Awaitable[list[str]]] = _nothing_new
    look: Callable[[], Awaitable[None]] = _nobody_else
    drains: Drains = field(default_factory=lambda: Drains(_nothing_drains))

    async def answer_ready(self, proxy: CacheMiddleware, _: Request) -> Response:
        """Tell a balancer whether to send clients here."""
        # The listeners are bound before any answers, and the configuration was whole before that.
        if self.leaving():
            return PlainTextResponse("about to end\n", 503, headers=FRESH)
        if not self.working():
            return PlainTextResponse("no worker is there to serve clients\n", 503, headers=FRESH)
        detached, text = proxy.tiers.detached_ttl, "ready\n"
        if detached is not None:
            # Clients are answered all the same: were this no readiness, all nodes would go with one Redis.
            text = f"ready, without the shared store: memory alone, {detached:g} seconds a response\n"
        return PlainTextResponse(text, headers=FRESH)

    async def answer_reload(self, request: Request) -> Response:
        """Have the configuration read again: what has changed, or all that is wrong with it."""
        try:
            changed = await self.reload()
        except ConfigurationError as error:
            return _refused(error, request)
        except NotTakenError as error:
            return failed(503, str(error), request)
        return JSONResponse({"reloaded": True, "changed": changed}, headers=FRESH)


def _refused(error: ConfigurationError, request: Request) -> Response:
    errors = [
        {"detail": str(each), "key": each.key, "file": each.source, "line": each.line}
        for each in (error, *error.beside)
    ]
    return failed(422, "\n".join(str(each["detail"]) for each in errors), request, {"errors": errors})
