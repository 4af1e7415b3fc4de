"""A protocol class for uvicorn's `http` setting that hands over the target as it was received.

    uvicorn --http univocal.protocol:ExactProtocol module:application

llhttp, by httptools, reads the heads; `univocal.http.framing` decides what that leaves open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from univocal.http.framing import ReadLimits
from univocal.http.messages import Received
from univocal.server.asgi_service import AsgiService
from univocal.server.bounds import READ_LIMITS
from univocal.server.clients import Clients
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import Listener
from univocal.server.roles import ServerState


class ExactProtocol(Http1Connection):
    """HTTP/1.1 for an ASGI application: exact about targets, strict about framing, with limits and reasons.

    An application finds the received target in scope["extensions"]["univocal.target"]["target"]: with its
    fragment, in absolute-form, in asterisk-form. `path`, `raw_path` and `query_string` are without the
    fragment. The authority of an absolute-form replaces `Host` (RFC 9112 §3.2.2), so an application that
    reads nothing else is safe too. Before its response it may send interim ones: see the extensions
    "http.response.informational" and "http.response.early_hint".
    """

    __slots__ = ()

    def __init__(
        self,
        config: Any,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ReadLimits = READ_LIMITS,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        service = AsgiService(config, server_state, app_state)
        listener = Listener(service, limits, tell, clients)
        super().__init__(listener, config, server_state, app_state, _loop)

    @classmethod
    def with_limits(
        cls,
        limits: ReadLimits,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
    ) -> type[asyncio.Protocol]:
        """A protocol for uvicorn's `http` with these limits: a factory, since a new class cannot be pickled.

        `tell` hears of each request that no application will: all that is known of it, and the reasons.
        `clients` are those of one listener, whose number is bounded.
        """
        return cast("type[asyncio.Protocol]", partial(cls, limits=limits, tell=tell, clients=clients))
