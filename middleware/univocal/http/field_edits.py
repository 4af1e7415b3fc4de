"""The operator's changes of header fields: some are set, others removed (docs/reference.md, Fields). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from univocal.http.grammar import is_token
from univocal.http.intermediary import AS_CGI_READS, HOP_BY_HOP
from univocal.http.messages import ENCODINGS, Fields

# Framing and the fields of one hop; the URL; what only univocal can say.
_NEVER: Final = HOP_BY_HOP | {b"cache-status", b"content-length", b"expect", b"host"}
# With the fields that univocal writes itself: of the client, and of the message's way.
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
_UNFIT: Final = re.compile(rb"[\x00-\x1F\x7F]|\A | \Z").search

NAMED: Final = ("client", "host", "scheme", "path", "request_id", "user")
"""The names that a value may have in braces: each stands for what a request says of itself."""

# Those that tell one client from another: no response that others may get depends on them.
_OF_A_CLIENT: Final = ("client", "user")
# A value without a name in braces is taken as it is, with all braces that it has.
_NAME: Final = re.compile(r"\{[a-z_]+\}")
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([a-z_]+)\}|[{}]")


class FieldEdits:
    """Fields that are set, removed or added; names in lower case.

    A field that is set replaces every field line of its name, one that is added stands beside them. With
    `withheld`, fields of these names are set by `apply` alone, and only removed by `expose`.
    """

    def __init__(
        self,
        values: Mapping[bytes, bytes | None],
        withheld: frozenset[bytes] = frozenset(),
        added: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.fields: Final[Fields] = [(name, value) for name, value in values.items() if value is not None]
        self.names: Final = frozenset(values)
        self._values: Final = {**values}
        self._withheld: Final = withheld
        self._read: Final = frozenset([name.translate(AS_CGI_READS) for name in values])
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
        """The `fields` as the cache sees them: what is withheld is for the origin server alone.

        A name that CGI reads as one of these is that of the same field.
        """
        read = self._read
        return [*[field for field in fields if field[0].translate(AS_CGI_READS) not in read], *self._exposed]

    def supply(self, fields: Fields) -> Fields:
        """The `fields` with all that are set: what is removed was removed from the client's."""
        own = self._set
        return [*[field for field in fields if field[0] not in own], *self.fields]

    def also(self, values: Mapping[bytes, bytes | None]) -> FieldEdits:
        """These changes and others, which go first and are not withheld."""
        return FieldEdits({**self._values, **values}, self._withheld.difference(values))

    def apply_to_head(self, head: bytes) -> bytes:
        """A stored head (see `Stored.head`) as it is sent."""
        return self._pattern.sub(b"", head) + self._lines


class Template:
    """A field value: texts, and behind each the name of what follows it, the last one empty."""

    def __init__(self, value: bytes) -> None:
        """Take the names in braces from a value that `value_fault` lets pass."""
        pieces, text, end = list[tuple[bytes, str]](), "", 0
        written = value.decode("utf-8", "surrogateescape")
        for piece in _PIECE.finditer(written) if _NAME.search(written) else ():
            text += written[end : piece.start()]
            end = piece.end()
            if piece[1] is None:
                text += piece[0][0]
            else:
                pieces.append((text.encode("utf-8", "surrogateescape"), piece[1]))
                text = ""
        pieces.append(((text + written[end:]).encode("utf-8", "surrogateescape"), ""))
        self.pieces: Final = pieces
        self.names: Final = frozenset([name for _, name in pieces if name])

    def filled(self, facts: dict[str, bytes]) -> bytes | None:
        """The value for one request; None: what it names is not known, or fits in no field."""
        value = b""
        for text, name in self.pieces:
            value += text
            if name:
                fact = facts[name]
                if not fact or _UNFIT(fact) is not None:
                    return None
                value += fact
        return value


