"""Requests that are under way together, and purges that come meanwhile: the same on every way in."""

import pytest

from exchanges.table import (
    BODY,
    FRESH,
    TAG,
    answers,
    asks,
    breaks,
    cut_short,
    every,
    goes,
    got,
    hit,
    leaves,
    miss,
    play,
    purge,
    reached,
    row,
    wait,
    where,
)

NO_STORE = "Cache-Control: no-store"
STALE = (FRESH + ", stale-if-error=600", TAG)
PRIVATE = 'Cache-Control: max-age=60, private="x-user, set-cookie"'
UNMODIFIED = "304 Not Modified"
SOFT = "Soft-Purge: 1"
BASIC = "Authorization: Basic eDp5"


def ask_all(*names, **how):
    """Several clients ask for the same."""
    return tuple(asks(*how.get("fields", ()), name=name, target=how.get("target", "/a")) for name in names)


def all_got(*names, content=BODY, status=200):
    return tuple(got(status, name=name, content=content) for name in names)


def alone(what, method, *fields):
    """Requests of a kind that waits for no other."""
    both = [asks(*fields, name=name, method=method) for name in ("1", "2")]
    return row(f"{what} does not wait", *both, reached(2))


def authorized(said, requests):
    """A row: so many requests of three clients with credentials for one stale response."""
    asked = wait(10), ask_all("1", "2", "3", fields=[BASIC])
    return row(
        f"Authorization and {said}", miss(f"Cache-Control: {said}", TAG), *asked, reached(1 + requests)
    )


def elsewhere(what):
    """A purge of something else, between two clients that ask for the same."""
    steps = asks(name="1"), purge(what), asks(name="2"), reached(1), answers(FRESH), hit()
    return row(f"a purge of {what} parts nobody", *steps)


def not_freshened(name, *how):
    """A 304 comes for a response that has been purged meanwhile."""
    asked = miss(*STALE, "Surrogate-Key: page"), wait(100), asks(name="1"), goes('if-none-match: "a"')
    purged = purge(*how), answers(*STALE, status=UNMODIFIED), reached(3)
    anew = answers(*STALE, "Surrogate-Key: page", content=b"new"), got(200, "-age", content=b"new", name="1")
    return row(
        f"a 304 freshens nothing that was purged by {name} meanwhile",
        *asked,
        *purged,
        *anew,
        miss(*STALE),
        hit(),
    )


def failing(name, status, *how):
    """An error comes for a response that has been purged meanwhile."""
    asked = miss(*STALE), wait(100), asks(), purge("/a", *how), answers(status="503 No"), got(status)
    return row(f"purged {name}, a response replaces an error: {status}", *asked)


