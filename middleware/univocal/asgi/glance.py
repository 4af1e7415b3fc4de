"""Hits at a glance at the ASGI door: two messages, without an exchange and without a task."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from univocal.asgi.messages import Message, Scope
from univocal.cache.stored import head_fields
from univocal.http.messages import Field, Fields, Received
from univocal.judge.hits import Hit, Hits
from univocal.judge.plan import plan_of

__all__ = ["adds_date", "hit_for", "start_of"]

# Heads of more bytes are split into fields for each hit.
_LONGEST: Final = 2048


def hit_for(line: Received, scope: Scope, hits: Hits, now: float) -> Hit | None:
    """Find the stored response that answers an ordinary request as it is; None: take the long way."""
    if line.method != b"GET":
        return None
    if not scope["headers"] or scope.get("root_path"):
        return None
    names, values = zip(*scope["headers"], strict=True)
    plan = plan_of(names)
    if plan is None or not plan.suits(values):
        return None
    return hits.find(line, plan, values, now)


def start_of(hit: Hit, dated: bool) -> Message:
    """The first message of a hit, for a server that adds a Date or does not.

    The message and its list of fields are new: who stands between may change them in place.
    """
    head = hit.head
    kept = _short_fields(head, dated) if len(head) <= _LONGEST else _fields(head, dated)
    fields: list[Field] = kept.copy()
    fields.append((b"age", b"%d" % hit.age))
    fields += hit.hit_fields.fields
    return {"type": "http.response.start", "status": hit.stored.status, "headers": fields}


def adds_date(receive: Any, send: Any) -> bool:
    """Tell whether the server adds a Date to every response: uvicorn does, unless it is told not to.

    One of the calls that the server handed over may be wrapped by others.
    """
    for call in (receive, send):
        cycle = getattr(call, "__self__", None)
        if type(cycle).__module__.startswith("uvicorn.protocols."):
            for name, _ in getattr(cycle, "default_headers", ()):  # noqa: SIM110  (a generator costs more)
                if name.lower() == b"date":
                    return True
            return False
    return False


def _fields(head: bytes, dated: bool) -> Fields:
    return [field for field in head_fields(head) if not (dated and field[0] == b"date")]


_short_fields: Final = lru_cache(maxsize=1024)(_fields)
