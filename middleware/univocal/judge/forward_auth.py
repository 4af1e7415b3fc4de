"""Forward authentication: another server decides by the head of each request whether it may go on.

Nothing here waits: a request about which nothing is known yet is a `Question`, which somebody else asks. The
server gets a GET with the request's fields, without its content. A 2xx grants access; any other answer is the
client's. No answer, a malformed or a huge one, is a refusal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from univocal.cache.personal import ORDINARY, PERSONAL
from univocal.http.errors import RefusedError
from univocal.http.field_edits import FieldEdits
from univocal.http.intermediary import AS_CGI_READS
from univocal.http.messages import Fields, Received, Response, first, values, without
from univocal.http.roles import Origin, OriginRequest, UnderWay
from univocal.judge.trust import Peer
from univocal.uri.target import Canonical

# Fields of the content that does not go along, and those that would get another answer than a full one.
_LEFT_OUT: Final = frozenset(
    b"content-encoding content-length content-range expect http2-settings if-match if-modified-since "
    b"if-none-match if-range if-unmodified-since max-forwards range trailer transfer-encoding "
    b"upgrade".split()
)
_MOST_GRANTS: Final = 4096  # that are remembered
_MOST_FIELDS: Final = 16 * 1024  # bytes of the fields that go on to the origin server
_MOST_CONTENT: Final = 256 * 1024  # bytes of an answer for the client
_UNAVAILABLE: Final = "authorization-unavailable"


class Grant(NamedTuple):
    """The access of one request: the fields that go on, None for those that the answer lacks.

    `user` is the value of the first of them. Responses are kept for `whose` requests alone.
    """

    fields: dict[bytes, bytes | None]
    user: bytes
    whose: bytes


class Answered(NamedTuple):
    """The answer of the authorization server, which is the client's."""

    status: int
    fields: Fields
    body: bytes


Ruling: TypeAlias = Grant | Answered | RefusedError


class ForwardAuth:
    """A server that decides about requests, and what it has granted in the last `ttl` seconds.

    It is asked for `target`. The fields called `names` of a 2xx go on to the origin server. Without a
    `next_hop` it can only be asked in vain.
    """

    __slots__ = ("_granted", "names", "next_hop", "read", "target", "ttl")

    def __init__(
        self, next_hop: Origin | None, target: bytes, names: Sequence[bytes] = (), ttl: float = 0.0
    ) -> None:
        self.next_hop = next_hop
        self.target = target
        self.names = tuple(names)
        # Credentials are what the server is to look at, though its own may go on in their place.
        self.read = frozenset([name.translate(AS_CGI_READS) for name in names if name not in PERSONAL])
        self.ttl = ttl
        self._granted: OrderedDict[bytes, tuple[float, Grant]] = OrderedDict()

    def known(self, question: Question) -> Grant | None:
        """The access that was granted to a request with the same credentials for the same URL, if any."""
        granted = self._granted.get(question.digest)
        if granted is None or not 0 <= question.now - granted[0] < self.ttl:
            return None
        return granted[1]

    def remember(self, question: Question, grant: Grant) -> None:
        """Remember what was granted, from the time of the question on."""
        if self.ttl:
            self._granted[question.digest] = question.now, grant
            self._granted.move_to_end(question.digest)
            if len(self._granted) > _MOST_GRANTS:
                self._granted.popitem(last=False)

    def grant(self, credentials: Sequence[bytes], response: Response) -> Grant | None:
        """The access that a 2xx grants; None if its fields are too large."""
        fields = dict[bytes, bytes | None]()
        size, user = 0, b""
        for name in self.names:
            lines = [value for value in values(response.fields, name) if value]
            fields[name] = b", ".join(lines) if lines else None
            size += sum(map(len, lines))
            user = user or (fields[name] or b"" if name not in PERSONAL else b"")
        if size > _MOST_FIELDS:
            return None
        chosen = [b"%b:%b" % (name, value) for name, value in fields.items() if value is not None]
        whose = [b"granted", *chosen] if chosen else [b"sent", *credentials]
        # No name of `basic` has a colon, and this begins with one.
        return Grant(fields, user, b":" + blake2b(b"\n".join(whose), digest_size=16).hexdigest().encode())


