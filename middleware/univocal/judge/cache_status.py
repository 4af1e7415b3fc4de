"""The cache's handling of a request, as Cache-Status says it (RFC 9211)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from univocal.cache.decide import Reuse
from univocal.cache.stored import Stored
from univocal.http.grammar import quoted
from univocal.http.messages import Fields
from univocal.uri.target import Canonical

Mode: TypeAlias = Literal["plain", "key", "off"]
"""The form of the field: without the key, with it, or no field."""


@dataclass(slots=True)
class Handling:
    """The cache's handling of a request: the parameters of its Cache-Status member (RFC 9211 §2).

    Immutable by convention. `reported_detail` is the detail as far as `fwd` does not say it already. `plain`
    remembers its Cache-Status field without a key.
    """

    hit: bool = False
    fwd: str = ""  # why the request went to the origin
    fwd_status: int = 0  # the origin's status, where it is not the one the client sees
    stored: bool = False
    collapsed: bool = False
    ttl: int | None = None  # seconds the response stays fresh; negative: stale for so long
    detail: str = ""  # a reason of errors.REASONS, or why something stored answers
    unstorable: str = ""  # a token: what kept the origin's response from being stored
    reported_detail: str = field(default="", init=False, repr=False, compare=False)
    plain: Fields | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.reported_detail = self.detail or (self.unstorable if self.unstorable != self.fwd else "")


def handling_of_hit(decision: Reuse, detail: str = "") -> Handling:
    """The handling of a stored response that is served as it is."""
    return hit_for(ttl_of(decision.stored, decision.age), detail)


def ttl_of(stored: Stored, age: int) -> int:
    """The seconds for which a stored response of this age stays fresh."""
    return int(stored.fresh_until - stored.born - age)


# Most requests are handled like earlier ones: equal handlings are one object.


@lru_cache(maxsize=1024)
def hit_for(ttl: int, detail: str) -> Handling:
    """The handling of a stored response that is served as it is, and stays fresh for `ttl` seconds."""
    return Handling(hit=True, ttl=ttl, detail=detail)


@lru_cache(maxsize=1024)
def handling_of_forward(fwd: str, stored: bool, unstorable: str) -> Handling:
    """The handling of a request that its own forward answered."""
    return Handling(fwd=fwd, stored=stored, unstorable=unstorable)


def cache_status(handling: Handling, canonical: Canonical | None, mode: Mode) -> Fields:
    """The Cache-Status field for a response: a list of one field, or of none (RFC 9211).

    No parameter holds a byte of the client's but `key`, which is canonical: visible ASCII.
    """
    if mode == "off":
        return []
    if mode == "key" and canonical is not None and not canonical.observed:
        return [(b"cache-status", _member(handling, b"; key=" + quoted(canonical.url)))]
    if handling.plain is None:
        handling.plain = [(b"cache-status", _member(handling))]
    return handling.plain


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