TOGETHER = [
    "spellings of one URL",
    *(
        asks(name=name, target=each)
        for name, each in zip("123", ("/a(b)", "/a%28b%29", "/%61(b%29"), strict=True)
    ),
    *(reached(1), answers(FRESH), all_got("1", "2", "3")),
    "other URLs do not wait",
    *(asks(name="1"), asks(name="2", target="/a?x"), asks(name="3", target="/b"), reached(3)),
    alone("no-store", "GET", NO_STORE),
    alone("a HEAD", "HEAD"),
    alone("a POST", "POST"),
    alone("Authorization", "GET", BASIC),
    authorized("public, max-age=1", 1),
    authorized("s-maxage=1", 1),
    authorized("must-revalidate, max-age=1", 1),
    authorized("max-age=1", 3),
    "ranges of one page make one request",
    *(asks("Range: bytes=0-1", name="1"), asks("Range: bytes=2-3", name="2"), reached(1), answers(FRESH)),
    *(got(200, name="1", content=BODY), got(206, name="2", content=b"23")),
    "a client of another variant asks for itself",
    *(asks("X: 1", name="1"), asks("X: 2", name="2"), asks("X: 1", name="3"), reached(1)),
    *(answers(FRESH, "Vary: X", content=b"one"), reached(2), answers(FRESH, "Vary: X", content=b"two")),
    *(all_got("1", "3", content=b"one"), all_got("2", content=b"two")),
    "known variants do not wait for each other",
    *(miss(FRESH, "Vary: X", asked=["X: 0"]), asks("X: 1"), asks("X: 2"), reached(3)),
    "each has its own conditions answered",
    *(asks(name="1"), asks('If-None-Match: "a"', name="2"), answers(FRESH, TAG)),
    *(all_got("1"), got(304, name="2")),
    "an answer that is not stored releases all at once",
    *(ask_all("1", "2", "3", "4"), reached(1), answers(NO_STORE), reached(4)),
    *([answers(NO_STORE, content=b"own")] * 3, all_got("2", "3", "4", content=b"own")),
    row("a key that was not stored is remembered", miss(NO_STORE), ask_all("1", "2", "3"), reached(4)),
    "and forgotten after a while",
    *(miss(NO_STORE), wait(600), ask_all("1", "2", "3"), reached(2), answers(FRESH), all_got("1", "2", "3")),
    "a private answer is nobody else's",
    *(asks("Cookie: session=1", name="own"), ask_all("1", "2")),
    *(answers("Cache-Control: private", content=b"own"), got(name="own", content=b"own")),
    *(answers(FRESH), all_got("1", "2")),
    "fields of one client are nobody else's",
    *(ask_all("1", "2"), answers(PRIVATE, "X-User: leader", "Set-Cookie: session=LEADER")),
    got(200, "x-user: leader", "set-cookie: session=LEADER", name="1"),
    got(200, "cache-status ~ collapsed", "-x-user", "-set-cookie", name="2"),
    "a 304 releases all who wait",
    *(miss(FRESH, TAG), wait(100), ask_all("1", "2", "3"), reached(2)),
    *(answers(FRESH, TAG, status=UNMODIFIED), all_got("1", "2", "3"), reached(2)),
    row("the last client leaves", asks(), leaves(), miss(FRESH), hit(), ways=["engine", "http1", "http2"]),
    "content that is cut short ends nobody's response",
    *(ask_all("1", "2"), cut_short(FRESH), got(200, name="1", content=b"012", complete=False)),
    *(got(200, name="2", content=b"012", complete=False), miss(FRESH), hit()),
    "an origin server that breaks is each one's failure",
    *(ask_all("1", "2"), breaks(), got(502, name="1"), breaks(), got(502, name="2"), reached(2)),
    # Behind a request by HTTP/2 a connection is used again, and so retried.
    where(ways=["engine", "http1", "asgi"]),
    "a refusal of the shared answer is stale for all",
    *(miss(*STALE), wait(100), ask_all("1", "2"), answers(status="503 No"), all_got("1", "2")),
    "a failed refresh counts until another variant is answered",
    *(miss(*STALE, "Vary: X"), wait(100), asks(), goes(), answers(status="503 No"), got(), hit()),
    *(miss(*STALE, "Vary: X", asked=["X: 1"]), miss(*STALE, "Vary: X", content=b"new")),
    "a POST during a GET",
    *(asks(name="get"), asks(method="POST", name="post"), answers(FRESH, content=b"old")),
    *(got(name="get", content=b"old"), answers(status="204 No Content"), got(204, name="post")),
    *(miss(FRESH), hit()),
]

MEANWHILE = [
    "requests after a purge do not wait for older ones",
    *(asks(name="1"), purge(), asks(name="2"), reached(2), answers(FRESH, content=b"old")),
    *(answers(FRESH, content=b"new"), all_got("1", content=b"old"), all_got("2", content=b"new")),
    hit(content=b"new"),
    "nor for one that the purge may mean",
    *(asks(name="1"), purge("/", "Surrogate-Key: news"), asks(name="2"), reached(2)),
    *(answers(FRESH, "Surrogate-Key: news", content=b"old"), answers(FRESH, "Surrogate-Key: news")),
    *(all_got("1", content=b"old"), all_got("2"), hit()),
    elsewhere("/b"),
    elsewhere("/"),
    not_freshened("its URL", "/a"),
    not_freshened("a spelling", "/%61"),
    not_freshened("a tag", "/", "Surrogate-Key: page"),
    "a 304 freshens what was purged softly meanwhile",
    *(miss(*STALE), wait(100), asks(), purge("/a", SOFT), answers(*STALE, status=UNMODIFIED)),
    *(got(content=BODY), reached(2)),
    failing("softly", 200, SOFT),
    failing("meanwhile", 503),
    "a client that waited in vain asks for nothing purged",
    *(miss(*STALE), wait(100), ask_all("1", "2"), purge(), answers(NO_STORE, content=b"own"), reached(3)),
    *(goes("-if-none-match", name="2"), answers(*STALE, content=b"new"), all_got("2", content=b"new")),
    "a refresh of what was purged meanwhile",
    *(miss("Cache-Control: max-age=1, stale-while-revalidate=60"), wait(2), asks(), got(content=BODY)),
    *(purge(), answers(FRESH, content=b"new"), miss(FRESH, content=b"newer"), hit(content=b"newer")),
    "every variant",
    *(miss(FRESH, "Vary: X", asked=["X: 1"]), miss(FRESH, "Vary: X"), purge(), asks("X: 1"), goes()),
    "other queries stay",
    miss(FRESH, target="/a?1"),
    miss(FRESH),
    purge(),
    hit(target="/a?1"),
    asks(),
    goes(),
]


@pytest.mark.parametrize("row", every(TOGETHER))
async def test_clients_that_ask_together_are_answered_alike(row):
    await play(row)


@pytest.mark.parametrize("row", every(MEANWHILE))
async def test_a_purge_holds_for_what_is_under_way(row):
    await play(row)