class NamedEdits:
    """Changes of fields whose values name something in braces: each request has its own `FieldEdits`."""

    def __init__(
        self,
        values: Mapping[bytes, bytes | None],
        withheld: frozenset[bytes] = frozenset(),
        added: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._values: Final = [
            (name, None if value is None else Template(value)) for name, value in values.items()
        ]
        self._added: Final = [(name, Template(value)) for name, value in added]
        self._withheld: Final = withheld
        every = [template for _, template in (*self._values, *self._added) if template is not None]
        self.names: Final = frozenset[str]().union(*[template.names for template in every])

    @property
    def of_a_client(self) -> bool:
        """True if a value names what tells one client from another."""
        return not self.names.isdisjoint(_OF_A_CLIENT)

    def filled(self, facts: dict[str, bytes]) -> FieldEdits:
        """The changes for one request; a value that names what is not known is left out."""
        values = {
            name: None if template is None else template.filled(facts) for name, template in self._values
        }
        added = [(name, template.filled(facts)) for name, template in self._added]
        return FieldEdits(
            values, self._withheld, [(name, value) for name, value in added if value is not None]
        )


class RouteEdits(NamedTuple):
    """The changes of a route's requests and responses; None: nothing changes.

    Changes that name something in braces apply to no request until `for_request` has filled them.
    `alone` are the changes of a request whose response no other gets; None: they are those of `request`.
    """

    request: FieldEdits | None = None
    response: FieldEdits | None = None
    named_request: NamedEdits | None = None
    named_response: NamedEdits | None = None
    alone: FieldEdits | None = None


NO_EDITS: Final = RouteEdits()


def granting(edits: RouteEdits, granted: Mapping[bytes, bytes | None]) -> RouteEdits:
    """The changes for a request to which an authorization server has granted these fields, or none (None)."""
    request = FieldEdits({}) if edits.request is None else edits.request
    alone = None if edits.alone is None else edits.alone.also(granted)
    return edits._replace(request=request.also(granted), alone=alone)


def for_request(edits: RouteEdits, facts: dict[str, bytes]) -> RouteEdits:
    """The changes for one request, of which the `facts` are known; an empty one is not.

    A request whose response may be stored goes without the fields that name its client: they are in no key.
    """
    request, response, alone = edits.request, edits.response, edits.alone
    if edits.named_request is not None:
        request = edits.named_request.filled({**facts, **dict.fromkeys(_OF_A_CLIENT, b"")})
        alone = edits.named_request.filled(facts) if edits.named_request.of_a_client else None
    if edits.named_response is not None:
        response = edits.named_response.filled(facts)
    return edits._replace(request=request, response=response, alone=alone)


def edits_of(
    values: Mapping[bytes, bytes | None],
    withheld: frozenset[bytes] = frozenset(),
    added: Iterable[tuple[bytes, bytes]] = (),
) -> tuple[FieldEdits | None, NamedEdits | None]:
    """The changes, and the same if a value names something; None: nothing changes."""
    added = list(added)
    if not (values or added):
        return None, None
    named = NamedEdits(values, withheld, added)
    return named.filled(dict.fromkeys(NAMED, b"")), named if named.names else None


def names_clients(value: str) -> bool:
    """Tell whether a value names what tells one client from another."""
    return not Template(value.encode()).names.isdisjoint(_OF_A_CLIENT)


def request_fault(name: str, *, is_set: bool) -> str:
    """The names allowed in the place of this one of a request field; "" if it may be."""
    return _fault(name, is_set, _NEVER_IN_REQUESTS, _NEVER_SET_IN_REQUESTS, _SENDER)


def response_fault(name: str, *, is_set: bool) -> str:
    """The names allowed in the place of this one of a response field; "" if it may be."""
    return _fault(name, is_set, _NEVER_IN_RESPONSES, _NEVER_SET_IN_RESPONSES, ())


def added_fault(name: str) -> str:
    """The names allowed in the place of this one of a response field that is added; "" if it may be."""
    return "" if name.lower() == "vary" else response_fault(name, is_set=True)


def value_fault(value: str) -> str:
    """The values allowed in the place of this field value (RFC 9110 §5.5); "" if it may be."""
    if _CONTROL.search(value) or value != value.strip(" "):
        return "one line without control characters, and without blanks at its ends"
    if _NAME.search(value):
        for piece in _PIECE.finditer(value):
            if piece[0] in {"{", "}"} or (piece[1] is not None and piece[1] not in NAMED):
                names = ", ".join(f"{{{name}}}" for name in NAMED)
                return f"the names {names}; {{{{ and }}}} are braces beside them"
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
