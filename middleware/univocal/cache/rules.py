"""The operator of one site sets rules for the cache, beyond RFC 9111: a frozen value per site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from univocal.http.fields import cookie_names
from univocal.http.globs import compile_globs
from univocal.http.messages import Fields, Request

__all__ = ["READS", "Rules", "strip_cookies"]

# The request fields that the policy reads whatever the rules: a GET or HEAD with none of them is plain, and
# is answered with the stored response as it is.
READS: Final = frozenset(
    {
        b"cache-control",
        b"content-length",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"pragma",
        b"range",
        b"transfer-encoding",
    }
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of `[sites.cache]`; times are seconds.

    `ttl` and `ttl_by_status` give a lifetime to responses without explicit freshness. `bypass` are globs on
    the path, `bypass_cookies` and `strip_cookies` globs on cookie names ("*" any run of characters, "?" one).
    With `strip_tags` clients do not see the fields that name tags; stored responses keep them.
    `targeted` are the targeted cache control fields that are ours: the first valid one wins (RFC 9213).
    """

    ttl: float = 0
    ttl_by_status: Mapping[int, float] = field(default_factory=dict)
    heuristic: bool = True
    set_cookie: Literal["public", "explicit", "never"] = "public"
    grace: float = 0
    bypass: tuple[str, ...] = ()
    bypass_cookies: tuple[str, ...] = ()
    strip_cookies: tuple[str, ...] = ()
    strip_tags: bool = False
    client_directives: Literal["honour", "ignore"] = "honour"
    targeted: tuple[bytes, ...] = (b"cdn-cache-control",)
    reads: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _bypass: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)
    _bypass_cookies: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)
    _strip_cookies: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cookies = {b"cookie"} if self.bypass_cookies else set()
        object.__setattr__(self, "reads", READS | cookies)
        object.__setattr__(self, "_bypass", _globs(self.bypass))
        object.__setattr__(self, "_bypass_cookies", _globs(self.bypass_cookies))
        object.__setattr__(self, "_strip_cookies", _globs(self.strip_cookies))

    def passes_path(self, target: bytes) -> bool:
        """Requests for this target go past the cache."""
        return self._bypass is not None and bool(self._bypass.fullmatch(target.partition(b"?")[0]))

    def passes_cookies(self, fields: Fields) -> bool:
        """A cookie of the request sends it past the cache."""
        pattern = self._bypass_cookies
        return pattern is not None and any(pattern.fullmatch(name) for name in cookie_names(fields))

    def strips(self, cookie: bytes) -> bool:
        """The cookie of this name is removed from requests."""
        return self._strip_cookies is not None and bool(self._strip_cookies.fullmatch(cookie))


def _globs(patterns: Iterable[str]) -> re.Pattern[bytes] | None:
    return compile_globs(pattern.encode() for pattern in patterns)


def strip_cookies(request: Request, rules: Rules) -> Request:
    """The request without the cookies that the rules strip; this comes before every decision."""
    if not rules.strip_cookies or not any(rules.strips(name) for name in cookie_names(request.fields)):
        return request
    fields: Fields = []
    for name, value in request.fields:
        if name != b"cookie":
            fields.append((name, value))
            continue
        pairs = [pair.strip(b" \t") for pair in value.split(b";")]
        kept = [pair for pair in pairs if pair and not rules.strips(pair.partition(b"=")[0].strip(b" \t"))]
        if kept:
            fields.append((name, b"; ".join(kept)))
    return replace(request, fields=fields)
