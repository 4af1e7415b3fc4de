"""The oracle of tools/differential: each rule fires for what breaks it, and not for what keeps it."""

import asyncio

import pytest

from tools.differential.oracle import Got, How, Level, Said, how, judge
from tools.differential.playing import Played
from tools.differential.run import smaller
from tools.differential.script import Answer, Ask, Step, content_of, drawn, reply, resolved

PATH = "/page"
PLAIN = Ask()
WALL = 1_800_000_000.0
FRESH = Answer(cache_control="max-age=60")


def saying(cache_control, **changed):
    return Answer(cache_control=cache_control, **changed)


BRIEF = Answer(cache_control="max-age=1")


class Log:
    """The answers of an origin server: each of a version, to a request, at a second."""

    def __init__(self):
        self.history = []

    def said(self, answer, ask=PLAIN, *, version=1, at=0.0):
        ask = resolved(ask, answer, version)
        serial = len(self.history)
        if answer.dead:
            self.history.append(Said(serial, ask, at, at, 0, (), version, ""))
            return self
        response = reply(PATH, answer, version, ask, WALL + at)
        fields = (*response.fields, ("x-serial", str(serial)))
        self.history.append(
            Said(serial, ask, at, at, response.status, fields, response.version, response.label)
        )
        return self

    def got(self, serial, ask=PLAIN, *, at=0.1, **changed):
        """A cache's response with the fields of one of these, by default with the right Age."""
        source = self.history[serial]
        content = reply(PATH, Answer(), source.version, PLAIN, WALL).content
        if source.label:
            content = reply(PATH, Answer(vary="X-Var"), source.version, source.ask, WALL).content
        fields = tuple(pair for pair in source.fields if pair[0] != "age")
        given = {"status": 200, "fields": (*fields, ("age", str(int(at - source.sent)))), "content": content}
        return Got(ask, at, at + 0.01, **{**given, **changed})

    def kinds(self, got, level=None):
        verdicts = judge(PATH, self.history, got)
        return [verdict.kind for verdict in verdicts if level is None or verdict.level is level]


def wrong(log, got):
    return log.kinds(got, Level.MUST) + log.kinds(got, Level.LAW)


NO_CACHE = Ask("GET", (("cache-control", "no-cache"),))
WITH_A = Ask("GET", (("x-var", "a"),))
REUSED = {
    "fresh": (FRESH, PLAIN, PLAIN, 5.0, []),
    "stale": (BRIEF, PLAIN, PLAIN, 5.0, ["stale"]),
    "old on arrival": (FRESH._replace(age=100), PLAIN, PLAIN, 5.0, ["stale"]),
    "s-maxage wins": (saying("s-maxage=1, max-age=60"), PLAIN, PLAIN, 5.0, ["stale"]),
    "while revalidating": (
        BRIEF._replace(cache_control="max-age=1, stale-while-revalidate=9"),
        PLAIN,
        PLAIN,
        5.0,
        [],
    ),
    "must-revalidate": (
        *(BRIEF._replace(cache_control="max-age=1, must-revalidate"), PLAIN, PLAIN, 5.0),
        ["stale in spite of must-revalidate"],
    ),
    "max-stale": (BRIEF, PLAIN, Ask("GET", (("cache-control", "max-stale"),)), 5.0, []),
    "no-store": (saying("no-store, max-age=60"), PLAIN, PLAIN, 5.0, ["no-store is stored"]),
    "private": (saying("private, max-age=60"), PLAIN, PLAIN, 5.0, ["private is stored"]),
    "no-cache": (saying("no-cache, max-age=60"), PLAIN, PLAIN, 5.0, ["no-cache is reused"]),
    "another variant": (FRESH._replace(vary="X-Var"), WITH_A, PLAIN, 5.0, ["Vary selects another"]),
    "the same variant": (FRESH._replace(vary="X-Var"), WITH_A, WITH_A, 5.0, []),
    "Vary: *": (FRESH._replace(vary="*"), PLAIN, PLAIN, 5.0, ["Vary selects another"]),
    "a visitor's": (
        *(FRESH, Ask("GET", (("authorization", "Basic YTpi"),)), PLAIN, 5.0),
        ["a response to Authorization is shared"],
    ),
    "a visitor's, public": (
        *(saying("public, max-age=60"), Ask("GET", (("authorization", "Basic YTpi"),))),
        *(PLAIN, 5.0, []),
    ),
}


@pytest.mark.parametrize(("answer", "stored_for", "ask", "at", "expected"), REUSED.values(), ids=REUSED)
def test_reuse_is_judged_by_rfc_9111(answer, stored_for, ask, at, expected):
    log = Log().said(answer, stored_for)
    assert wrong(log, log.got(0, ask, at=at)) == expected


