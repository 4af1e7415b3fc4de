"""Selecting header fields: a stored response answers the requests that share them (RFC 9111 §4.1)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from univocal.cache.personal import ODD, PERSONAL, is_ordinary
from univocal.cache.stored import Selecting, Stored
from univocal.http.messages import (
    LONGEST,
    Fields,
    Request,
    Response,
    coding_of,
    first,
    members,
    values,
    weights,
)

# Fields that an intermediary writes per client: what the origin saw of them is not what the request had.
_PER_CLIENT: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})

# The name under which the target that the origin got is a selecting value, where that is not the canonical
# one: no response need name it, and no response can, since ":" is in no field's name.
_TARGET: Final = b":target"
# Likewise the user, where responses are kept by user.
_USER: Final = b":user"

_HINTS: Final = PERSONAL | {ODD}  # names by which the rules keep a response for some requests

# Fields that are no lists: of these no blank may be dropped.
_LITERAL: Final = frozenset(
    {
        b"authorization",
        b"cookie",
        b"host",
        b"origin",
        b"proxy-authorization",
        b"range",
        b"referer",
        b"user-agent",
    }
)

# Fields whose members are weighed by their qvalue alone, in any order (RFC 9110 §12.5.3, §12.5.4).
_WEIGHTED: Final = frozenset({b"accept-encoding", b"accept-language"})

# Bytes of a Vary, and names in it, beyond which a response answers no other request: every request for its
# key would be compared by all of them, with each stored response.
_LONGEST_VARY: Final = 4096
MOST_NAMES: Final = 64


def vary_names(fields: Fields) -> tuple[bytes, ...] | None:
    """The selecting header fields a response names, sorted; None if it answers no other request.

    Coded content is for the requests that accept its coding, whether or not Vary says so.
    """
    lines = values(fields, b"vary")
    if len(lines) == 1 and len(lines[0]) <= 256:
        names = _named_in(lines[0])
    else:
        names = _names(lines) if sum(map(len, lines)) <= _LONGEST_VARY else None
    if names is None or b"accept-encoding" in names or not coding_of(fields):
        return names
    return tuple(sorted((*names, b"accept-encoding")))


def named_besides(response: Response, names: Collection[bytes]) -> Response:
    """The response with a Vary that names these fields, too."""
    own = b",".join(values(response.fields, b"vary")).lower()
    lacking = sorted(set(names).difference(members(own)))
    added = [(b"vary", b", ".join(lacking))] if lacking else []
    return replace(response, fields=[*response.fields, *added])


def chosen_by(held: Sequence[Stored], names: frozenset[bytes]) -> Sequence[Stored]:
    """Those of the stored responses whose Vary has these names; the others came before a reload."""
    return [stored for stored in held if names.issubset(vary_names(stored.fields) or ())]


def of_user(held: Sequence[Stored], user: bytes) -> Sequence[Stored]:
    """Those of the stored responses that are kept for this user."""
    return [stored for stored in held if (_USER, user) in stored.vary]


def _names(lines: list[bytes]) -> tuple[bytes, ...] | None:
    # Some servers write blanks alone between the names, as nginx reads them, too.
    names = {name.lower() for line in lines for name in line.replace(b",", b" ").split()}
    # A stored response with a Vary header field value containing a member "*" always fails to match.
    if b"*" in names or not names.isdisjoint(_PER_CLIENT) or len(names) > MOST_NAMES:
        return None
    return tuple(sorted(names))


@lru_cache(maxsize=256)
def _named_in(line: bytes) -> tuple[bytes, ...] | None:
    return _names([line])


def selection(response: Fields, request: Request, kept_for: Selecting = ()) -> Selecting:
    """The values that a request must share with this one to be answered by its response.

    Besides, it must share those in `kept_for` that the response's Vary does not name.
    """
    names = vary_names(response) or ()
    ours = (*((_TARGET,) if request.verbatim else ()), *((_USER,) if request.user else ()))
    named = selecting_fields((*ours, *names), request)
    if not named:
        return kept_for
    return (*named, *(field for field in kept_for if field[0] not in names))


# A server that answers across origins (CORS) chooses its answer by it, and often without saying so in Vary.
_ORIGIN: Final = b"origin"


def for_origin(kept_for: Selecting, request: Request, fields: Fields) -> Selecting:
    """The selecting header fields of a response, whose `fields` these are, with Origin.

    It is for requests from the same origin alone, or for those without, unless it allows every origin.
    """
    if first(fields, b"access-control-allow-origin") == b"*":
        return kept_for
    if _ORIGIN not in request.names:
        return without_origin(kept_for)
    return (*kept_for, (_ORIGIN, b"\n".join(values(request.fields, _ORIGIN))))


@lru_cache(maxsize=16)
def without_origin(kept_for: Selecting) -> Selecting:
    """The selecting header fields of requests that have no Origin, either: one object for each."""
    return (*kept_for, (_ORIGIN, None))


def joint_vary(old: Fields, new: Fields) -> Fields:
    """The Vary of stored content that a response with the fields `new` renews: no name is lost (§3.2, §4.1).

    The content was selected by the names that it came with. A 304 that leaves some of them out was made by
    software that never saw the content.
    """
    kept, added = values(old, b"vary"), values(new, b"vary")
    before, after = ({name.lower() for line in lines for name in members(line)} for lines in (kept, added))
    if before <= after:
        lines = added
    else:
        lacking = (name for line in added for name in members(line) if name.lower() not in before)
        lines = [b", ".join([*kept, *lacking])]
    return [(b"vary", line) for line in lines]


def selection_renewed(stored: Stored, renewed: Stored, request: Request) -> Selecting:
    """The selecting header fields of a stored response once an answer to this request has renewed it.

    The content keeps the values that it was selected by. Added names have the values of this request.
    """
    old = _own(stored)
    known = {name for name, _ in old}
    named = vary_names(renewed.fields) or ()
    added = selecting_fields(tuple(name for name in named if name not in known), request)
    known.update(named)
    return (*sorted((*old, *added)), *(field for field in renewed.vary if field[0] not in known))


def selection_beside(stored: Stored, held: Sequence[Stored], request: Request) -> Selecting:
    """The selecting header fields of a response that takes no place of those `held` that others select.

    A field that selects one response of a resource selects all of them: a response without Vary is the
    default one, for requests that express no preference (§4.1).
    """
    known = {name for name, _ in stored.vary}
    presented = dict[bytes, bytes | None]()
    others = [one for one in held if one.vary and not could_answer(one, request, presented)]
    names = {name for one in others for name in vary_names(one.fields) or ()} - known
    if not names or len(names) + len(known) > MOST_NAMES:
        return stored.vary
    own = _own(stored)
    kept_for = (field for field in stored.vary if field not in own)
    return (*sorted((*own, *selecting_fields(tuple(names), request))), *kept_for)


def selecting_fields(names: tuple[bytes, ...], request: Request) -> Selecting:
    """The selecting header fields of a request, normalized."""
    return tuple((name, _selecting(name, request)) for name in names)


def matches(stored: Stored, request: Request, presented: dict[bytes, bytes | None] | None = None) -> bool:
    """The selecting header fields of a request match those of the stored response's.

    `presented` keeps the fields read from the request, by name, for callers that compare several responses.
    """
    read = {} if presented is None else presented
    # When a cache receives a request that can be satisfied by a stored response that contains a Vary header
    # field, the cache MUST NOT use that stored response without revalidation unless all the presented request
    # header fields nominated by that Vary field value match those fields in the original request
    for name, value in stored.vary:
        if name == ODD:
            if not _is_ordinary(request, stored.vary):
                return False
            continue
        if name not in read:
            read[name] = _selecting(name, request)
        if read[name] != value and not (
            name == b"accept-language" and _prefers(read[name] or b"", stored.language)
        ):
            return False
    return True


def _is_ordinary(request: Request, selecting: Selecting) -> bool:
    ordinary = request.ordinary
    return ordinary is None or is_ordinary(request.names, ordinary, [name for name, _ in selecting])


def could_answer(stored: Stored, request: Request, presented: dict[bytes, bytes | None]) -> bool:
    """The request selects the response by its Vary, whomever the rules keep it for besides.

    So the answer to this request is about that response, too. `presented` as for `matches`.
    """
    if not stored.vary or matches(stored, request, presented):
        return True
    for name, value in _own(stored):
        if name not in presented:
            presented[name] = _selecting(name, request)
        if presented[name] != value:
            return False
    return True


def _own(stored: Stored) -> Selecting:
    """The selecting header fields of a stored response but those by which the rules keep it for some."""
    if _HINTS.isdisjoint([name for name, _ in stored.vary]):
        return stored.vary
    names = vary_names(stored.fields) or ()
    return tuple(
        [
            field
            for field in stored.vary
            if field[0] in names or field[1] is not None or field[0] not in _HINTS
        ]
    )


def _selecting(name: bytes, request: Request) -> bytes | None:
    if name[:1] == b":":
        return {_TARGET: request.verbatim, _USER: request.user}.get(name) or None
    return _normalized(name, request.fields)


def _normalized(name: bytes, fields: Fields) -> bytes | None:
    """One spelling for field values that mean the same; values above the limit stay as they are.

    None for an absent field. A field that is absent from a request, after any normalization, only matches a
    request without it (§4.1).
    """
    lines = [value for key, value in fields if key == name]
    if not lines:
        return None
    if name in _LITERAL:
        return b"\n".join(lines)  # no line holds one, so nothing else can look like two
    value = lines[0] if len(lines) == 1 else b",".join(lines)
    if len(value) <= 256:
        return _short(name in _WEIGHTED, value)
    return _long(name in _WEIGHTED, value) if len(value) <= LONGEST else value


def _spelling(weighted: bool, value: bytes) -> bytes:
    if weighted and (read := weights(value)) is not None:
        return b",".join(
            sorted({tag if weight == b"1" else b"%b;q=%b" % (tag, weight) for tag, weight in read})
        )
    if b'"' in value:
        # Blanks inside a quoted string are data.
        return value.strip(b" \t")
    return b",".join([member.strip(b" \t") for member in value.split(b",")])


# The memos stay below a megabyte and a half whatever clients send. Of long values there are enough for one
# request, which is asked several times on its way.
_short: Final = lru_cache(maxsize=1024)(_spelling)
_long: Final = lru_cache(maxsize=64)(_spelling)


def _prefers(languages: bytes, language: bytes | None) -> bool:
    """An Accept-Language prefers this language to every other: then its response is the one it would get."""
    return language is not None and len(languages) <= LONGEST and _preferred(languages) == language


@lru_cache(maxsize=64)
def _preferred(languages: bytes) -> bytes:
    """The one language that an Accept-Language prefers to every other, or b"" (RFC 9110 §12.5.4)."""
    read = weights(languages) or []
    best = max((float(weight) for _, weight in read), default=0.0)
    favourites = {tag for tag, weight in read if float(weight) == best}
    return favourites.pop() if best > 0 and len(favourites) == 1 else b""
