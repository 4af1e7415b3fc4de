"""The cache's handling of a request, as Cache-Status says it (RFC 9211)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from univocal.cache.decide import Reuse
from univocal.http.grammar import quoted
from univocal.http.messages import Field
from univocal.uri.target import Canonical

__all__ = ["Handling", "cache_status"]


class Handling(NamedTuple):
    """The cache's handling of a request: the parameters of its Cache-Status member (RFC 9211 §2)."""

    hit: bool = False
    fwd: str = ""  # why the request went to the origin
    fwd_status: int = 0  # the origin's status, where it is not the one the client sees
    stored: bool = False
    collapsed: bool = False
    ttl: int | None = None  # seconds the response stays fresh; negative: stale for so long
    detail: str = ""  # a reason of errors.REASONS, or why something stored answers
    unstorable: str = ""  # a token: what kept the origin's response from being stored

    @property
    def reported_detail(self) -> str:
        """The detail, as far as `fwd` does not say it already; "" if there is none."""
        return self.detail or (self.unstorable if self.unstorable != self.fwd else "")

    @classmethod
    def of_hit(cls, decision: Reuse, detail: str = "") -> Handling:
        """The handling of a stored response that is served as it is."""
        return cls(hit=True, ttl=int(decision.stored.lifetime - decision.age), detail=detail)


def cache_status(
    handling: Handling, canonical: Canonical | None, mode: Literal["plain", "key", "off"]
) -> list[Field]:
    """The Cache-Status field for a response: a list of one field, or of none (RFC 9211).

    No parameter holds a byte of the client's but `key`, which is canonical: visible ASCII.
    """
    if mode == "off":
        return []
    if mode == "key" and canonical is not None and not canonical.observed:
        return [(b"cache-status", _member(handling, b"; key=" + quoted(canonical.url)))]
    return [(b"cache-status", _plain_member(handling))]


def _member(handling: Handling, key: bytes = b"") -> bytes:
    member = b"univocal"
    if handling.hit:
        member += b"; hit"
    if handling.fwd:
        member += b"; fwd=%b" % handling.fwd.encode()
    if handling.fwd_status:
        member += b"; fwd-status=%d" % handling.fwd_status
    if handling.stored:
        member += b"; stored"
    if handling.collapsed:
        member += b"; collapsed"
    if handling.ttl is not None:
        member += b"; ttl=%d" % handling.ttl
    member += key
    if detail := handling.reported_detail:
        member += b"; detail=%b" % detail.encode()
    return member


_plain_member: Final = lru_cache(maxsize=1024)(_member)
