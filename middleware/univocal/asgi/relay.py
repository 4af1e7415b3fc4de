"""A request of an ASGI scope that is relayed to an origin server, and its answer, which no cache looks at."""

from __future__ import annotations

from univocal.asgi.client import ScopeClient
from univocal.asgi.messages import Scope
from univocal.asgi.scope import CANONICAL, request_line
from univocal.http.errors import RefusedError
from univocal.http.fields import first
from univocal.http.messages import Fields, Response
from univocal.http.problem import fault, problem
from univocal.http.references import ReferenceMap
from univocal.http.roles import Content, OriginRequest, UnderWay
from univocal.uri.target import Canonical, origin_target, reference_map


def relayed_request(
    method: bytes, scope: Scope, fields: Fields, content: Content | None = None, upgrade: bytes = b""
) -> OriginRequest:
    """The request of a scope, as a cache in front has found it or as the server has received it.

    A hash chooses the origin server by the cache's key, or by the target.
    """
    passed = scope.get("extensions", {}).get(CANONICAL)
    line = request_line(scope)
    line.upgrade = upgrade
    target = key = line.target
    chain: tuple[bytes, ...] = ()
    if passed is None:
        references: ReferenceMap | None = ReferenceMap(line.scheme, first(scope["headers"], b"host") or b"")
    else:
        canonical: Canonical = passed["canonical"]
        line.client, chain = passed["peer"], passed["chain"]
        target, key, references = origin_target(canonical), canonical.key, reference_map(canonical)
    return OriginRequest(
        method, target, fields, line, content,
        scheme=line.scheme, chain=chain, key=key, references=references, screened=passed is not None,
    )  # fmt: skip


class Relay:
    """An answer that goes straight to the client of a scope.

    `error` is to be raised: for the cache in front to answer, or for the server to log what is a fault.
    """

    def __init__(self, client: ScopeClient, request_fields: Fields, *, behind_a_cache: bool) -> None:
        self.fetches = False
        self.under_way: UnderWay | None = None
        self.error: Exception | None = None
        self._client, self._fields = client, request_fields
        self._behind_a_cache = behind_a_cache
        self._started = False
        self._over = False

    def interim(self, status: int, fields: Fields) -> None:
        self._client.interim(status, fields)

    def start(self, response: Response) -> None:
        self._started = True
        self._client.start(response.status, response.fields)

    def write(self, chunk: bytes) -> bool:
        return self._client.write(chunk)

    def finish(self) -> None:
        self._over = True
        self._client.finish()

    def fail(self, error: Exception) -> None:
        self._over = True
        if self._behind_a_cache:
            self.error = error  # the cache may have something stale to serve
            self._client.cut()
            return
        if isinstance(error, RefusedError):
            answer = problem(error.reasons, self._fields)
        else:
            answer, self.error = fault(self._fields), error
        if self._started:
            self._client.cut()
            return
        self._client.start(answer.status, answer.fields)
        self._client.write(answer.body)
        self._client.finish()

    def resume(self) -> None:
        """Read more from the origin server: the client takes it."""
        if self.under_way is not None:
            self.under_way.resume()

    def cancel(self) -> None:
        """Give up: the client has left."""
        if not self._over:
            self._over = True
            self._client.cut()
            if self.under_way is not None:
                self.under_way.cancel()
