"""RFC 9111 as a judge of what a cache answers, from what its origin server has said before. Pure.

It imports no cache: it judges each response by the log of the origin server behind the cache alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

from tools.differential.script import Ask, Fields, content_of, label_of

SLACK = 1.1  # seconds: whole seconds in Age and in clocks
COLLAPSED = 0.5
MEMBER = re.compile(r'\s*([^\s=,;"]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^,]*))?\s*(?:,|$)')
# RFC 9110 §15.1
HEURISTIC = {200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501}
FORBID_STALE = {"must-revalidate", "proxy-revalidate", "no-cache", "s-maxage"}
# A request with one of these may get an answer of its own, which must not end what others get.
ODD = ("cookie", "authorization", "x-var")


class Level(Enum):
    """The weight of a verdict."""

    MUST = "RFC MUST"
    LAW = "older after newer"
    SHOULD = "RFC SHOULD"
    FREE = "allowed"


WEIGHTS = {Level.MUST: 4, Level.LAW: 3, Level.SHOULD: 2, Level.FREE: 1}


class How(Enum):
    """The source of a response."""

    HIT = "hit"
    VALIDATED = "validated"
    FORWARDED = "forwarded"
    OWN = "own"


class Verdict(NamedTuple):
    """One thing that a response did which a cache must not do, should not do, or need not do."""

    level: Level
    kind: str
    clause: str


class Said(NamedTuple):
    """One exchange of the cache with its origin server; the status 0 says that there was no answer."""

    serial: int
    ask: Ask
    came: float
    sent: float
    status: int
    fields: Fields
    version: int
    label: str

    @property
    def failed(self) -> bool:
        return self.status == 0 or self.status >= 500


class Got(NamedTuple):
    """A client's request and the response to it."""

    ask: Ask
    sent: float
    received: float
    status: int
    fields: Fields
    content: bytes

    @property
    def serial(self) -> int | None:
        """The number of the origin server's response that these fields are of; None if they are of none."""
        value = values(self.fields, "x-serial")
        return int(value) if value else None


def values(fields: Fields, name: str) -> str:
    """The combined value of a field, empty if there is none."""
    return ", ".join(value for key, value in fields if key == name)


def directives(fields: Fields) -> dict[str, str]:
    """The members of Cache-Control, the first of each name; an argument has no quotes."""
    members: dict[str, str] = {}
    for name, argument in MEMBER.findall(values(fields, "cache-control")):
        members.setdefault(name.lower(), argument.strip().strip('"'))
    return members


def seconds(argument: str | None) -> int | None:
    return int(argument) if argument is not None and argument.isdigit() else None


