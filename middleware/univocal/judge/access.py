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
from typing import Final, NamedTuple, Protocol

from univocal.http.client_counts import client_name
from univocal.http.messages import Fields, values
from univocal.judge.forward_auth import ForwardAuth, Grant, Question
from univocal.judge.trust import Networks, Peer, within
from univocal.store.patterns import STEPS, compiled

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


class RequestLine(NamedTuple):
    """The method of a request, and its target as it came and in its canonical spelling."""

    method: bytes = b"GET"
    targets: tuple[bytes, ...] = (b"/",)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the method, the target, a field or a cookie: it refuses what meets it, or all else."""

    kind: str  # method, target, header or cookie
    name: bytes
    tests: tuple[Callable[[bytes], bool], ...]
    is_required: bool

    def refuses(self, line: RequestLine, fields: Fields) -> bool:
        """Tell whether a request has no access: each value of several counts, and a missing one is empty."""
        met = [any(test(value) for test in self.tests) for value in self._values(line, fields)]
        return not all(met) if self.is_required else any(met)

    def _values(self, line: RequestLine, fields: Fields) -> Sequence[bytes]:
        if self.kind == "method":
            return [line.method]
        if self.kind == "target":
            return line.targets
        if self.kind == "cookie":
            pattern = rb"(?:^|[;,]) *%b *= *([^;]*)" % re.escape(self.name)
            lines = values(fields, b"cookie")
            return [each for line in lines for each in re.findall(pattern, line, re.IGNORECASE)] or [b""]
        lines = values(fields, self.name)
        # Servers read several lines as the first, the last, or all of them joined.
        return [*lines, b", ".join(lines)] if len(lines) > 1 else lines or [b""]


def condition_of(subject: str, texts: Sequence[str], *, is_required: bool) -> Condition:
    """The condition on `subject`; each text is a value, or "~" and an expression. Raises ValueError."""
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        raise ValueError(CONDITIONS)
    tests = tuple(_test(text, is_long_met=not is_required) for text in texts)
    return Condition(match[1] or subject, (match[2] or "").lower().encode(), tests, is_required)


def _test(text: str, *, is_long_met: bool) -> Callable[[bytes], bool]:
    """The test of a value; one that is too long to be searched is refused either way."""
    if not text.startswith("~"):
        expected = text.encode()
        return lambda value: value == expected
    pattern = compiled(text[1:])
    most = STEPS // pattern.steps
    return lambda value: pattern.search(value) if len(value) <= most else is_long_met


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
    # The clock may have been set back: nobody waits for longer than a burst lasts.
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
    restrictions: Sequence[Restriction],
    peer: Peer,
    connection: str | None,
    fields: Fields,
    rates: Rates,
    now: float,
    line: RequestLine = RequestLine(),  # noqa: B008 - it does not change
) -> Denial | None:
    """Judge a request by every restriction that holds for it; None: it may go on.

    Nobody has two passwords: restrictions that ask for different ones refuse every request.
    """
    challenged = None
    if len({id(each.users) for each in restrictions if each.users is not None}) > 1:
        return Denial("crosses-route", [])
    for restriction in restrictions:
        denial = verdict(restriction, peer, connection, fields, rates, now, line)
        if denial is not None and denial.challenge is None:
            return denial
        challenged = challenged or denial
    return challenged


def verdict(
    restriction: Restriction,
    peer: Peer,
    connection: str | None,
    fields: Fields,
    rates: Rates,
    now: float,
    line: RequestLine = RequestLine(),  # noqa: B008 - it does not change
) -> Denial | None:
    """Judge a request; None: it may go on. `connection` is the address of the client's connection.

    A client that is nobody has no right by its address.
    """
    if restriction.allow or restriction.deny:
        named = peer.client if peer.known else None
        if (
            named is None
            or within(named, restriction.deny)
            or (restriction.allow and not within(named, restriction.allow))
        ):
            return Denial("access-denied", [])
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
