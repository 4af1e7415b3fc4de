"""After an origin server has answered for a URL, no older stored response answers unless it was confirmed.

Each row is played with the default settings and with those that store the most.
"""

import pytest

from exchanges.table import MAX_OBJECT, answers, asks, every, goes, got, hit, miss, play, row, wait

GENEROUS = {"errors": "explicit", "set_cookie": "explicit", "heuristic": True}
RELOAD = "Cache-Control: no-cache"
FRESH = "Cache-Control: max-age=600"
GERMAN = "Accept-Language: de"
ONE, TWO = 'ETag: "1"', 'ETag: "2"'
# Stale when it comes, and it may be served for ten minutes while it is fetched again, or if that fails.
STALE = ("Age: 5", "Cache-Control: max-age=1, stale-while-revalidate=600")
FALLBACK = ("Age: 5", "Cache-Control: max-age=1, stale-if-error=600")
PAGE = ("Accept: text/html", "User-Agent: Mozilla")
BROWSER = (*PAGE, "Cookie: session=1", "X-Requested-With: x")
UNMODIFIED = "304 Not Modified"
FORBIDS = ("Cache-Control: no-store", "Cache-Control: private", "Vary: *")
CLIENTS = {"plain": (), "a browser": BROWSER}
RANGE, PART = "Range: bytes=0-1", ("Cache-Control: private", TWO, "Content-Range: bytes 0-1/3")
LARGE = b"x" * (MAX_OBJECT + 1)


def old(*lines, asked=()):
    return miss(*lines, asked=asked, content=b"old")


def new(*lines, asked=(), content=b"new", status="200 OK"):
    return miss(*lines, asked=asked, content=content, status=status)


def validated(*lines, asked=()):
    """A client asks, the origin server says 304 with these lines, and the client gets the old content."""
    return asks(*asked), goes('if-none-match: "1"'), answers(*lines, status=UNMODIFIED), got(content=b"old")


def refreshed(*lines, asked=(), content=b"new", status="200 OK"):
    """A client gets the old content while the origin server is asked again, and answers so."""
    return asks(*asked), got(content=b"old"), goes(), answers(*lines, status=status, content=content)


def ended(news, name, client):
    """A 304 that forbids to store."""
    steps = old(FRESH, ONE), validated(news, ONE, asked=[RELOAD, *client]), new(FRESH), hit(content=b"new")
    return row(f"a 304 with {news} to {name} ends the response", *steps)


def refused(status, name, client):
    """A refresh that brings an answer for no other client."""
    steps = (
        old(*STALE),
        refreshed(asked=client, status=f"{status} No"),
        asks(),
        answers(status=f"{status} No"),
    )
    return row(f"a refresh for {name} that brings {status} ends the response", *steps, got(status))


def forbidden(news, name, client):
    steps = old(*STALE), refreshed(news, asked=client), new(news)
    return row(f"a refresh for {name} that brings {news} ends the response", *steps)


def failed(status):
    """A refresh that fails leaves what is stale."""
    steps = old(*STALE), *[(refreshed(asked=BROWSER, status=f"{status} No"), wait(10))] * 3
    return row(f"a refresh that brings {status} leaves the response", *steps, asks(), got(content=b"old"))


