"""Requests at a glance at the ASGI door: a hit is two messages, without an exchange and without a task."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from univocal.asgi.messages import Message, Receive, Scope, Send
from univocal.asgi.scope import request_line
from univocal.cache.stored import head_fields
from univocal.engine.engine import Engine
from univocal.http.framing import is_authority
from univocal.http.messages import Fields
from univocal.http.remembering import remember
from univocal.judge.hits import Hit, HitFields
from univocal.judge.plan import Plan, plan_of

# Heads of more bytes are split into fields for each hit.
_LONGEST: Final = 2048
_MOST: Final = 1024  # heads whose fields are remembered
_MOST_KINDS: Final = 64  # classes of objects that servers hand over


class Arrival:
    """A request as it came: its line, the time, and the stored response that answers it as it is, if any.

    `begun` is in seconds since the epoch, `ticks` what the performance counter said then. An ordinary request
    has a `plan`.
    """

    __slots__ = ("begun", "hit", "line", "plan", "ticks")

    def __init__(self, scope: Scope, engine: Engine) -> None:
        plain = scope if isinstance(scope, dict) else dict(scope)
        self.begun = engine.clock()
        self.ticks = time.perf_counter()
        self.line = request_line(plain)
        self.hit: Hit | None = None
        self.plan: Plan | None = None
        fields = plain["headers"]
        if fields and self.line.method == b"GET" and not plain.get("root_path"):
            names, values = zip(*fields, strict=True)
            plan = plan_of(names)
            if plan is not None and plan.suits(values):
                self.hit = engine.hits.find(self.line, plan, values, self.begun)
                if self.hit is None and plan.names == names and is_authority(values[plan.host]):
                    self.plan = plan

    def messages(self, receive: Receive, send: Send) -> tuple[Message, Message]:
        """The messages of the hit.

        They are new, and so is the list of fields: who stands between may change them in place.
        """
        hit = self.hit
        assert hit is not None
        head, age, dated = hit.head, hit.age, adds_date(receive, send)
        table = _dated if dated else _undated
        start = table.get(head)
        if start is None:
            start = _Start([field for field in head_fields(head) if not (dated and field[0] == b"date")])
            if len(head) <= _LONGEST:
                remember(table, head, start, _MOST)
        if start.age != age or start.hit_fields is not hit.hit_fields:
            start.age, start.hit_fields = age, hit.hit_fields
            start.fields = [*start.kept, (b"age", b"%d" % age), *hit.hit_fields.fields]
        stored = hit.stored
        return (
            {"type": "http.response.start", "status": stored.status, "headers": start.fields.copy()},
            {"type": "http.response.body", "body": stored.body},
        )


class _Start:
    """The fields of a stored head, and all fields of the last hit that had it."""

    __slots__ = ("age", "fields", "hit_fields", "kept")

    def __init__(self, kept: Fields) -> None:
        self.kept = kept
        self.age = -1
        self.hit_fields: HitFields | None = None
        self.fields: Fields = []


# By the bytes of a head: for servers that add a Date, and for others.
_dated: Final[dict[bytes, _Start]] = {}
_undated: Final[dict[bytes, _Start]] = {}


def adds_date(receive: Any, send: Any) -> bool:
    """Tell whether the server adds a Date to every response: uvicorn does, unless it is told not to.

    One of the calls that the server handed over may be wrapped by others.
    """
    for call in (receive, send):
        cycle = getattr(call, "__self__", None)
        kind = type(cycle)
        known = _kinds.get(kind)
        if known is None:
            known = kind.__module__.startswith("uvicorn.protocols.")
            remember(_kinds, kind, known, _MOST_KINDS)
        if known:
            fields: Iterable[tuple[bytes, bytes]] = getattr(cycle, "default_headers", ())
            defaults = _defaults
            if defaults.fields is not fields:
                defaults.fields = fields
                defaults.dated = b"date" in [name.lower() for name, _ in fields]
            return defaults.dated
    return False


class _Defaults:
    """The fields that uvicorn adds to responses: a list that it makes anew each second."""

    __slots__ = ("dated", "fields")

    def __init__(self) -> None:
        self.fields: object = None
        self.dated = False


_defaults: Final = _Defaults()
# Classes of the objects whose methods servers hand over: are they uvicorn's?
_kinds: Final[dict[type, bool]] = {}