CONTRADICTED = {
    "another version": (FRESH, PLAIN, 2, ["older after a 200 to a GET"]),
    "no-store": (saying("no-store"), NO_CACHE, 2, ["older after a 200 no-store to a GET"]),
    "gone": (FRESH._replace(status=410), NO_CACHE, 2, ["older after a 404 or 410 to a GET"]),
    "an error": (FRESH._replace(status=503), NO_CACHE, 2, []),
    "too many requests": (FRESH._replace(status=429), NO_CACHE, 2, []),
    "a visitor's page": (saying("private"), Ask("GET", (("cookie", "c=1"),)), 2, []),
    "a visitor's page that is old on arrival": (
        *(Answer(vary="Accept-Language", expires=-10), Ask("GET", (("cookie", "c=1"),)), 2, []),
    ),
    "to a request with no-store": (FRESH, Ask("GET", (("cache-control", "no-store"),)), 2, []),
    "the same version": (FRESH, NO_CACHE, 1, []),
    "a confirmation": (FRESH, Ask("GET", (("if-none-match", "current"),)), 1, []),
    "a 304 that selects": (
        *(FRESH._replace(vary="X-Var"), Ask("GET", (("if-none-match", '"1-0"'), ("x-var", "a"))), 1),
        ["Vary selects another (by a 304)"],
    ),
    "an unsafe method": (FRESH, Ask("POST"), 2, ["reused after an unsafe method"]),
    "a failed unsafe method": (FRESH._replace(status=500), Ask("POST"), 2, []),
}


@pytest.mark.parametrize(("answer", "ask", "version", "expected"), CONTRADICTED.values(), ids=CONTRADICTED)
def test_older_after_newer_is_found(answer, ask, version, expected):
    log = Log().said(FRESH).said(answer, ask, version=version, at=2.0)
    assert wrong(log, log.got(0, at=5.0)) == expected


@pytest.mark.parametrize(
    ("ask", "expected"),
    [(PLAIN, ["older after a 403 to a GET"]), (NO_CACHE, []), (Ask("GET", (("pragma", "no-cache"),)), [])],
)
def test_an_error_that_a_client_brought_about_ends_nothing(ask, expected):
    renewed = saying("max-age=60, stale-while-revalidate=9")
    log = Log().said(renewed).said(FRESH._replace(status=403), ask, at=2.0)
    assert wrong(log, log.got(0, at=5.0)) == expected


def test_a_304_renews_what_it_confirms():
    log = Log().said(BRIEF).said(FRESH, Ask("GET", (("if-none-match", "current"),)), at=9.0)
    assert wrong(log, log.got(1, at=20.0)) == []
    log.said(BRIEF._replace(cache_control="no-store"), Ask("GET", (("if-none-match", "current"),)), at=21.0)
    assert wrong(log, log.got(1, at=25.0)) == ["no-store is stored (by a 304)"]


def test_stale_answers_a_dead_origin_alone():
    allowed = BRIEF._replace(cache_control="max-age=1, stale-if-error=60")
    dead, down = BRIEF._replace(dead=True), BRIEF._replace(status=503)
    for answer, failure, expected in (
        (allowed, dead, []),
        (allowed, down, []),
        (BRIEF, dead, []),
        (BRIEF, down, ["stale on an error without stale-if-error"]),
    ):
        log = Log().said(answer).said(failure, at=5.105)
        assert wrong(log, log.got(0, at=5.1)) == expected


def test_stale_is_served_again_while_the_origin_server_is_dead():
    stored = saying("max-age=1, stale-if-error=60", etag="none")
    log = Log().said(stored).said(saying("no-store"), Ask("HEAD"), version=2, at=2.0)
    assert wrong(log, log.got(0, at=4.0)) != []
    log.said(stored._replace(dead=True), version=2, at=4.0)
    assert wrong(log, log.got(0, at=4.1)) == []


def test_a_304_for_one_variant_updates_no_other():
    log = Log().said(FRESH._replace(vary="X-Other"), version=1)
    log.said(FRESH, version=2, at=1.0).said(FRESH, OTHER, version=2, at=1.0)
    asked = Ask("GET", (*OTHER.fields, ("if-none-match", "current")))
    log.said(saying("no-store"), asked, version=2, at=2.0)
    assert wrong(log, log.got(1, at=3.0)) == []
    assert wrong(log, log.got(2, OTHER, at=3.0)) != []


