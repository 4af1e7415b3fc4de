"""Access to a site or a route: by network, fields, method, rate, a password, and another server's word.

Nothing here waits: a password that is not known yet is a `Challenge`, which somebody else verifies.
"""

from __future__ import annotations

import math
import re
from binascii import a2b_base64
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from univocal.http.grammar import split_absolute
from univocal.http.intermediary import AS_CGI_READS
from univocal.http.messages import Fields, values
from univocal.judge.forward_auth import ForwardAuth, Grant, Question
from univocal.judge.trust import Networks, Peer, client_name, within
from univocal.store.purge_selectors import STEPS, Pattern, compiled
from univocal.uri.query import split
from univocal.uri.readings import spelled_alike
from univocal.uri.target import Canonical

RATES: Final = 'requests and their time, such as "10/s", "100/m burst 20" or "1000/h"'
MOST_CLIENTS: Final = 65_536  # whose rates are remembered: some 10 MB in one process

_RATE: Final = re.compile(r"([1-9][0-9]{0,6})/([smh])(?: burst ([1-9][0-9]{0,6}))?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_BASIC: Final = re.compile(rb"basic +([A-Za-z0-9+/]+={0,2})[ \t]*", re.IGNORECASE)  # RFC 7617 §2
_LONGEST: Final = 1024  # bytes of credentials


class Rate(NamedTuple):
    """Requests of one client: so many seconds for each, and how many may come at once."""

    interval: float
    burst: int


def rate_of(text: str) -> Rate:
    """The rate that a text means; without a burst, its number may come at once. Raises ValueError."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(RATES)
    count = int(match[1])
    return Rate(_SECONDS[match[2]] / count, int(match[3] or count))


CONDITIONS: Final = '"method", "target", or such as "header:User-Agent" or "cookie:session"'
_SUBJECT: Final = re.compile(r"method|target|(header|cookie):([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256})")
_MOST_LINES: Final = 4  # of one field, and values of one cookie: more are too long to be searched
_MOST_READINGS: Final = 64  # of a path, likewise
_MOST_BYTES: Final = 64 << 10  # of these readings
# Of RE2's for several expressions in one search: a value of 8 KiB is not too long for it.
_JOINED: Final = STEPS // 8_192

_BLANK: Final = re.compile(rb"[ \t]")

_Test: TypeAlias = Callable[[bytes], bool]


class RequestLine(NamedTuple):
    """The method of a request, and its path and query as they came and in their canonical spelling.

    `canonical` has the readings of the path; without it there are no others.
    """

    method: bytes = b"GET"
    targets: tuple[bytes, ...] = (b"/",)
    canonical: Canonical | None = None


def request_line(method: bytes, target: bytes, canonical: Canonical) -> RequestLine:
    """The line of a request for a `target` in origin-form or absolute-form (RFC 9112 §3.2)."""
    absolute = None if target[:1] == b"/" else split_absolute(target)
    if absolute is not None:
        target = absolute.rest if absolute.rest[:1] == b"/" else b"/" + absolute.rest
    return RequestLine(method, (target, canonical.target), canonical)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the method, the target, a field or a cookie: it refuses what meets it, or all else."""

    kind: str  # method, target, header or cookie
    name: bytes
    tests: tuple[_Test, ...]
    is_required: bool
    reading_tests: tuple[_Test, ...] = ()  # of the readings of a path, with the query
    path_tests: tuple[_Test, ...] = ()  # of these readings alone

    def refuses(self, line: RequestLine, fields: Fields) -> bool:
        """Tell whether a request has no access: each value of several counts, and a missing one is empty.

        Values that are too many to be searched have no access either way.
        """
        found = self._values(line, fields)
        readings = _readings(line.canonical) if self.kind == "target" else []
        if found is None or readings is None:
            return True
        if self.is_required and len(readings) == 1:
            readings = []  # no server takes the path for another
        met = [_is_met(self.tests, value) for value in found]
        met += [
            _is_met(self.path_tests, path) or _is_met(self.reading_tests, both) for path, both in readings
        ]
        return not all(met) if self.is_required else any(met)

    def _values(self, line: RequestLine, fields: Fields) -> Sequence[bytes] | None:
        """The values; None: there are too many of them."""
        if self.kind == "method":
            return [line.method]
        if self.kind == "target":
            return line.targets
        if self.kind == "cookie":
            return _cookies(values(fields, b"cookie"), self.name, is_whole=self.is_required)
        lines = values(fields, self.name)
        if self.is_required:
            return _joins(lines, self.name) if len(lines) <= _MOST_LINES else None
        read = self.name.translate(AS_CGI_READS)
        alike = [value for name, value in fields if name.translate(AS_CGI_READS) == read]
        if len(alike) > _MOST_LINES:
            return None
        joins = _joins(lines, self.name)
        return joins if len(alike) == len(lines) else [*joins, *_joins(alike, self.name)]


def _is_met(tests: Sequence[_Test], value: bytes) -> bool:
    return any(test(value) for test in tests)


def _joins(lines: Sequence[bytes], name: bytes) -> list[bytes]:
    """The lines of a field, and all of them as one: servers take the first, the last or their join."""
    if len(lines) < 2:
        return [*lines] or [b""]
    signs = (b", ", b",", b"; ") if name == b"cookie" else (b", ", b",")
    return [*lines, *[sign.join(lines) for sign in signs]]


def _cookies(lines: Sequence[bytes], name: bytes, *, is_whole: bool) -> list[bytes] | None:
    """The values of a cookie, as strict and lenient servers divide lines; None: there are too many.

    If `is_whole`, these are the values up to a semicolon, as they came. Else they are also cut at a comma and
    at a blank, as Python's http.cookies does, and without quotation marks.
    """
    lines = [line for line in lines if name in line.lower()]
    if len(lines) > _MOST_LINES:
        return None
    strict, lenient = _cookie_patterns(name)
    found, begun = list[bytes](), list[tuple[bytes, int]]()
    for line in lines:
        begun += [(line, each.end()) for each in islice(lenient.finditer(line), _MOST_LINES + 1)]
        found += [each[1] for each in islice(strict.finditer(line), _MOST_LINES + 1)]
    found = found or [b""]
    if max(len(found), len(begun)) > _MOST_LINES:
        return None
    for line, start in begun:
        whole = line[start:].partition(b";")[0]
        found.append(whole)
        if not is_whole:
            for each in (whole, whole.partition(b",")[0], _BLANK.split(whole, maxsplit=1)[0]):
                found += [each.strip(b" \t"), each.strip(b' \t"')]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=1024)
