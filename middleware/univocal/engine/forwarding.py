"""Forwarding to origin servers over HTTP, each request to the upstream of its route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from univocal.engine.flight import OriginRequest
from univocal.engine.upstream import Sender, Upstream
from univocal.http.errors import Failure
from univocal.http.roles import Answer, Asked, Content
from univocal.uri.target import origin_target

__all__ = ["Forwarding"]


class Forwarding:
    """Asks the origin servers that a request's route names (an `Origin`, see engine.flight).

    `upstreams` are by the name that routes call them; the one named "" serves every other route. Those of the
    runtime that a request began with go first: under the same name a reload may bring another. `failed` is
    told the site's name and the failure where an origin server does not answer, or not to the end.
    """

    __slots__ = ("_failed", "_upstreams")

    def __init__(
        self, upstreams: Mapping[str, Upstream], failed: Callable[[str, Failure], None] | None = None
    ) -> None:
        self._failed = failed
        self._upstreams = dict(upstreams)

    def ask(self, request: OriginRequest, content: Content | None, answer: Answer) -> Asked:
        """Send a request; its response is pushed to `answer`."""
        found, admission = request.canonical, request.admission
        upstreams = admission.runtime.upstreams or self._upstreams
        upstream = upstreams.get(found.route.upstream) or upstreams[""]
        received = admission.received
        sender = Sender(
            received.client, found.scheme, admission.peer.chain, received.version, received.upgrade
        )
        failed = None if self._failed is None else partial(self._failed, found.site.name)
        target = origin_target(found)
        return upstream.send(
            request.method, target, request.fields, sender, content, answer, failed, found.key
        )

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        for upstream in self._upstreams.values():
            for server in upstream.servers:
                await server.aclose()
