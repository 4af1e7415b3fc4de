"""Plans: conclusions from a request's field names alone, drawn once for each set of them.

An ordinary request is a GET without content. None of its fields concerns the gate or the cache's policy. Most
requests are ordinary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from univocal.cache.personal import ORDINARY
from univocal.cache.rules import READS
from univocal.http.fields import ENCODINGS
from univocal.http.forward import end_to_end, speaks_for_another
from univocal.http.framing import is_authority
from univocal.http.messages import Fields
from univocal.http.tables import remember

# Fields that take the long way: the policy reads them, or the message is not over with its head, or the
# connection is to become something else.
_WEIGHED: Final = READS | {
    *(b"expect", b"http2-settings", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *ENCODINGS,
}
# Sets of names that are remembered, and how many bytes one may have: clients choose them.
_MOST: Final = 1024
_LONGEST: Final = 2048


class Plan:
    """The names of an ordinary request's fields, in lower case, and what follows from them.

    They are all different, and one of them is Host. Each place is -1 where a name is missing.
    """

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = names
        self.name_set = frozenset(names)
        self.host = names.index(b"host")
        self.connection = _place(names, b"connection")
        self.forwarded = speaks_for_another(set(names))  # somebody else made the request
        self.cookie = b"cookie" in names
        # They may tell the client from others, or its page's origin.
        self.personal = b"origin" in names or not ORDINARY.issuperset(names)
        # All of them may go on to the origin server.
        self.clean = len(end_to_end([(name, b"") for name in names])) == len(names)
        self.agent = _place(names, b"user-agent")
        self.referrer = _place(names, b"referer")
        self.trace = _place(names, b"traceparent")
        self.trace_state = _place(names, b"tracestate")
        self.encoding = _place(names, b"accept-encoding")
        self.credentials = _place(names, b"authorization")

    def suits(self, values: Sequence[bytes]) -> bool:
        """Tell whether a request with these values is ordinary: Connection may say keep-alive, no more."""
        return self.connection < 0 or values[self.connection].lower() == b"keep-alive"

    def kept_names(self, kept: Fields) -> frozenset[bytes] | None:
        """The names of a request's fields that go on, if they are all of its own; else None."""
        return self.name_set if self.clean and len(kept) == len(self.names) else None

    def fields(self, values: Sequence[bytes]) -> Fields:
        """The header fields with these values, without the whitespace behind them (RFC 9112 §5.1)."""
        names = self.names
        return [(names[place], value.rstrip(b" \t")) for place, value in enumerate(values)]


_plans: Final[dict[tuple[bytes, ...], Plan | None]] = {}


def plan_of(names: tuple[bytes, ...]) -> Plan | None:
    """The plan for a GET with these field names, in any case; None where it is no ordinary one."""
    try:
        return _plans[names]
    except KeyError:
        plan = _plan(names)
        if sum(map(len, names)) <= _LONGEST:
            remember(_plans, names, plan, _MOST)
        return plan


def _plan(spelled: tuple[bytes, ...]) -> Plan | None:
    names = tuple(name.lower() for name in spelled)
    if len(set(names)) < len(names) or b"host" not in names or not _WEIGHED.isdisjoint(names):
        return None
    return Plan(names)


def _place(names: tuple[bytes, ...], name: bytes) -> int:
    return names.index(name) if name in names else -1


def ordinary_plan(names: tuple[bytes, ...], values: tuple[bytes, ...]) -> Plan | None:
    """The plan for a GET with these fields; None if it is out of the ordinary, or is refused.

    It depends on nothing but these. The names are as they came.
    """
    plan = plan_of(names)
    if plan is None or not plan.suits(values):
        return None
    return plan if is_authority(values[plan.host]) else None