def _cookie_patterns(name: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """The patterns of a cookie and its value, and of what stands before the value."""
    escaped = re.escape(name)
    strict = re.compile(rb"(?:^|[;,]) *%b *= *([^;]*)" % escaped, re.IGNORECASE)
    return strict, re.compile(rb"(?:^|[;, \t])[ \t]*%b[ \t]*=[ \t]*" % escaped, re.IGNORECASE)


def _readings(canonical: Canonical | None) -> list[tuple[bytes, bytes]] | None:
    """The readings of a path, without and with the query; None: it may be any path, or has too many."""
    if canonical is None or canonical.target[:1] != b"/":
        return []
    readings = canonical.readings
    if readings.everywhere or len(readings.folded) > _MOST_READINGS:
        return None
    query = split(canonical.verbatim or canonical.target)[1]
    listed = [(path, path + query) for path in readings.folded]
    return listed if sum([len(both) for _, both in listed]) <= _MOST_BYTES else None


def condition_of(subject: str, texts: Sequence[str], *, is_required: bool) -> Condition:
    """The condition on `subject`; each text is a value, or "~" and an expression. Raises ValueError."""
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        raise ValueError(CONDITIONS)
    if any("\n" in text for text in texts):
        raise ValueError("texts without a newline: no value has one")
    expected = frozenset([text.encode() for text in texts if text[:1] != "~"])
    expressions = [text[1:] for text in texts if text[:1] == "~"]
    if not all(map(str.isascii, expressions)):
        raise ValueError(r'ASCII in an expression: other bytes as "\xC3\xA9"')
    tests = _tests(expected, expressions, is_long_met=not is_required)
    reading_tests: tuple[_Test, ...] = ()
    path_tests: tuple[_Test, ...] = ()
    if subject == "target":
        spelled = frozenset([each for text in expected for each in _spelled_alike(text)])
        reading_tests = _tests(spelled, expressions, is_long_met=not is_required)
        folded = [f"(?i){each}" for each in expressions]
        path_tests = _tests(frozenset(), folded, is_long_met=not is_required)
    name = (match[2] or "").lower().encode()
    return Condition(match[1] or subject, name, tests, is_required, reading_tests, path_tests)


def _spelled_alike(target: bytes) -> list[bytes]:
    """A path and query, the path spelled as its readings are."""
    path, query = split(target)
    return [each + query for each in spelled_alike(path)]


def _tests(expected: frozenset[bytes], expressions: Sequence[str], *, is_long_met: bool) -> tuple[_Test, ...]:
    """The tests of a value; one that is too long to be searched is refused either way."""
    tests = list[_Test]()
    if expected:
        tests.append(lambda value: value in expected)
    tests += [_search(pattern, is_long_met=is_long_met) for pattern in _joined(expressions)]
    return tuple(tests)


def _search(pattern: Pattern, *, is_long_met: bool) -> _Test:
    most = STEPS // pattern.steps
    return lambda value: pattern.search(value) if len(value) <= most else is_long_met


def _joined(expressions: Sequence[str]) -> list[Pattern]:
    """Patterns for all expressions, as few as may be: a search of several costs no more than of one."""
    made = list[Pattern]()
    group, steps = list[Pattern](), 0
    for pattern in map(compiled, expressions):
        if group and steps + pattern.steps > _JOINED:
            made += _in_one(group)
            group, steps = [], 0
        group.append(pattern)
        steps += pattern.steps
    return made + _in_one(group)


def _in_one(patterns: list[Pattern]) -> list[Pattern]:
    """One pattern of several; these themselves where RE2 does not take them together."""
    if len(patterns) < 2 or any("\\Q" in each.expression for each in patterns):  # a quotation may not end
        return patterns
    try:
        return [compiled("|".join([f"(?:{each.expression})" for each in patterns]))]
    except ValueError:
        return patterns


class Users(Protocol):
    """The users that have a password."""

    def knows(self, credentials: bytes) -> bool | None:
        """Tell whether credentials are right; None: that has to be verified."""
        ...

    async def verify(self, credentials: bytes) -> bool:
        """Verify credentials, off the event loop. Raises RefusedError if too many wait for that."""
        ...


@dataclass(frozen=True, slots=True)
class Restriction:
    """The bounds on the access to one site or route; without `allow`, all networks but `deny` have it.

    With `canonical_only` they hold for the canonical path, and not for its other readings. With `private`
    what is stored for one user answers no other. `forward` decides about those that all else lets pass, and
    `user_rate` is for those that have a name by then.
    """

    name: str
    allow: Networks = ()
    deny: Networks = ()
    rate: Rate | None = None
    users: Users | None = None
    canonical_only: bool = False
    private: bool = False
    forward: ForwardAuth | None = None
    user_rate: Rate | None = None
    client_ca: bytes = b""  # the authority that issues the certificates of its clients; empty: none does
    conditions: tuple[Condition, ...] = ()


class Challenge(NamedTuple):
    """Credentials that somebody has to verify."""

    users: Users
    credentials: bytes


class Denial(NamedTuple):
    """The reason to refuse a request, and fields that the answer has; perhaps a challenge decides first."""

    reason: str
    fields: Fields
    challenge: Challenge | Question | None = None


class Entered(NamedTuple):
    """A request that has met a challenge: a password is right, or a server has granted access."""

    grant: Grant | None = None


class Rates(Protocol):
    """The requests of the latest clients, counted against the rates of sites and routes."""

    def wait(self, name: str, client: str, rate: Rate, now: float) -> float:
        """Count a request of a client at the rate `name`; the seconds until it may come, 0 for now.

        A request that has to wait is not counted.
        """
        ...


def paced(due: float, rate: Rate, now: float) -> tuple[float, float]:
    """The seconds that a request has to wait, and the time at which the one after it is due (GCRA).

    `due` is the time at which this request is due: `now`, or any earlier time, for a client's first.
    """
    # The clock may have been set back: no client waits for longer than a burst lasts.
    due = min(max(due, now), now + rate.burst * rate.interval)
    wait = due - (rate.burst - 1) * rate.interval - now
    return (wait, due) if wait > 1e-9 else (0.0, due + rate.interval)


class OwnRates:
    """The rates of one process: for each of the latest clients, the time at which its next request is due."""

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._due: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        return len(self._due)

    def wait(self, name: str, client: str, rate: Rate, now: float) -> float:
        """Count a request of a client, see `Rates`."""
        key = name, client
        wait, due = paced(self._due.get(key, now), rate, now)
        self._due[key] = due
        if wait:
            return wait
        self._due.move_to_end(key)
        if len(self._due) > self._most:
            self._due.popitem(last=False)
        return 0.0


def judged(
    restrictions: Sequence[Restriction], judge: Callable[[Restriction], Denial | None]
) -> Denial | None:
    """Judge a request by every restriction that holds for it, as `judge` does by one; None: it may go on.

    No client sends two passwords: restrictions that ask for different ones refuse every request.
    """
    challenged = None
    if len({id(each.users) for each in restrictions if each.users is not None}) > 1:
        return Denial("crosses-route", [])
    for restriction in restrictions:
        denial = judge(restriction)
        if denial is not None and denial.challenge is None:
            return denial
        challenged = challenged or denial
    return challenged


def denial_of(
    restriction: Restriction,
    peer: Peer,
    connection: str | None,
    fields: Fields,
    rates: Rates,
    now: float,
    line: RequestLine = RequestLine(),  # noqa: B008 - it does not change
) -> Denial | None:
    """Judge a request; None: it may go on. `connection` is the address of the client's connection.

    A client without an address has no right by it.
    """
    if restriction.allow or restriction.deny:
        named = peer.client if peer.known else None
        if (
            named is None
            or within(named, restriction.deny)
            or (restriction.allow and not within(named, restriction.allow))
        ):
            return Denial("access-denied", [])
    line = line._replace(canonical=None) if restriction.canonical_only else line
    if any(each.refuses(line, fields) for each in restriction.conditions):
        return Denial("access-denied", [])
    if restriction.rate is not None:
        # By the believed family, whatever other fields say: what they add is no second allowance.
        client = client_name(peer.client or connection)
        if wait := rates.wait(restriction.name, client, restriction.rate, now):
            return _too_many(wait)
    return None if restriction.users is None else _unauthorized(restriction, restriction.users, fields)


def paced_by_user(
    restrictions: Sequence[Restriction],
    user: bytes,
    peer: Peer,
    connection: str | None,
    rates: Rates,
    now: float,
) -> Denial | None:
    """Count a request that has access at the rates of its user; without a name, at those of its client."""
    for each in restrictions:
        if each.user_rate is not None:
            # No address has a blank.
            name = "user " + user.decode("latin-1") if user else client_name(peer.client or connection)
            if wait := rates.wait(f"{each.name} by user", name, each.user_rate, now):
                return _too_many(wait)
    return None


def _too_many(wait: float) -> Denial:
    return Denial("too-many-requests", [(b"retry-after", b"%d" % math.ceil(wait))])


def _unauthorized(restriction: Restriction, users: Users, fields: Fields) -> Denial | None:
    credentials = _credentials(values(fields, b"authorization"))
    is_right = users.knows(credentials) if credentials else False
    if is_right:
        return None
    realm = re.sub(rb'["\\\\\x00-\x1f\x7f-\xff]', b"", restriction.name.encode())
    challenge = [(b"www-authenticate", b'Basic realm="%b", charset="UTF-8"' % realm)]
    return Denial("unauthorized", challenge, Challenge(users, credentials) if is_right is None else None)


def user_of(authorization: bytes) -> bytes:
    """The name in the credentials of an Authorization field, known or not; empty for another scheme."""
    try:
        return a2b_base64(_credentials([authorization])).partition(b":")[0]
    except ValueError:
        return b""


def _credentials(lines: Sequence[bytes]) -> bytes:
    """The name and password of a request, as it encodes them; empty for none, or for another scheme."""
    match = _BASIC.fullmatch(lines[0]) if len(lines) == 1 and len(lines[0]) <= _LONGEST else None
    return match[1] if match is not None else b""
