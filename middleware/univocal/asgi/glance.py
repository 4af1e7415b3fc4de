"""Requests at a glance at the ASGI door: a hit is two messages, without an exchange and without a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from univocal.asgi.messages import Message, Receive, Scope, Send
from univocal.asgi.scope import request_line
from univocal.cache.stored import head_fields
from univocal.engine.engine import Engine
from univocal.http.framing import is_authority
from univocal.http.messages import Fields
from univocal.http.remembering import remember
from univocal.http.subclassing import mypyc_attr
from univocal.judge.hits import Hit, HitFields
from univocal.judge.plan import Plan, plan_of

# Heads of more bytes are split into fields for each hit, and header sections of more are read each time.
_LONGEST: Final = 2048
_MOST: Final = 1024  # heads whose fields are remembered, and clients


@mypyc_attr(acyclic=True)
class Arrival:
    """A request as it came: its line, the time, and the stored response that answers it as it is, if any.

    `begun` is in seconds since the epoch, `ticks` what the performance counter said then; it is 0.0 for a hit
    of which nobody is told. An ordinary request has a `plan`. The `messages` of a hit are new, and so is the
    list of fields: who stands between may change them in place.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, engine: Engine) -> None:
        plain = scope if isinstance(scope, dict) else dict(scope)
        self.begun = engine.clock()
        is_told = engine.audience.is_there
        self.ticks = time.perf_counter() if is_told else 0.0
        self.line = request_line(plain)
        self.hit: Hit | None = None
        self.plan: Plan | None = None
        if self.line.method == b"GET" and not plain.get("root_path"):
            section = _section(plain["headers"], plain.get("client"))
            plan = section.plan
            if plan is not None:
                values = section.values
                self.hit = engine.hits.find(self.line, plan, values, self.begun)
                if self.hit is None and section.is_plain and is_authority(values[plan.host]):
                    self.plan = plan
        self.messages = None if self.hit is None else _messages(self.hit, dated=adds_date(receive, send))
        if self.hit is None and not is_told:
            self.ticks = time.perf_counter()


def _messages(hit: Hit, *, dated: bool) -> tuple[Message, Message]:
    head, age, table = hit.head, hit.age, _dated if dated else _undated
    start = table.get(head)
    if start is None:
        kept = [field for field in head_fields(head) if not (dated and field[0] == b"date")]
        start = _Start(hit.stored.status, kept)
        if len(head) <= _LONGEST:
            remember(table, head, start, _MOST)
    if start.age != age or start.hit_fields is not hit.hit_fields:
        start.age, start.hit_fields = age, hit.hit_fields
        start.fields = [*start.kept, (b"age", b"%d" % age), *hit.hit_fields.fields]
    message, content = start.message.copy(), _CONTENT.copy()
    message["headers"], content["body"] = start.fields.copy(), hit.stored.body
    return message, content


@mypyc_attr(acyclic=True)
class _Section:
    """The header section of a request: the plan for it, if it is an ordinary one, and its values.

    It is plain if the server spells the names in lower case.
    """

    def __init__(
        self, fields: Fields, plan: Plan | None, names: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        self.fields = fields
        self.plan = plan
        self.is_plain = plan is not None and plan.names == names
        self.values = values


_NO_SECTION: Final = _Section([], None, (), ())
# The last header section of a client, by its address and port: most clients repeat it to the byte.
_sections: Final[dict[object, _Section]] = {}


def _section(fields: Any, client: Any) -> _Section:
    """The header section that a client sends; a remembered one is not read again."""
    known = _sections.get(client) if isinstance(client, tuple) else None
    if known is not None and known.fields == fields:
        return known
    if not fields:
        return _NO_SECTION
    names, values = zip(*fields, strict=True)
    plan = plan_of(names)
    if plan is not None and not plan.suits(values):
        plan = None
    # An application may change the list, and pairs that are no tuples: the copy keeps the tuples.
    is_kept = isinstance(client, tuple) and isinstance(fields, list) and sum(map(len, values)) <= _LONGEST
    if is_kept and all(isinstance(field, tuple) for field in fields):
        section = _Section(fields.copy(), plan, names, values)
        remember(_sections, client, section, _MOST)
        return section
    return _Section([], plan, names, values)


class _Start:
    """The fields of a stored head, and all fields of the last hit that had it."""

    def __init__(self, status: int, kept: Fields) -> None:
        self.message: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": kept}
        self.kept = kept
        self.age = -1
        self.hit_fields: HitFields | None = None
        self.fields: Fields = []


_CONTENT: Final[dict[str, Any]] = {"type": "http.response.body", "body": b""}
# By the bytes of a head: for servers that add a Date, and for others.
_dated: Final[dict[bytes, _Start]] = {}
_undated: Final[dict[bytes, _Start]] = {}


def adds_date(receive: Any, send: Any) -> bool:
    """Tell whether the server adds a Date to every response: uvicorn does, unless it is told not to.

    One of the calls that the server handed over may be wrapped by others.
    """
    defaults = _defaults
    for call in (receive, send):
        cycle = getattr(call, "__self__", None)
        fields: Any = getattr(cycle, "default_headers", None)
        if fields is not None and defaults.fields is fields:
            return defaults.dated
        if type(cycle).__module__.startswith("uvicorn.protocols."):
            defaults.fields = fields
            defaults.dated = b"date" in [name.lower() for name, _ in fields or ()]
            return defaults.dated
    return False


class _Defaults:
    """The fields that uvicorn adds to responses: a list that it makes anew each second."""

    def __init__(self) -> None:
        self.fields: object = None
        self.dated = False


_defaults: Final = _Defaults()
