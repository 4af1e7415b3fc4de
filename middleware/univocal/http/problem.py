"""The body of a refusal: problem details (RFC 9457), the same from either door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from univocal.http.errors import REASONS, by_rank
from univocal.http.messages import Fields
from univocal.http.status import PHRASES

__all__ = ["FAULT", "Problem", "problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A complete response to a request that univocal refuses; `fields` may be copied, never changed."""

    status: int
    fields: Fields
    body: bytes

    @property
    def status_line(self) -> bytes:
        """The status code and its phrase."""
        return b"%d %b" % (self.status, PHRASES[self.status].encode("ascii"))


def problem(reasons: Sequence[str]) -> Problem:
    """The response for these reasons, at least one, in any order; raises KeyError for an unknown one."""
    return _problem(by_rank(reasons))


@lru_cache(maxsize=256)
def _problem(reasons: tuple[str, ...]) -> Problem:
    status, _ = REASONS[reasons[0]]
    return _told(status, ". ".join(REASONS[reason][1] for reason in reasons) + ".", reasons)


def _told(status: int, detail: str, reasons: Sequence[str]) -> Problem:
    listed = ", ".join(f'"{reason}"' for reason in reasons)
    # RFC 9457 §4.2.1: with "about:blank" the title is the phrase of the status; ours is `reason`. The texts
    # are those of two tables, which have nothing in them that JSON would escape.
    body = (
        f'{{"type": "about:blank", "title": "{PHRASES[status]}", "status": {status}, "detail": "{detail}", '
        f'"reason": "{reasons[0]}", "reasons": [{listed}]}}\n'
    ).encode("ascii")
    fields = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        # RFC 9110 §15.1 lets a cache keep a 414 for as long as it likes: a refusal is nobody's page.
        (b"cache-control", b"no-store"),
    ]
    return Problem(status, fields, body)


# For a fault of this program: it is no reason for which a request is refused.
FAULT: Final = _told(500, "The request could not be answered.", ("internal-error",))
