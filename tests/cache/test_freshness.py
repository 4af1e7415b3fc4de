"""Freshness lifetime and age (RFC 9111 §4.2)."""

import pytest

from support import NOW
from univocal.cache.directives import response_directives
from univocal.cache.freshness import (
    HEURISTIC_LIMIT,
    date_value,
    explicit_lifetime,
    heuristic_lifetime,
    initial_age,
)
from univocal.http.fields import firsts, imf_fixdate


def at(late):
    return imf_fixdate(NOW + late)


@pytest.mark.parametrize(
    ("fields", "delay", "age"),
    [
        ([], 0, 0),
        ([(b"date", at(-10))], 0, 10),
        ([(b"date", at(10))], 0, 0),
        ([(b"age", b"7")], 0, 7),
        ([(b"age", b"7")], 2.5, 9.5),
        ([(b"age", b"7, 9"), (b"date", at(-30))], 0, 30),
        ([(b"age", b"-1"), (b"date", b"yesterday")], 1, 1),
    ],
)
def test_the_corrected_initial_age(fields, delay, age):
    named = firsts(fields)
    assert initial_age(named, date_value(named, NOW), NOW - delay, NOW) == age


@pytest.mark.parametrize(
    ("fields", "lifetime"),
    [
        ([], None),
        ([(b"cache-control", b"max-age=5")], 5),
        ([(b"cache-control", b"max-age=5, s-maxage=7")], 7),
        ([(b"expires", at(60)), (b"cache-control", b"max-age=5")], 5),
        ([(b"expires", at(60))], 60),
        ([(b"expires", at(60)), (b"date", at(-40))], 100),
        ([(b"expires", at(-60))], 0),
        ([(b"expires", b"0")], 0),
        ([(b"expires", at(60)), (b"cdn-cache-control", b"public")], None),
    ],
)
def test_the_lifetime_that_the_origin_server_said(fields, lifetime):
    named = firsts(fields)
    directives = response_directives(fields, named, (b"cdn-cache-control",))
    assert explicit_lifetime(directives, named, NOW) == lifetime


@pytest.mark.parametrize(
    ("fields", "lifetime"),
    [
        ([], 0),
        ([(b"last-modified", at(-1000))], 100),
        ([(b"last-modified", at(-1000)), (b"date", at(-500))], 50),
        ([(b"last-modified", at(1000))], 0),
        ([(b"last-modified", b"x")], 0),
        ([(b"last-modified", at(-(10**8)))], HEURISTIC_LIMIT),
    ],
)
def test_a_tenth_of_the_time_since_the_last_change(fields, lifetime):
    assert heuristic_lifetime(firsts(fields), NOW) == lifetime
