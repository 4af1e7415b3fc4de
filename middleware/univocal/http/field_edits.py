"""The operator's changes of header fields: some are set, others removed (docs/reference.md, Fields). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from univocal.http.fields import ENCODINGS
from univocal.http.forward import HOP_BY_HOP
from univocal.http.grammar import is_token
from univocal.http.messages import Fields

# Framing and the fields of one hop; the URL; what only univocal can say.
_NEVER: Final = HOP_BY_HOP | {b"cache-status", b"content-length", b"expect", b"host"}
# What univocal itself says of the client, and of the message's way.
_NEVER_IN_REQUESTS: Final = _NEVER | {b"forwarded", b"max-forwards", b"via", *ENCODINGS}
_SENDER: Final = (b"x-forwarded-",)
# Fields that steer the cache: every request with them would go to the origin server.
_NEVER_SET_IN_REQUESTS: Final = frozenset(
    b"cache-control if-match if-modified-since if-none-match if-range if-unmodified-since pragma "
    b"range".split()
)
# Fields that say how the content is to be read, or for whom and how long a cache keeps it.
_NEVER_IN_RESPONSES: Final = _NEVER | {b"age", b"content-encoding", b"content-range", b"date", b"vary"}
# Validators: what a client would send back is compared with the origin server's own.
_NEVER_SET_IN_RESPONSES: Final = frozenset((b"etag", b"last-modified"))
_CONTROL: Final = re.compile(r"[\x00-\x1F\x7F]")


class FieldEdits:
    """Fields that are set, removed or added; names in lower case.

    A field that is set replaces every field line of its name, one that is added stands beside them. With
    `withheld`, fields of these names are set by `apply` alone, and only removed by `expose`.
    """

    __slots__ = ("_exposed", "_lines", "_pattern", "_set", "_written", "fields", "names")

    def __init__(
        self,
        values: Mapping[bytes, bytes | None],
        withheld: frozenset[bytes] = frozenset(),
        added: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.fields: Final[Fields] = [(name, value) for name, value in values.items() if value is not None]
        self.names: Final = frozenset(values)
        self._set: Final = frozenset(name for name, _ in self.fields)
        self._exposed: Final[Fields] = [field for field in self.fields if field[0] not in withheld]
        self._written: Final[Fields] = [*self.fields, *added]
        self._lines: Final = b"".join([b"%b: %b\r\n" % field for field in self._written])
        names = b"|".join(map(re.escape, sorted(self.names)))
        self._pattern: Final = re.compile(rb"\r\n(?:%b): [^\r\n]*" % names)

    def apply(self, fields: Fields) -> Fields:
        """The `fields` as they are sent."""
        names = self.names
        return [*[field for field in fields if field[0] not in names], *self._written]

    def expose(self, fields: Fields) -> Fields:
        """The `fields` as the cache sees them: what is withheld is for the origin server alone."""
        names = self.names
        return [*[field for field in fields if field[0] not in names], *self._exposed]

    def supply(self, fields: Fields) -> Fields:
        """The `fields` with all that are set: what is removed was removed from the client's."""
        own = self._set
        return [*[field for field in fields if field[0] not in own], *self.fields]

    def apply_to_head(self, head: bytes) -> bytes:
        """A stored head (see `Stored.head`) as it is sent."""
        return self._pattern.sub(b"", head) + self._lines


class RouteEdits(NamedTuple):
    """The changes of a route's requests and responses; None: nothing changes."""

    request: FieldEdits | None = None
    response: FieldEdits | None = None


NO_EDITS: Final = RouteEdits()


def request_fault(name: str, *, is_set: bool) -> str:
    """The names allowed in the place of this one of a request field; "" if it may be."""
    return _fault(name, is_set, _NEVER_IN_REQUESTS, _NEVER_SET_IN_REQUESTS, _SENDER)


def response_fault(name: str, *, is_set: bool) -> str:
    """The names allowed in the place of this one of a response field; "" if it may be."""
    return _fault(name, is_set, _NEVER_IN_RESPONSES, _NEVER_SET_IN_RESPONSES, ())


def value_fault(value: str) -> str:
    """The values allowed in the place of this field value (RFC 9110 §5.5); "" if it may be."""
    if _CONTROL.search(value) or value != value.strip(" "):
        return "one line without control characters, and without blanks at its ends"
    return ""


def _fault(
    name: str, is_set: bool, never: frozenset[bytes], never_set: frozenset[bytes], families: Iterable[bytes]
) -> str:
    if not (name.isascii() and is_token(name.encode())):
        return 'the name of a field, such as "X-Tenant"'
    low = name.lower().encode()
    kept = [family.decode() + "*" for family in families]
    if low in never or low.startswith(tuple(families)):
        return f"any field but {', '.join([*sorted(each.decode() for each in never), *kept])}"
    if is_set and low in never_set:
        return f"a field that may be set: {', '.join(sorted(each.decode() for each in never_set))} may not"
    return ""
