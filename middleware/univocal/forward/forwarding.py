"""Forwarding to origin servers over HTTP, each request to the upstream of its route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from univocal.forward.upstream import Upstream
from univocal.http.roles import Answer, OriginRequest, UnderWay, Watch


class Forwarding:
    """Asks the origin servers that a request's route names (an `Origin`, see http/roles.py).

    `upstreams` are by the name that routes call them; the one named "" serves every other route. Those of the
    runtime that a request began with go first: under the same name a reload may bring another. `watch` gives
    who watches a request on its way.
    """

    __slots__ = ("_upstreams", "_watch", "takes_targets")

    def __init__(
        self, upstreams: Mapping[str, Upstream], watch: Callable[[OriginRequest], Watch] | None = None
    ) -> None:
        self.takes_targets: Final = True
        self._watch = watch
        self._upstreams = dict(upstreams)

    def ask(self, request: OriginRequest, answer: Answer) -> UnderWay:
        """Send a request; its response is pushed to `answer`."""
        next_hop = request.next_hop or self._upstreams.get(request.upstream) or self._upstreams[""]
        return next_hop.send(request, answer, None if self._watch is None else self._watch(request))

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        for upstream in self._upstreams.values():
            await upstream.aclose()
