"""Forwarding to origin servers over HTTP, each request to the upstream of its route."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from univocal.engine.attempt import Watch
from univocal.engine.roles import OriginRequest
from univocal.engine.upstream import Sender, Upstream
from univocal.http.roles import Answer, Asked, Content
from univocal.uri.target import origin_target

__all__ = ["Forwarding"]


class Forwarding:
    """Asks the origin servers that a request's route names (an `Origin`, see engine/roles.py).

    `upstreams` are by the name that routes call them; the one named "" serves every other route. Those of the
    runtime that a request began with go first: under the same name a reload may bring another. `watch` gives
    who watches a request on its way.
    """

    __slots__ = ("_upstreams", "_watch")

    def __init__(
        self, upstreams: Mapping[str, Upstream], watch: Callable[[OriginRequest], Watch] | None = None
    ) -> None:
        self._watch = watch
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
        watch = None if self._watch is None else self._watch(request)
        target = origin_target(found)
        return upstream.send(
            request.method, target, request.fields, sender, content, answer, watch, found.key
        )

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        for upstream in self._upstreams.values():
            await upstream.aclose()
