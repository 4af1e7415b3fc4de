"""The freshness lifetime of a response, and its age at its arrival (RFC 9111 §4.2).

`Stored.age` in `stored.py` is the current age. `named` are a response's fields as `firsts` gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from univocal.cache.directives import ResponseDirectives
from univocal.http.fields import age_value, firsts, http_date
from univocal.http.messages import Fields

HEURISTIC_LIMIT: Final = 86_400


def date_value(named: Mapping[bytes, bytes], response_time: float) -> float:
    """The time of the response's Date; without a readable one, that of its receipt (RFC 9110 §6.6.1)."""
    date = http_date(named.get(b"date"), response_time)
    return response_time if date is None else date


def initial_age(
    named: Mapping[bytes, bytes], date: float, request_time: float, response_time: float
) -> float:
    """The corrected initial age in seconds, never negative (RFC 9111 §4.2.3); `date` is the `date_value`."""
    # apparent_age = max(0, response_time - date_value); a Date has whole seconds, so its fraction is no age.
    apparent_age = max(0, int(response_time - date))
    age = age_value(named.items()) if b"age" in named else 0
    # response_delay = response_time - request_time; corrected_age_value = age_value + response_delay
    corrected_age_value = age + max(0.0, response_time - request_time)
    return max(apparent_age, corrected_age_value)


def clock_lag(fields: Fields, lifetime: float, response_time: float) -> int:
    """The seconds by which a sender's clock is behind, if that makes its response stale at once; else 0.

    A cache on the way says by Age that the response is old: that is no clock.
    """
    named = firsts(fields)
    if b"age" in named or lifetime <= 0:
        return 0
    behind = int(response_time - date_value(named, response_time))
    return behind if behind >= lifetime else 0


def explicit_lifetime(
    directives: ResponseDirectives, named: Mapping[bytes, bytes], response_time: float
) -> float | None:
    """Seconds that the origin server said, None if it said nothing (RFC 9111 §4.2.1)."""
    # If the cache is shared and s-maxage is present, use its value
    if directives.s_maxage is not None:
        return directives.s_maxage
    # If max-age is present, use its value
    if directives.max_age is not None:
        return directives.max_age
    # RFC 9213 §2.2: with a targeted field Expires does not count
    expires = None if directives.targeted else named.get(b"expires")
    if expires is None:
        return None
    # §5.3: an invalid date, especially "0", is a time in the past. Else: Expires minus Date
    instant = http_date(expires, response_time)
    return 0 if instant is None else max(0.0, instant - date_value(named, response_time))


def heuristic_lifetime(named: Mapping[bytes, bytes], response_time: float) -> float:
    """A tenth of the time since Last-Modified, a day at most (RFC 9111 §4.2.2)."""
    modified = http_date(named.get(b"last-modified"), response_time)
    if modified is None:
        return 0
    return min(max(0.0, (date_value(named, response_time) - modified) / 10), HEURISTIC_LIMIT)