def test_a_head_of_one_variant_updates_no_other():
    validation = Ask("GET", (("if-none-match", "current"),))
    varied = saying("max-age=1, stale-while-revalidate=30", confirms_vary="X-Other")
    log = Log().said(saying("no-cache")).said(varied, validation, at=0.5)
    log.said(saying("no-store"), Ask("HEAD", OTHER.fields), at=3.0)
    log.said(saying("no-store", terse=True), validation, at=3.5)
    assert wrong(log, log.got(3, at=4.0)) == []


OTHER = Ask("GET", (("x-other", "a"),))


@pytest.mark.parametrize(
    ("ask", "expected"), [(PLAIN, []), (OTHER, ["older after a 304 for another validator to a GET"])]
)
def test_a_304_for_another_variant_contradicts_nothing(ask, expected):
    languages = FRESH._replace(vary="Accept-Language")
    asked = Ask("GET", (*ask.fields, ("if-none-match", '"1-0"')))
    log = (
        Log()
        .said(FRESH._replace(vary="X-Other"))
        .said(languages, OTHER, at=1.0)
        .said(languages, asked, at=2.0)
    )
    content = content_of(PATH, 1, log.history[1].label)
    assert wrong(log, log.got(1, OTHER, at=3.0, content=content)) == expected


def test_age_is_checked():
    log = Log().said(FRESH)
    fields = tuple(pair for pair in log.history[0].fields if pair[0] != "age")
    assert wrong(log, log.got(0, at=9.0, fields=fields)) == ["no Age in a hit"]
    assert wrong(log, log.got(0, at=9.0, fields=(*fields, ("age", "3")))) == ["wrong Age"]
    assert wrong(log, log.got(0, at=9.0, fields=(*fields, ("age", "10")))) == []


def test_messages_are_checked():
    log = Log().said(FRESH)
    assert wrong(log, log.got(0, content=b"another")) == [
        "content is of another version than the fields, or not whole"
    ]
    asked = Ask("GET", (("if-none-match", '"1-0"'),))
    assert wrong(log, log.got(0, asked, status=304, content=b"")) == []
    other = Ask("GET", (("if-none-match", '"9"'), ("if-modified-since", "Tue, 01 Jan 2030 00:00:00 GMT")))
    assert wrong(log, log.got(0, other, status=304, content=b"")) == [
        "304 without a condition that asks for it"
    ]
    part = Ask("GET", (("range", "bytes=0-3"), ("if-range", '"old"')))
    span = (*log.got(0).fields, ("content-range", "bytes 0-3/31"))
    assert "206 though If-Range names another" in wrong(
        log, log.got(0, part, status=206, fields=span, content=b"/pag")
    )


def test_a_cache_answers_by_itself_only_for_a_dead_origin():
    own = Got(PLAIN, 1.0, 2.0, 502, (), b"")
    assert wrong(Log().said(BRIEF._replace(dead=True), at=1.5), own) == []
    assert wrong(Log().said(BRIEF, at=1.5), own) == ["own 502 though the origin answered"]
    assert wrong(Log(), own) == ["own 502 without asking"]


def test_the_source_of_a_response_is_read_from_the_log():
    log = Log().said(FRESH).said(FRESH, Ask("GET", (("if-none-match", "current"),)), at=5.05)
    assert how(log.history, log.got(0, at=0.0)) is How.FORWARDED
    assert how(log.history, log.got(0, at=3.0)) is How.HIT
    assert how(log.history, log.got(1, at=5.045)) is How.VALIDATED
    assert how(log.history, log.got(0)._replace(fields=())) is How.OWN


def test_a_sequence_is_the_same_each_time():
    assert drawn("3.14") == drawn("3.14")
    assert drawn("3.14") != drawn("3.15")


def test_shrinking_leaves_what_shows_the_mistake():
    """Two steps of many show it: an answer of 410, and a later HEAD."""

    def shown(steps):
        gone = [number for number, step in enumerate(steps) if step.answer and step.answer.status == 410]
        asked = [number for number, step in enumerate(steps) if step.ask.method == "HEAD"]
        return bool(gone and asked and min(gone) < max(asked))

    async def shows(steps):
        return Played(PATH, []) if shown(steps) else None

    gone = Step(1.2, Answer(status=410, cache_control="max-age=60"), NO_CACHE)
    steps = (
        Step(0.0, FRESH, WITH_A),
        gone,
        Step(0.0, BRIEF, PLAIN),
        Step(2.4, None, Ask("HEAD", WITH_A.fields)),
    )
    smallest, _ = asyncio.run(smaller(steps, Played(PATH, []), shows))
    answer = Answer(status=410, cache_control="max-age=60")
    assert smallest == (Step(0.0, answer, PLAIN), Step(0.0, None, Ask("HEAD")))