class Question:
    """A request about which a server is to decide, and the answer as it comes (an `Answer`, http/roles.py).

    `now` is the time at which the request came, of a clock that is never set back.
    """

    __slots__ = (
        "_body", "_canonical", "_credentials", "_fields", "_peer", "_received", "_response", "_server",
        "_settled", "_size", "_under_way", "digest", "now",
    )  # fmt: skip

    def __init__(
        self,
        server: ForwardAuth,
        received: Received,
        fields: Fields,
        peer: Peer,
        canonical: Canonical,
        now: float,
    ) -> None:
        self._server = server
        self._received = received
        self._fields = sent = [
            field
            for field in fields
            if field[0] not in _LEFT_OUT
            and field[0] != b"host"
            and field[0].translate(AS_CGI_READS) not in server.read
        ]
        self._peer = peer
        self._canonical = canonical
        self.now = now
        # Authorization, Cookie and any field that browsers do not send tell this client from others.
        self._credentials = [b"%b:%b" % field for field in sent if field[0] not in ORDINARY]
        client = (peer.client or "").encode("utf-8", "replace")
        asked = [received.method, canonical.url, client, received.upgrade, *self._credentials]
        self.digest = blake2b(b"\n".join(asked), digest_size=16).digest()
        self._settled: Callable[[Ruling], None] | None = None
        self._response: Response | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._under_way: UnderWay | None = None

    def ask(self, settled: Callable[[Ruling], None]) -> UnderWay | None:
        """Have the server decide; `settled` is called once, perhaps before this returns. None: it is over."""
        self._settled, next_hop = settled, self._server.next_hop
        if next_hop is None:
            self._settle(RefusedError(_UNAVAILABLE))
            return None
        self._under_way = under_way = next_hop.ask(self._request(), self)
        if self._size > _MOST_CONTENT:
            under_way.cancel()
        return None if self._settled is None else under_way

    def _request(self) -> OriginRequest:
        """The request to the authorization server: it names the client, the method and the canonical URL."""
        canonical, received, target = self._canonical, self._received, self._server.target
        line = Received(b"GET", target, received.scheme, received.client, received.version)
        fields = [(b"host", canonical.authority), *self._fields]
        request = OriginRequest(
            b"GET", target, fields, line, scheme=canonical.scheme, chain=self._peer.chain, key=self.digest
        )
        # The request's own method and URL, as servers for Traefik read them, and those for nginx.
        client = (self._peer.client or "").partition("%")[0]
        request.edits = FieldEdits(
            {
                b"x-forwarded-method": received.method,
                b"x-forwarded-uri": canonical.target,
                b"x-original-method": received.method,
                b"x-original-uri": canonical.target,
                b"x-original-url": canonical.url,
                b"x-real-ip": client.encode("ascii", "ignore") or None,
            }
        )
        return request

    # Called by the server's connection

    def interim(self, status: int, fields: Fields) -> None:
        """Take no notice: the client gets the final answer."""

    def start(self, response: Response) -> None:
        if not 200 <= response.status < 300:
            self._response = response
            return
        grant = self._server.grant(self._credentials, response)
        if grant is None:
            self._settle(RefusedError(_UNAVAILABLE))
            return
        self._server.remember(self, grant)
        self._settle(grant)

    def write(self, chunk: bytes) -> bool:
        self._size += len(chunk)
        if self._size > _MOST_CONTENT:
            self._body.clear()
            self._settle(RefusedError(_UNAVAILABLE))
            under_way, self._under_way = self._under_way, None
            if under_way is not None:
                under_way.cancel()
        elif self._response is not None:
            self._body.append(chunk)
        return True

    def finish(self) -> None:
        response = self._response
        if response is not None:
            self._settle(_for_client(response, b"".join(self._body)))

    def fail(self, error: Exception) -> None:
        refused = RefusedError(_UNAVAILABLE)
        if isinstance(error, RefusedError):
            refused.failure, refused.seconds = error.failure, error.seconds
        self._settle(refused)

    def _settle(self, ruling: Ruling) -> None:
        settled, self._settled = self._settled, None
        if settled is not None:
            settled(ruling)


def _for_client(response: Response, body: bytes) -> Answered:
    """The answer of an authorization server as the client gets it, which no other cache is to store."""
    fields = without(response.fields, (b"content-length",))
    if first(fields, b"cache-control") is None:
        fields = [*fields, (b"cache-control", b"no-store")]
    if response.status != 304:
        fields = [*fields, (b"content-length", b"%d" % len(body))]
    return Answered(response.status, fields, body)
