"""An answer of the origin server comes after stored responses: it confirms, replaces or ends them.

Once the origin server has answered a request, no stored response that the request selects is used, unless the
answer confirmed it. See RFC 9111 §4.3.3 to §4.3.5 and RFC 9110 §13.1.2. There is one exception: a client may
have provoked an answer by its own request's fields. Such an answer is for that client alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import ABOUT_RESOURCE, forbids_storing
from univocal.cache.validation import is_as_long
from univocal.cache.vary import could_answer, vary_names
from univocal.http.fields import entity_tag, first, opaque_tag
from univocal.http.messages import Request, Response

UNKEEPABLE: Final = frozenset({"too-large", "no-room"})
"""Reasons for which a response is not stored that say nothing against it, or of whom it is for."""


class Effect(Enum):
    """The effects of an answer on the stored responses that its request selects."""

    CONFIRMS = "they are current: the one that the answer renews takes the place of all"
    REPLACES = "they are not current: the answer is stored in their place"
    ENDS = "they are not current, and nothing takes their place"
    AGES = "they may not be current: they are stale from now on"
    LEAVES = "the answer says nothing of them"


class Requester(Enum):
    """The senders of a request."""

    OURSELVES = "this cache, in the background"
    ANYBODY = "a client, with ordinary fields alone"
    SOMEBODY = "a client, with fields of its own"


class Likeness(Enum):
    """A response's validators and length beside those of a stored one."""

    SAME = "the same validators"
    UNKNOWN = "no validators, and no other length"
    OTHER = "other validators, or another length"


class Findings(NamedTuple):
    """The findings about an answer, beside a stored response that its request selects."""

    method: bytes
    status: int
    requester: Requester
    conditional: bool = False  # the request had a condition of ours
    unstorable: str = ""  # the reason for which it, or what it renews, is not stored
    likeness: Likeness = Likeness.UNKNOWN
    whole: bool = True  # the stored response could answer a GET with 200
    changes_use: bool = False  # of a 304: it forbids to store what it is about, or changes its Vary
    shortens: bool = False  # of a 304: what it is about is fresh for less time


def effect_of(answer: Findings) -> Effect:
    """The effect of an answer on the stored responses that its request selects."""
    status, stored = answer.status, not answer.unstorable
    if status == 304:
        return _effect_of_304(answer)
    if answer.method == b"HEAD":
        return _effect_of_head(answer)
    if answer.method != b"GET":  # whether it invalidates is another matter (§4.4)
        return Effect.REPLACES if stored else Effect.LEAVES
    if stored or answer.unstorable in UNKEEPABLE:
        # A part of what is stored as a whole does not displace it.
        if status == 206 and answer.whole and answer.likeness is Likeness.SAME:
            return Effect.LEAVES
        return Effect.REPLACES if stored else Effect.ENDS
    if status >= 500 or status == 429:
        return Effect.LEAVES
    match answer.requester:
        case Requester.OURSELVES:
            return Effect.ENDS
        case Requester.ANYBODY if status == 206:  # a Range field brings about a part, but no other validators
            return Effect.ENDS if answer.likeness is Likeness.OTHER else Effect.LEAVES
        case Requester.ANYBODY if tells_of_resource(status):
            return Effect.ENDS
        case _:
            return Effect.LEAVES


def _effect_of_304(answer: Findings) -> Effect:
    if not answer.unstorable:
        return Effect.CONFIRMS
    if answer.changes_use or answer.requester is not Requester.SOMEBODY:
        return Effect.ENDS
    # Effects of one client's fields, such as a cookie that is set, are not said of all.
    return Effect.AGES if answer.shortens else Effect.LEAVES


def _effect_of_head(answer: Findings) -> Effect:
    """A HEAD tells of the answer to a GET (RFC 9111 §4.3.5), as far as origin servers implement it."""
    replaces = Effect.ENDS if answer.unstorable else Effect.REPLACES
    somebody = answer.requester is Requester.SOMEBODY
    if answer.status != 200:
        if not answer.unstorable:
            # The answer to a GET has content besides.
            return Effect.LEAVES if answer.likeness is Likeness.SAME else Effect.REPLACES
        return Effect.AGES if answer.status in ABOUT_RESOURCE and not somebody else Effect.LEAVES
    if somebody and answer.unstorable:
        return Effect.LEAVES
    # A 200 to a condition that the stored response fulfils says that it is not current (RFC 9110 §13.1.2).
    unlike = answer.likeness is Likeness.OTHER or (answer.conditional and answer.likeness is Likeness.UNKNOWN)
    if not answer.whole or (unlike and answer.conditional):
        return replaces
    if somebody:
        return replaces if unlike else Effect.LEAVES
    return Effect.AGES if unlike else Effect.CONFIRMS


def tells_of_resource(status: int) -> bool:
    """True if a status tells of the resource, not of this request or a bad moment of the origin server."""
    return status < 400 or status in ABOUT_RESOURCE


def requester_of(request: Request, status: int, rules: Rules, older: Sequence[Stored]) -> Requester:
    """The sender of a client's request: somebody, if fields of its own may have brought the status about.

    A field that selects each of the older responses is not its own: whoever could get these has it, too.
    """
    unsatisfied = status == 416 and b"range" in request.names
    odd = request.names - rules.ordinary
    own = unsatisfied or not all(_selects(name, stored) for name in odd for stored in older)
    return Requester.SOMEBODY if own else Requester.ANYBODY


def _selects(name: bytes, stored: Stored) -> bool:
    """The response is for requests that have the same value of a field, not for those without it."""
    return any(selecting == name and value is not None for selecting, value in stored.vary)


def selected(request: Request, held: Sequence[Stored]) -> list[Stored]:
    """Those of the stored responses of a key that the request selects, newest first (RFC 9111 §4.1)."""
    presented = dict[bytes, bytes | None]()
    return [stored for stored in held if could_answer(stored, request, presented)]


def foremost(stored: Sequence[Stored]) -> Stored:
    """The one that an answer is compared with: the newest whole one, else the newest."""
    return next((one for one in stored if one.whole), stored[0])


def likeness_of(stored: Stored, response: Response) -> Likeness:
    """A response's likeness to a stored one, by its validators, else by its status and length."""
    status = response.status
    as_long = status == 206 or (status == stored.status and is_as_long(stored, response))
    etag = entity_tag(first(response.fields, b"etag"))
    if etag is not None:
        same = stored.etag is not None and opaque_tag(etag) == opaque_tag(stored.etag)
    else:
        modified = first(response.fields, b"last-modified")
        if modified is None:
            return Likeness.UNKNOWN if as_long else Likeness.OTHER
        same = modified == stored.last_modified
    return Likeness.SAME if same and as_long else Likeness.OTHER


def changes_use(stored: Stored, renewed: Stored, rules: Rules) -> bool:
    """A renewed response may not be stored by the origin server's word, or is for other requests."""
    fields = renewed.fields
    return forbids_storing(Response(renewed.status, fields), rules) or (
        vary_names(fields) != vary_names(stored.fields)
    )