EACH = list(CLIENTS.items())
ROWS = [
    "a 304 that adds Vary keeps others from the response",
    *(old(FRESH, ONE), validated(FRESH, ONE, "Vary: X-Var", asked=[RELOAD, "X-Var: a"])),
    *(new(FRESH, "Vary: X-Var", asked=["X-Var: b"]), hit(asked=["X-Var: a"], content=b"old")),
    "a 304 that adds Vary counts in the background",
    *(old(*STALE, ONE, asked=PAGE), asks(*PAGE), got(content=b"old")),
    answers(FRESH, ONE, "Vary: Accept", status=UNMODIFIED),
    *(new(FRESH, "Vary: Accept", asked=["Accept: image/png"]), hit(asked=PAGE, content=b"old")),
    "a 304 that adds Vary keeps others from the fallback",
    *(old(*FALLBACK, ONE), validated(*FALLBACK, ONE, "Vary: X-Var", asked=["X-Var: a"])),
    *(asks("X-Var: b"), answers("Cache-Control: no-store", status="503 No"), got(503)),
    *(asks("X-Var: a"), answers("Cache-Control: no-store", status="503 No"), got(content=b"old")),
    "a response with Vary leaves none without it, whose client was as particular",
    *(old(FRESH, asked=[GERMAN]), new(FRESH, "Vary: Accept-Language", asked=[RELOAD, GERMAN])),
    *(miss(FRESH, content=b"any"), hit(content=b"any"), hit(asked=[GERMAN], content=b"new")),
    *(ended(news, *each) for news in FORBIDS for each in EACH),
    "a 304 that forbids to store ends the response in the background",
    *(old(*STALE, ONE), refreshed("Cache-Control: private", ONE, asked=BROWSER, status=UNMODIFIED)),
    *(new(FRESH), hit(content=b"new")),
    "a whole answer to a range ends the response",
    *(old(FRESH, ONE), new("Cache-Control: no-cache", asked=[RELOAD, RANGE, 'If-Range: "9"'])),
    *(new(FRESH), hit(content=b"new")),
    "a part with another validator ends the response",
    *(old(FRESH, ONE), asks(RELOAD, RANGE), answers(*PART, status="206 Part", content=b"ne")),
    *(got(206, content=b"ne"), new(FRESH), hit(content=b"new")),
    "a HEAD does not displace what a GET has brought",
    *(old(FRESH, "Vary: Accept, X-Var"), new(FRESH, TWO, asked=["X-Var: b"], status="404 No")),
    *(asks(RELOAD, "Accept: text/html", method="HEAD"), answers(FRESH, TWO, status="404 No"), got(404)),
    *(hit(asked=["X-Var: b"], status=404, content=b"new"), hit(content=b"old")),
    "a 200 to a conditional HEAD confirms nothing",
    *(old("Age: 5", "Cache-Control: max-age=1", ONE), asks(method="HEAD"), goes('if-none-match: "1"')),
    *(answers(FRESH, content=b"new"), new(FRESH), hit(content=b"new")),
    "a refresh that is too large ends the response",
    *(old(*STALE), refreshed(*STALE, content=LARGE), new(*STALE, content=LARGE)),
    *(refused(status, *each) for status in (401, 403, 451) for each in EACH),
    *(forbidden(news, *each) for news in FORBIDS for each in EACH),
    *map(failed, (429, 500, 503)),
    "a refresh has nothing of its client",
    *(old(*STALE, "Vary: X-Var", asked=["X-Var: a"]), asks(*BROWSER, "X-Var: a", "X-Api-Key: 1")),
    goes("x-var: a", "accept: text/html", "-cookie", "-x-api-key", "-x-requested-with"),
    "one answer that may be stored is enough",
    *(old("Cache-Control: no-store", ONE), new(FRESH, TWO, asked=['If-None-Match: "1"'])),
    hit(asked=['If-None-Match: "1"'], content=b"new"),
    "a 304 that allows to store is enough",
    *(old("Cache-Control: no-store", ONE), asks('If-None-Match: "1"'), goes('if-none-match: "1"')),
    *(answers(FRESH, ONE, status=UNMODIFIED), got(304), asks('If-None-Match: "1"'), goes()),
    *(answers(FRESH, ONE, content=b"old"), got(304)),
    hit(asked=['If-None-Match: "1"'], status=304, content=b""),
    "Connection hides neither Vary nor validators",
    *(old(FRESH, ONE, "Vary: X-Var", "Connection: vary, etag", asked=["X-Var: a"])),
    new(FRESH, asked=["X-Var: b"]),
    hit('etag: "1"', "vary: X-Var", asked=["X-Var: a"], content=b"old"),
]


@pytest.mark.parametrize("row", every(ROWS))
async def test_no_older_response_answers_unless_it_was_confirmed(row):
    await play(row)
    await play(row._replace(rules=GENEROUS), ["whole"])
