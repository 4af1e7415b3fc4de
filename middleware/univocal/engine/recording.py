"""A response on its way into the store: judged at its head, committed at its end (RFC 9111 §3, §4.3)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from univocal.cache.decide import Forward, Validate, reuse_on_error
from univocal.cache.directives import MAX_TAGS
from univocal.cache.personal import SINGLE, oddities
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, Unstorable, complete, may_store, uncollapsed_seconds
from univocal.cache.validation import (
    Effect,
    Findings,
    Requester,
    changes_use,
    combine,
    effect_of,
    foremost,
    freshen,
    likeness_of,
    requester_of,
    selected,
)
from univocal.cache.vary import selection_beside
from univocal.http.messages import NO_NAMES, Response, coding_of, content_length, entity_tag, first
from univocal.http.tables import moves
from univocal.judge.admission import Admission
from univocal.store.purge_selectors import Variants
from univocal.store.tiers import Tiers, is_among

# The bytes that a chunk takes besides its own: content in crumbs takes more than its length.
_OBJECT: Final = sys.getsizeof(b"") + 8


class State:
    """A state of a response on its way, with the data of this state alone."""


class Awaited(State):
    """The origin server has not answered yet."""


class Kept(State):
    """It is an answer, and its content is kept to be stored."""

    def __init__(self, storing: Stored) -> None:
        self.storing = storing  # the head as it will be stored


class PassedOn(State):
    """It is an answer, and nothing of it is stored."""


class Completing(State):
    """It is the part that a stored response lacks."""

    def __init__(self, head: Response, stored: Stored) -> None:
        self.head = head
        self.stored = stored


class Updated(State):
    """A stored response is renewed or completed by it, and answers."""

    def __init__(self, stored: Stored, head: Response) -> None:
        self.stored = stored
        self.head = head


class Mismatched(State):
    """It is of another representation than what is stored: all of it is to be asked for."""


MOVES: Final[Mapping[type[State], Mapping[type[State], str]]] = {
    Awaited: {
        Kept: "it may be stored",
        PassedOn: "it may not be stored",
        Completing: "it is the rest of a stored part",
        Updated: "it is a 304 to our condition",
        Mismatched: "it answers a condition or a range of ours, and is about no stored response",
    },
    Kept: {PassedOn: "it is too large, or will not be complete"},
    PassedOn: {},
    Completing: {
        Updated: "the part is complete",
        Mismatched: "it does not fit the part, or there is no room",
    },
    Updated: {},
    Mismatched: {Awaited: "all of it is asked for"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)

_AWAITED: Final = Awaited()
PASSED_ON: Final = PassedOn()


class Recording:
    """Keeps one response of the origin's as it is, or takes it to renew a stored one.

    A response that is purged from the beginning on is not stored. One `for_others` has its lease from there.
    Another one has it from its head on, and only if it is stored, as far as the tiers allow that. The lease
    reserves room for each of the `chunks` that are kept, and for content that a head announces. `whole` is
    all of the content once it is complete.
    """

    def __init__(
        self, tiers: Tiers, admission: Admission, clock: Callable[[], float], *, for_others: bool = True
    ) -> None:
        assert admission.lookup is not None
        assert isinstance(admission.decision, (Validate, Forward))
        self.state: State = _AWAITED
        self.response: Response | None = None  # the origin server's head
        self.stored = False  # or will be, as far as is known
        self.stored_at_head = False  # as far as is known at the head: what is purged until then is not stored
        self.unstorable = ""  # the token that says why what answers is not stored, once that is known
        self.forbidden = ""  # the token that says why nothing of it is stored, whatever it says
        self._tiers = tiers
        self.lookup = lookup = admission.lookup
        self._key = lookup.canonical.key
        self._admission = admission
        self.decision: Validate | Forward = admission.decision
        self._clock = clock
        self._for_others = for_others
        if lookup.asked is None and not for_others:
            lookup.number = tiers.number
        self.began = clock() if lookup.asked is None else lookup.asked
        if for_others or lookup.number is None:
            lookup.lease = tiers.begin(self._key, self.began)
        self._length = 0  # of the content that is kept, as the head announces it
        self.chunks: list[bytes] = []
        self.whole: bytes | None = None
        self._ahead = 0  # bytes reserved for content that is still to come
        self._shortages = tiers.memory.shortages

    @property
    def current(self) -> bool:
        """True while nothing has purged this response since it was asked for."""
        state, lease = self.state, self.lookup.lease
        storing = state.storing if isinstance(state, Kept) else None
        return lease is not None and self._tiers.holds(lease, storing)

    def restart(self, decision: Validate | Forward) -> None:
        """Ask anew for another decision, under the same lease."""
        if not isinstance(self.state, Awaited):
            _MOVES[type(self.state), Awaited]
            self.state = Awaited()
        self.decision = decision
        self._discard()

    def validate(self, asked: Validate, response: Response, then: Callable[[Response], None]) -> None:
        """Take the response to a condition of ours, or to a range, and go on with `then`, which gets it.

        It is news of the stored response, or an answer itself.
        """
        subject = _subject_of(asked, response.status)
        if subject is None:
            self.assess(response)
            then(response)
        else:
            self.response = response
            assert self.lookup.lease is not None
            heard = partial(self._hear, response, subject, then)
            self._tiers.keeps(self.lookup.lease, subject, self._clock(), heard)

    def write(self, chunk: bytes, *, unread: bool = False) -> bool:
        """Keep a chunk of the content; False if nothing of it is kept any longer.

        Memory that has run out since is for answers: what was reserved then would be asked of it still.
        `unread` tells whether it comes far ahead of who reads it, which matters to content without a length.
        """
        assert self.lookup.lease is not None
        memory, cost = self._tiers.memory, len(chunk) + _OBJECT
        announced = min(cost, self._ahead)
        self._ahead -= announced
        if memory.shortages == self._shortages and (
            announced == cost
            or memory.reserve(self.lookup.lease, cost - announced, unread=not announced and unread)
        ):
            self.chunks.append(chunk)
            return True
        if isinstance(self.state, Completing):
            # The rest of a stored part is of no use unless all of it is there.
            self._discard()
            _MOVES[type(self.state), Mismatched]
            self.state = Mismatched()
        else:
            too_large = self._cost + cost > memory.max_object_bytes
            self.stop_collapsing(200 if too_large else 0)
            self._remove(self._selected())  # it could be stored but for its size
            self.drop("too-large" if too_large else "no-room")
        return False

    @property
    def _cost(self) -> int:
        """The bytes of memory that the chunks take."""
        return sum(map(len, self.chunks)) + _OBJECT * len(self.chunks)

    def _discard(self) -> None:
        """Keep no chunk any longer, and give their room back."""
        if self.chunks and self.lookup.lease is not None:
            self._tiers.memory.reserve(self.lookup.lease, -self._cost)
        self.chunks.clear()

    def stop_collapsing(self, status: int = 0) -> None:
        """Have requests for this key wait for no other for a while: the answer served no other.

        The status 0 says that it is no answer, or that the next may be stored.
        """
        request, rules, now = self._admission.request, self._admission.rules, self._clock()
        # A cookie may have brought it about: whoever has none of that name goes on waiting for others.
        names, ordinary = request.names, rules.ordinary
        odd = NO_NAMES if names <= ordinary else oddities(request, ordinary)
        odd |= SINGLE & names
        self._tiers.memory.stop_collapsing(self._key, now + uncollapsed_seconds(rules, status), odd)

    def drop(self, why: str) -> None:
        """Keep nothing of the content any longer; `why` is the token that says so.

        Its room stays reserved: readers may hold it.
        """
        self.stored = False
        self.unstorable = why
        self.chunks.clear()
        _MOVES[type(self.state), PassedOn]
        self.state = PassedOn()

    def complete(self, part: Completing, then: Callable[[], None]) -> None:
        """Complete the stored response by the part whose content has come, and go on with `then`."""
        assert self.lookup.lease is not None
        combine_it = partial(self._combine, part, b"".join(self.chunks), then)
        self._tiers.keeps(self.lookup.lease, part.stored, self._clock(), combine_it)

    def finish(self, storing: Stored) -> None:
        """Commit the kept response, whose content is complete, unless a newer one is stored."""
        try:
            body = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        except MemoryError:
            self._tiers.memory.relieve()
            self.drop("no-room")
            return
        said = None if self.response is None else self.response.instructions
        if said is not None:
            self._take_late_tags(storing, said.tags)
        lease = self.lookup.lease
        if not isinstance(self.state, Kept) or lease is None:
            return
        self.whole, self.stored = body, False
        held = self.lookup.held(self._tiers, self._clock())
        if held:
            self._set_beside(storing, held)
        stored = complete(storing, body)
        if stored is None:
            self.unstorable = "incomplete"
        elif held and not self._remove_older(stored, held):
            self.unstorable = "outdated"
        elif not self._tiers.commit(lease, stored):
            self.unstorable = "purged"
        else:
            self.stored = True
            if self._admission.codings:
                self._tiers.compression.prepare(stored, self._admission.codings)
            if not self._for_others:
                self._collapse_again()

    def _take_late_tags(self, storing: Stored, tags: set[bytes]) -> None:
        """Add the tags that the application has given while its content came."""
        if not tags <= storing.tags:
            storing.tags |= tags
            if len(storing.tags) > MAX_TAGS:
                self.drop("tags")

    def _set_beside(self, storing: Stored, held: Sequence[Stored]) -> None:
        """Have the response selected by what selects the others of its key whose place it does not take."""
        storing.vary = selection_beside(storing, held, self._admission.request)

    def _remove_older(self, stored: Stored, held: Sequence[Stored]) -> bool:
        """Remove the older responses in whose place this one is to be stored; False if one is newer."""
        others, now = selected(self._admission.request, held), self._clock()
        # Another node's clock may be ahead.
        newer = [one for one in others if stored.response_time < one.response_time <= now]
        if any(one.whole for one in newer):
            return False
        if self.current:
            older = [one for one in others if one not in newer]
            self._supersede(older, stored)
        else:  # a purge keeps the answer from taking their place, and not from ending them
            self._remove([one for one in others if one.response_time < stored.response_time])
        return True

    def still_stored(self) -> Stored | None:
        """The response that has been stored, unless something has removed it since."""
        body, state = self.whole, self.state
        if not self.stored or not isinstance(state, Kept) or body is None or self.lookup.lease is None:
            return None
        held = self.lookup.held(self._tiers, self._clock())
        return complete(state.storing, body) if is_among(held, state.storing) else None

    def give_up(self) -> None:
        """Wait no longer for the rest of the content, which is as good as too large."""
        if isinstance(self.state, Kept):
            self._remove(self._selected())
        self.unstorable = self.unstorable or "too-large"

    def fail(self) -> None:
        """Handle content that is cut."""
        self.stored = False
        self.unstorable = self.unstorable or "incomplete"

    def _hear(
        self, response: Response, subject: Stored, then: Callable[[Response], None], kept: bool
    ) -> None:
        """Take a 304, or the 206 that was asked for, for news of a stored response, if that is `kept`."""
        if not kept:
            # A purged response is neither freshened nor completed.
            _MOVES[type(self.state), Mismatched]
            self.state = Mismatched()
        elif response.status == 304:
            admission, now = self._admission, self._clock()
            updated = freshen(subject, Fetched(admission.request, response, self.began, now), admission.rules)
            self._renew(updated, subject, response)
        else:
            _MOVES[type(self.state), Completing]
            self.state = Completing(response, subject)
        then(response)

    def _combine(self, part: Completing, body: bytes, then: Callable[[], None], kept: bool) -> None:
        """Complete a stored response, if it is `kept`, by a 206's content."""
        request, rules, old, now = self._admission.request, self._admission.rules, part.stored, self._clock()
        combined = combine(old, Fetched(request, part.head, self.began, now), body, rules) if kept else None
        self._renew(combined, old, part.head)
        then()

    def _renew(self, updated: Stored | None, old: Stored, head: Response) -> None:
        if updated is None:
            _MOVES[type(self.state), Mismatched]
            self.state = Mismatched()
            return
        _MOVES[type(self.state), Updated]
        self.state = Updated(updated, head)
        older = [old, *self._selected()]
        answer = Findings(b"GET", 304, self._requester(304, older))
        if not updated.reusable:
            changed = changes_use(old, updated, self._admission.rules)
            shorter = updated.lifetime < old.lifetime
            answer = answer._replace(unstorable="renewed", changes_use=changed, shortens=shorter)
        self._carry_out(effect_of(answer), older, updated)

    def assess(self, response: Response) -> None:
        """Decide what becomes of a response by its head, which is complete without a stored one."""
        self.response, now = response, self._clock()
        status = response.status if isinstance(self.decision, Validate) else 0
        if status == 412 or (status == 416 and b"range" not in self._admission.request.names):
            # The condition or the range was ours: it tells nothing to a client that asked for the whole.
            _MOVES[type(self.state), Mismatched]
            self.state = Mismatched()
            return
        verdict = self._consider(response, now)
        lookup = self.lookup
        if lookup.lease is None:
            if isinstance(verdict, Unstorable) and not lookup.held(self._tiers, now):
                self.unstorable = verdict.reason
                _MOVES[type(self.state), PassedOn]
                self.state = PassedOn()
                return
            lookup.lease = self._tiers.begin(self._key, self.began, lookup.number)
        lease = lookup.lease
        if self._length and isinstance(verdict, Stored):
            # Room for one chunk: each further one needs a little more for its object.
            room = self._length + _OBJECT
            if self._tiers.memory.reserve(lease, room):
                self._ahead = room
            else:
                self.stop_collapsing()
                verdict = Unstorable("no-room")
        held = lookup.held(self._tiers, now)
        if held:
            verdict = self._outdate(held, response, verdict, now)
            self._doubt(response, verdict)
        if isinstance(verdict, Unstorable):
            self.unstorable = verdict.reason
            _MOVES[type(self.state), PassedOn]
            self.state = PassedOn()
            return
        if held:
            self._set_beside(verdict, held)
        self.stored = True
        _MOVES[type(self.state), Kept]
        self.state = Kept(verdict)
        self.stored_at_head = self._tiers.holds(lease, verdict)
        if not self.stored_at_head:
            self.unstorable = "purged"

    def _outdate(
        self, held: Sequence[Stored], response: Response, verdict: Stored | Unstorable, now: float
    ) -> Stored | Unstorable:
        """Apply the answer's effect to older responses; returns the verdict about the answer itself."""
        admission, older = self._admission, selected(self._admission.request, held)
        # A 304 to a client's own condition is not about what is stored here.
        if not older or (response.status == 304 and self._passes_conditions):
            return verdict
        method, old = admission.request.method, foremost(older)
        answer = Findings(
            method,
            response.status,
            self._requester(response.status, older),
            isinstance(self.decision, Validate),
            verdict.reason if isinstance(verdict, Unstorable) else "",
            likeness_of(old, response),
            old.whole and old.status == 200,
        )
        effect, renewed = effect_of(answer), None
        if effect is Effect.CONFIRMS:
            renewed = freshen(old, Fetched(admission.request, response, self.began, now), admission.rules)
            effect = Effect.AGES if renewed is None else effect
            effect = Effect.ENDS if renewed is not None and not renewed.reusable else effect
        replaces = effect is Effect.REPLACES or isinstance(verdict, Unstorable)
        if not replaces:
            assert self.lookup.lease is not None
            self._tiers.memory.reserve(self.lookup.lease, -self._ahead)
            self._ahead = 0
        self._carry_out(effect, older, renewed)
        if replaces:
            return verdict  # what it replaces goes when all of it has come
        return Unstorable("head" if method == b"HEAD" else "partial")

    def _doubt(self, response: Response, verdict: Stored | Unstorable) -> None:
        """Take an entity-tag that comes with two codings for no strong validator (RFC 9110 §8.8.1)."""
        assert self.lookup.lease is not None
        etag = entity_tag(first(response.fields, b"etag"))
        if etag is None or self._admission.request.method != b"GET" or response.status not in {200, 206}:
            return
        coding = coding_of(response.fields)
        for one in self.lookup.held(self._tiers, self._clock()):
            if one.etag == etag and coding_of(one.fields) != coding:
                if one.strong is not None:
                    self._tiers.commit(self.lookup.lease, replace(one, strong=None))
                if isinstance(verdict, Stored):
                    verdict.strong = None

    def _carry_out(self, effect: Effect, older: list[Stored], renewed: Stored | None = None) -> None:
        """Have all nodes do to older responses what an answer does to them."""
        match effect:
            case Effect.CONFIRMS:
                assert renewed is not None
                self._supersede(older, renewed)
                assert self.lookup.lease is not None
                self._tiers.commit(self.lookup.lease, renewed)
            case Effect.ENDS | Effect.AGES:
                self._remove(older, soft=effect is Effect.AGES)
            case Effect.REPLACES | Effect.LEAVES:
                pass

    def _supersede(self, older: list[Stored], stored: Stored) -> None:
        """Remove older responses in whose place another is about to be stored."""
        place = stored.key, stored.vary
        gone = [one for one in older if (one.key, one.vary) != place or (one.whole and not stored.whole)]
        if gone:
            self._remove(gone)

    def _remove(self, older: list[Stored], *, soft: bool = False) -> None:
        if not older:
            return
        now = self._clock()
        names = frozenset((one.key, one.vary) for one in older)
        # Another node's clock may be ahead.
        until = max(now, *(one.response_time for one in older))
        assert self.lookup.lease is not None
        self._tiers.drop(self.lookup.lease, Variants(names, until, soft=soft), now)

    def _selected(self) -> list[Stored]:
        """The stored responses that the request selects."""
        held = self.lookup.held(self._tiers, self._clock())
        return selected(self._admission.request, held) if held else []

    def _consider(self, response: Response, now: float) -> Stored | Unstorable:
        """The response as it would be stored; or why it is not, which is remembered if it is so for all."""
        decision, request, rules = self.decision, self._admission.request, self._admission.rules
        if response.status == 304 and self._passes_conditions:
            return self._consider_304(response, now)
        if (
            decision.fallback is not None
            and reuse_on_error(decision, request, rules, response.status, now) is not None
        ):
            return Unstorable("error")  # what something stale is served for does not replace it
        judged = may_store(self._key, Fetched(request, response, self.began, now), rules)
        judged = Unstorable(self.forbidden) if self.forbidden else judged
        if isinstance(judged, Stored):
            length = content_length(response.fields) or 0
            self._length = 0 if judged.bodiless else length
            most = self._tiers.memory.max_object_bytes
            if judged.part is not None and not 0 < (judged.part.complete or 0) <= most:
                self.stop_collapsing(response.status)  # others cannot get theirs from the whole
            if length <= most:
                return judged
            judged = Unstorable("too-large")
        if request.method == b"GET":
            self.stop_collapsing(response.status)
        return judged

    @property
    def in_whole(self) -> bool:
        """True if it is part of what could be stored as a whole."""
        state = self.state
        part = state.storing.part if isinstance(state, Kept) else None
        return part is not None and 0 < (part.complete or 0) <= self._tiers.memory.max_object_bytes

    def _consider_304(self, response: Response, now: float) -> Unstorable:
        """Hear from the answer to a client's own condition whether a 200 could be stored again."""
        request, rules = self._admission.request, self._admission.rules
        whole = replace(response, status=200)
        verdict = may_store(self._key, Fetched(request, whole, self.began, now), rules)
        if isinstance(verdict, Stored) and verdict.lifetime > 0:
            self._collapse_again()
        return Unstorable("unstorable-before")

    def _collapse_again(self) -> None:
        """Record that responses to requests like this one can be stored."""
        odd = oddities(self._admission.request, self._admission.rules.ordinary)
        self._tiers.memory.collapse_again(self._key, odd)
        self._tiers.memory.collapse_again(self._key)

    @property
    def _passes_conditions(self) -> bool:
        return isinstance(self.decision, Forward) and self.decision.passes_conditions

    def _requester(self, status: int, older: Sequence[Stored]) -> Requester:
        admission = self._admission
        if admission.ours:
            return Requester.OURSELVES
        return requester_of(admission.request, status, admission.rules, older)


def _subject_of(decision: Validate, status: int) -> Stored | None:
    """The stored response that the origin's is about, if it is not an answer itself."""
    return decision.stored if status == 304 or (decision.reason == "partial" and status == 206) else None