def date(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None


def lifetime(fields: Fields) -> float | None:
    """The explicit freshness lifetime for a shared cache (RFC 9111 §4.2.1), None if there is none."""
    said = directives(fields)
    for name in ("s-maxage", "max-age"):
        if name in said:
            return seconds(said[name]) or 0
    expires = values(fields, "expires")
    if not expires:
        return None
    until, since = date(expires), date(values(fields, "date"))
    return 0 if until is None or since is None else until - since


class State(NamedTuple):
    """A stored response as it was after `last` confirmed it: its fields, and the request that selects it."""

    first: Said
    last: Said
    fields: Fields

    def age(self, now: float) -> float:
        """The least age that it can have (RFC 9111 §4.2.3)."""
        return max(0.0, now - self.last.sent) + (seconds(values(self.last.fields, "age")) or 0)

    def could_answer(self, ask: Ask) -> bool:
        """Tell whether its Vary selects it for this request: otherwise no response updates it (§4.3.4)."""
        vary = values(self.fields, "vary")
        return label_of(vary, ask) == label_of(vary, self.last.ask)

    def updated(self, said: Said) -> State:
        """The state after a response whose fields replace those of the same names (§3.2).

        Vary gains names and loses none: the content was selected by those that it came with (§4.1).
        """
        new = {name for name, _ in said.fields}
        old = tuple(pair for pair in self.fields if pair[0] not in new or pair[0] == "vary")
        return State(self.first, said, (*old, *said.fields))

    def oldest(self, now: float) -> float:
        return now - self.last.came + (seconds(values(self.fields, "age")) or 0) + 1


def confirms(said: Said, first: Said) -> bool:
    """Tell whether a response says that the representation of an earlier one is current."""
    return (said.version, said.label) == (first.version, first.label) and (
        said.status == 304
        or (said.status == first.status and said.ask.method in {"GET", "HEAD"})
        or (said.status == 206 and first.status == 200)
    )


def states(history: Sequence[Said], version: int, label: str, status: int) -> Iterator[State]:
    """The states that a stored response of this version may have had, the latest first."""
    chain: list[State] = []
    for said in history:
        if (said.version, said.label) != (version, label) or said.ask.method not in {"GET", "HEAD"}:
            continue
        if said.status == 304 or freshens(said, status):
            latest = {state.first: state for state in chain if state.first.ask.method == "GET"}
            chain += [state.updated(said) for state in latest.values() if state.could_answer(said.ask)]
        if said.status == status or (said.status == 206 and status == 200):
            chain.append(State(said, said, said.fields))
    return reversed(chain)


def freshens(said: Said, status: int) -> bool:
    """Tell whether it is a response to HEAD that updates what a GET has brought (RFC 9111 §4.3.5)."""
    asked = said.ask.field("if-none-match") or said.ask.field("if-modified-since")
    return (
        said.ask.method == "HEAD" and said.status == status and bool(values(said.fields, "etag") or not asked)
    )


def how(history: Sequence[Said], got: Got) -> How:
    """The source of a response: stored, confirmed for this request, the origin server's, or the cache's."""
    if got.serial is None:
        return How.OWN
    source = history[got.serial]
    during = [said for said in history if got.sent <= said.came <= got.received]
    if source in during and source.status != 304:
        return How.FORWARDED
    if any(said.status == 304 and said.version == source.version for said in during):
        return How.VALIDATED
    return How.HIT


def judge(path: str, history: Sequence[Said], got: Got) -> list[Verdict]:
    """Everything that is wrong with a response, or less than a cache may do."""
    kind = how(history, got)
    if kind is How.OWN:
        return list(judged_own(history, got))
    source = history[got.serial or 0]
    verdicts = list(judged_message(path, history, source, got))
    before = [said for said in history if said.came < got.sent and said.sent < got.sent]
    if kind is How.HIT:
        verdicts += judged_hit(before, history, source, got)
    elif kind is How.FORWARDED:
        verdicts += judged_miss(before, got)
    return verdicts


def judged_own(history: Sequence[Said], got: Got) -> Iterator[Verdict]:
    """A cache's own answer says that the origin server did not answer, or may not be asked (§5.2.1.7)."""
    during = [said for said in history if got.sent <= said.came <= got.received]
    if "only-if-cached" in directives(got.ask.fields):
        if got.status != 504:
            yield Verdict(Level.SHOULD, f"only-if-cached gets {got.status}", "§5.2.1.7")
        return
    answered = [said for said in during if said.status]
    last = max(history, key=lambda said: said.came, default=None)
    if answered and not any(said.status == 0 for said in during):
        yield Verdict(Level.MUST, f"own {got.status} though the origin answered", "RFC 9110 §15.6")
    elif not during and (last is None or last.status):
        yield Verdict(Level.MUST, f"own {got.status} without asking", "RFC 9110 §15.6")
    if during and got.status < 500:
        yield Verdict(Level.MUST, f"own {got.status} for a dead origin", "RFC 9110 §15.6")


# The message -----------------------------------------------------------------------------------------------


def judged_message(path: str, history: Sequence[Said], source: Said, got: Got) -> Iterator[Verdict]:
    """Content, status and validators are of one version, and fit the request (RFC 9110 §13, §14)."""
    whole = content_of(path, source.version, source.label)
    ask = got.ask
    if got.status == 304:
        if not condition_fails(ask, source):
            yield Verdict(Level.MUST, "304 without a condition that asks for it", "RFC 9110 §13.2.2")
        return
    if got.status == 412 or got.status == 416:
        if not ask.field("range") and got.status == 416:
            yield Verdict(Level.MUST, "416 without Range", "RFC 9110 §15.5.17")
        return
    if got.status == 206:
        yield from judged_part(whole, source, got)
        return
    if ask.method == "HEAD":
        if got.content:
            yield Verdict(Level.MUST, "content to a HEAD", "RFC 9110 §9.3.2")
        return
    if got.content != whole:
        yield Verdict(Level.MUST, "content is of another version than the fields, or not whole", "§4.3.4")
    expected = {said.status for said in history if said.version == source.version} | {200}
    if got.status not in expected:
        yield Verdict(Level.MUST, f"status {got.status} that nobody sent", "§3.1")


def condition_fails(ask: Ask, source: Said) -> bool:
    """Tell whether the request has a condition to which 304 is the answer (RFC 9110 §13.2.2)."""
    tags = ask.field("if-none-match")
    if tags:
        opaque = values(source.fields, "etag").removeprefix("W/")
        return tags == "*" or opaque in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    since = date(ask.field("if-modified-since"))
    changed = date(values(source.fields, "last-modified")) or date(values(source.fields, "date"))
    return since is not None and changed is not None and changed <= since


def judged_part(whole: bytes, source: Said, got: Got) -> Iterator[Verdict]:
    """A part is one that was asked for, of a representation that If-Range names (RFC 9110 §13.1.5, §14)."""
    span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", values(got.fields, "content-range"))
    if not got.ask.field("range"):
        yield Verdict(Level.MUST, "206 without Range", "RFC 9110 §15.3.7")
    elif (
        span
        and got.ask.method == "GET"
        and (got.content != whole[int(span[1]) : int(span[2]) + 1] or span[3] not in {str(len(whole)), "*"})
    ):
        yield Verdict(Level.MUST, "206 with other content than it says", "RFC 9110 §14.4")
    named = got.ask.field("if-range")
    validators = {values(source.fields, "etag"), values(source.fields, "last-modified")} - {""}
    if named and (named.startswith("W/") or named not in validators):
        yield Verdict(Level.MUST, "206 though If-Range names another", "RFC 9110 §13.1.5")


# Reuse -----------------------------------------------------------------------------------------------------


def judged_hit(before: Sequence[Said], history: Sequence[Said], source: Said, got: Got) -> Iterator[Verdict]:
    """A stored response answers if one of its states may: RFC 9111 §4."""
    status = got.status if got.status not in {206, 304, 416, 412} else 200
    if source.status not in {206, 304}:
        status = source.status
    during = [said for said in history if got.sent <= said.came <= got.received]
    possible = [
        (list(judged_state(state, before, during, got)), state)
        for state in states(before, source.version, source.label, status)
    ]
    if not possible:
        yield Verdict(Level.MUST, "reused, but nobody sent it", "§3")
        return
    verdicts, state = min(possible, key=lambda pair: weight(pair[0]))
    yield from verdicts
    if weight(verdicts) < WEIGHTS[Level.LAW]:
        # Several states may answer. The fields are of one of them.
        yield from judged_age(next((of for _, of in possible if of.last is source), state), got)


def weight(verdicts: Sequence[Verdict]) -> int:
    """The weight of the weightiest."""
    return max((WEIGHTS[verdict.level] for verdict in verdicts), default=0)


def judged_age(state: State, got: Got) -> Iterator[Verdict]:
    value = values(got.fields, "age")
    if not value:
        # A response that another request is just being answered with need not have been stored.
        if state.age(got.sent) > COLLAPSED:
            yield Verdict(Level.MUST, "no Age in a hit", "§5.1")
        return
    least, most = state.age(got.sent) - SLACK, state.oldest(got.received) + SLACK
    if not least <= int(value) <= most:
        yield Verdict(Level.MUST, "wrong Age", "§4.2.3")


def judged_state(state: State, before: Sequence[Said], during: Sequence[Said], got: Got) -> Iterator[Verdict]:
    """The fault if this state of a stored response answers."""
    said, asked = directives(state.fields), state.last.ask
    renewed = " (by a 304)" if state.last.status == 304 else ""
    if state.first.ask.method == "HEAD" and got.ask.method != "HEAD":
        yield Verdict(Level.MUST, "a response to HEAD answers GET", "§4")
    if "no-store" in said:
        yield Verdict(Level.MUST, f"no-store is stored{renewed}", "§3, §5.2.2.5")
    if "private" in said and not said["private"]:
        yield Verdict(Level.MUST, f"private is stored{renewed}", "§3, §5.2.2.7")
    if "no-store" in directives(state.first.ask.fields):
        yield Verdict(Level.SHOULD, "the response to a request with no-store is stored", "§5.2.1.5")
    if "authorization" in dict(state.first.ask.fields) and not {
        "public",
        "s-maxage",
        "must-revalidate",
    } & set(said):
        yield Verdict(Level.MUST, "a response to Authorization is shared", "§3.5")
    vary = values(state.fields, "vary")
    if "*" in vary or label_of(vary, asked) != label_of(vary, got.ask):
        yield Verdict(Level.MUST, f"Vary selects another{renewed}", "§4.1")
    if "no-cache" in said and not said["no-cache"]:
        yield Verdict(Level.MUST, f"no-cache is reused{renewed}", "§5.2.2.4")
    yield from judged_freshness(state, before, during, got)
    # A fresh response may answer in place of an error, whatever the client would rather have.
    if not any(exchange.failed for exchange in during):
        yield from judged_directives(state, got)
    yield from contradicted(state, before, during, got)


def judged_freshness(
    state: State, before: Sequence[Said], during: Sequence[Said], got: Got
) -> Iterator[Verdict]:
    """A stale response answers only where that is allowed (RFC 9111 §4.2.4, RFC 5861)."""
    said, age = directives(state.fields), state.age(got.sent)
    fresh_for = lifetime(state.fields)
    renewed = " (by a 304)" if state.last.status == 304 else ""
    if fresh_for is None:
        if state.first.status not in HEURISTIC and "public" not in said:
            yield Verdict(Level.MUST, f"{state.first.status} without freshness is stored", "§3, §4.2.2")
        return
    stale_for = age - fresh_for - SLACK
    if stale_for < 0:
        return
    window = seconds(said.get("stale-while-revalidate"))
    most = seconds(directives(got.ask.fields).get("max-stale"))
    asked = "max-stale" in directives(got.ask.fields) and (most is None or stale_for <= most + SLACK)
    forbidden = {name for name in FORBID_STALE & set(said) if name != "no-cache" or not said[name]}
    if forbidden - {"s-maxage"}:
        yield Verdict(Level.MUST, f"stale in spite of {min(forbidden)}{renewed}", "§4.2.4")
    elif (window is not None and stale_for <= window) or asked:
        return
    elif any(exchange.failed for exchange in during) or (before and before[-1].failed):
        window = seconds(said.get("stale-if-error"))
        dead = not [exchange for exchange in during or before[-1:] if exchange.status and exchange.failed]
        if not (window is not None and stale_for <= window) and (forbidden or not dead):
            yield Verdict(Level.MUST, "stale on an error without stale-if-error", "§4.2.4")
    else:
        yield Verdict(Level.MUST, f"stale{renewed}", "§4.2.4")


def judged_directives(state: State, got: Got) -> Iterator[Verdict]:
    """A client's own directives are advice (RFC 9111 §5.2.1)."""
    said = directives(got.ask.fields)
    most = seconds(said.get("max-age"))
    if "no-cache" in said or (not said and "no-cache" in got.ask.field("pragma")):
        yield Verdict(Level.SHOULD, "a client's no-cache is ignored", "§5.2.1.4")
    if most is not None and "max-stale" not in said and state.age(got.sent) > most + SLACK:
        yield Verdict(Level.SHOULD, "a client's max-age is ignored", "§5.2.1.1")
    left, least = lifetime(state.fields), seconds(said.get("min-fresh"))
    if left is not None and least is not None and left - state.age(got.sent) < least - SLACK:
        yield Verdict(Level.SHOULD, "a client's min-fresh is ignored", "§5.2.1.3")


def contradicted(state: State, before: Sequence[Said], during: Sequence[Said], got: Got) -> Iterator[Verdict]:
    """An older response answers though the origin server has said something else since."""
    vary = values(state.fields, "vary")
    failing = any(said.failed for said in (*during, *before[-1:]))
    stale = failing or "stale-while-revalidate" in directives(state.fields)
    for said in before:
        earlier = said.came < state.last.sent or said is state.last
        if earlier or is_variant(said, before, got.ask):
            continue
        if updates(said, state, vary):
            yield Verdict(Level.MUST, "a 304 updates nothing", "§4.3.4")
            return
        if confirms_state(said, state, vary, got.ask):
            continue
        if said.ask.method == "POST":
            if 200 <= said.status < 400:
                yield Verdict(Level.MUST, "reused after an unsafe method", "§4.4")
                return
            continue
        if said.failed or said.status == 429 or not speaks_for(said, state, vary, got.ask):
            continue
        yield Verdict(*contradiction(said, state, stale=stale))
        return


def is_variant(said: Said, before: Sequence[Said], ask: Ask) -> bool:
    """Tell whether a later response is for others: a field that selects one of a URL selects all (§4.1).

    Its own Vary tells of older ones only that they are for requests without the fields that it had; that of a
    304 is the older one's own from then on.
    """
    selecting = {name for each in before if each is not said for name in names(values(each.fields, "vary"))}
    if said.status != 304:
        selecting |= {name for name in names(values(said.fields, "vary")) if said.ask.field(name)}
    return any(said.ask.field(name) != ask.field(name) for name in selecting)


def updates(said: Said, state: State, vary: str) -> bool:
    """Tell whether a later 304 has selected this stored response, whose fields are the 304's since then."""
    selected = label_of(vary, said.ask) == label_of(vary, state.last.ask)
    return said.status == 304 and selected and confirms(said, state.first)


def confirms_state(said: Said, state: State, vary: str, ask: Ask) -> bool:
    """A later response says the same of this state, and selects no less by Vary."""
    if not confirms(said, state.first):
        return False
    theirs = values(said.fields, "vary") or vary
    return label_of(theirs, said.ask) == label_of(theirs, ask) or names(theirs) <= names(vary)


def names(vary: str) -> set[str]:
    return {name.strip().lower() for name in vary.split(",") if name.strip()}


def speaks_for(said: Said, state: State, vary: str, ask: Ask) -> bool:
    """Tell whether a later response is about the resource that would answer this request."""
    theirs = values(said.fields, "vary") or (vary if said.status == 304 else "")
    if label_of(vary, said.ask) != label_of(vary, state.last.ask) and theirs == vary:
        return False
    if "*" not in theirs and label_of(theirs, said.ask) == label_of(theirs, ask):
        return True
    selected = label_of(vary, said.ask) == label_of(vary, state.last.ask)
    return selected and not names(theirs) <= names(vary)


def forgotten(said: Said) -> bool:
    """A cache keeps no part of a response to a request with no-store, and need not know of it (§5.2.1.5)."""
    return "no-store" in directives(said.ask.fields)


def shared(said: Said) -> bool:
    """Tell whether a response may be stored, and answer other clients."""
    kept = directives(said.fields)
    asked = "authorization" in dict(said.ask.fields)
    if asked and not {"public", "s-maxage", "must-revalidate"} & set(kept):
        return False
    held = bool({"no-store", "private", "no-cache"} & set(kept)) or "*" in values(said.fields, "vary")
    held = held or bool(values(said.fields, "set-cookie")) or forgotten(said)
    return (
        said.status in HEURISTIC - {206}
        and said.ask.method == "GET"
        and not held
        and (lifetime(said.fields) or 0) > 0
    )


def contradiction(said: Said, state: State, *, stale: bool) -> tuple[Level, str, str]:
    """The weight of a contradiction: a response that one client's request provoked ends nothing."""
    kept = directives(said.fields)
    what = "304" if said.status == 304 else "404 or 410" if said.status in {404, 410} else str(said.status)
    if said.status == 304 and not confirms(said, state.first):
        what = "304 for another validator"
    for name in ("no-store", "private"):
        if name in kept:
            what += f" {name}"
    if "*" in values(said.fields, "vary"):
        what += " Vary: *"
    elif names(values(said.fields, "vary")) - names(values(state.fields, "vary")):
        what += " with another Vary"
    selecting = names(values(state.fields, "vary"))
    odd = any(said.ask.field(name) for name in ODD if name not in selecting)
    other = label_of(values(state.fields, "vary"), said.ask) != label_of(
        values(state.fields, "vary"), state.last.ask
    )
    odd = odd or forgotten(said)
    if (odd or other) and not shared(said):
        return Level.FREE, f"older after a {what} to an odd {said.ask.method}", "allowed"
    # One client's request can bring about an error that is nobody else's: a field that is too long. A request
    # in the background, which is the cache's own, cannot.
    forced = said.ask.field("cache-control") or said.ask.field("pragma")
    own = "stale-while-revalidate" in directives(state.fields) and not forced
    if not own and said.status >= 400 and said.status not in {404, 410}:
        return Level.FREE, f"older after a {what} to a client", "allowed"
    # RFC 9111 §4.3.5: what a HEAD contradicts is stale, and may be served stale.
    if said.ask.method == "HEAD" and stale:
        return Level.FREE, f"stale after a {what} to a HEAD", "allowed"
    return Level.LAW, f"older after a {what} to a {said.ask.method}", "§4, §4.3.3, §4.3.4"


# A miss ----------------------------------------------------------------------------------------------------


def judged_miss(before: Sequence[Said], got: Got) -> Iterator[Verdict]:
    """A cache may always ask; where something fresh was there, that is said."""
    if got.ask.method not in {"GET", "HEAD"} or directives(got.ask.fields) or got.ask.field("pragma"):
        return
    for said in reversed(before):
        if said.ask.method != "GET" or said.status in {0, 206, 304}:
            continue
        state = next(states(before, said.version, said.label, said.status))
        if lifetime(state.fields) is None or values(state.fields, "set-cookie"):
            continue
        if (lifetime(state.fields) or 0) - state.oldest(got.received) < 0:
            continue
        if not list(judged_state(state, before, [], got)):
            yield Verdict(Level.FREE, f"asked though {said.status} is fresh", "§4")
        return
