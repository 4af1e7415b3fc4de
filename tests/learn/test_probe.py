"""Probe on origins that are functions: what it must not be taken in by."""

import itertools
import random
import re
import time
from dataclasses import replace
from urllib.parse import quote, unquote, unquote_to_bytes

import pytest

from examples import cases, examples
from probing import ALWAYS, NAMES, RINGS, SAMPLE, agrees, are_one, verdicts
from univocal.uri.profile import parse
from univocal.uri.segments import remove_dot_segments
from univocal.uri.target import canonical_target
from univocal_learn.asking import remembering
from univocal_learn.likeness import CommonWords, Reply
from univocal_learn.names import namesake
from univocal_learn.probe import probe
from univocal_learn.written import folded

HTML = ((b"content-type", b"text/html"),)
NOT_FOUND = Reply(404, HTML, b"no such page")


def probed(origin, sample, least=0.0):
    """Probe an origin server; of the learned profile, this share of random spellings must be one resource."""
    fetch = remembering(origin)
    report = probe("http://en.example", sample, fetch, lambda: 0, lambda _: None)
    if least:
        are_one(fetch, report.profile, sample, least)
    return report


def text(seed, words):
    return " ".join(map(str, random.Random(repr(seed)).choices(range(10_000), k=words)))


def parameters(target):
    path, _, query = target.partition(b"?")
    pairs = (part.partition(b"=") for part in query.split(b"&") if part)
    return path, {name: value for name, _, value in pairs}


@pytest.mark.parametrize("words", [100, 3000, examples(30_000)])
def test_a_long_page_with_changing_parts_is_distinguished(words):
    """Between the clock at its head and the token at its end is what the page is about."""
    count = itertools.count()

    def origin(target):
        path, asked = parameters(target)
        if path != b"/story":
            return NOT_FOUND
        body = f"clock {next(count)} {text(asked.get(b'id'), words)} token {random.random()} the end"
        return Reply(200, HTML, body.encode())

    found = verdicts(probed(origin, [b"/story?id=%d" % number for number in range(8)]))
    assert found["unused:id"] == "different"
    assert found["unused:utm_source"] == "same"


def test_the_shared_words_of_two_long_texts_are_found():
    one, other = text("a", 3000).encode().split(), text("b", 9).encode().split()
    template = CommonWords.of([b"x", *one, b"y"]).widened(
        [*other[:4], *one[:1500], *other[4:], *one[1500:], b"z"]
    )
    assert template.words > 2900
    assert template.fits([b"x", *one, b"y"])
    assert not template.fits([b"x", *text("c", 3000).encode().split(), b"y"])


@pytest.mark.parametrize("seed", range(10))
def test_pages_of_which_only_the_frame_stays_show_no_equality(seed):
    """The page of another name would be alike too, but for words that come again by chance."""
    chance = random.Random(seed)

    def origin(target):
        path, _ = parameters(target)
        if not path.startswith(b"/feed/") or len(path) > 9:
            return NOT_FOUND
        return Reply(200, HTML, f"<html> latest {text(chance.random(), 50)} </html>".encode())

    found = verdicts(probed(origin, [b"/feed/%d?page=%d" % (number, number % 3) for number in range(9)]))
    assert "same" not in found.values()


def test_a_name_that_reads_as_a_glob_is_never_dropped():
    """`drop = ["*"]` would drop every parameter."""

    def origin(target):
        path, asked = parameters(target)
        names = {unquote_to_bytes(name): value for name, value in asked.items()}
        known = path == b"/list" and b"q" in names
        return Reply(200, HTML, text(names[b"q"], 50).encode()) if known else NOT_FOUND

    sample = [b"/list?q=%d&*=%d&a%%5Bb%%5D=%d" % (number, number, number) for number in range(6)]
    sample += [b"/list?q=%d&*=%d&a%%5Bb%%5D=%d" % (number, number + 1, number + 2) for number in range(6)]
    report = probed(origin, sample)
    assert verdicts(report)["unused:*"] == "same"
    dropped = parse({"learned": report.profile})["learned"].query.drop
    assert b"*" not in dropped
    assert b"a[b]" in dropped


def test_a_section_with_another_program_is_probed_too():
    """Of six sections five take an encoded slash for a slash, and the last one tells them apart."""
    sections = [b"a", b"b", b"c", b"d", b"e", b"last"]
    sample = [b"/%b/deep/page%d" % (section, number) for section in sections for number in range(9)]

    def origin(target):
        path, _ = parameters(target)
        read = path if path.startswith(b"/last") else unquote_to_bytes(path)
        return Reply(200, HTML, text(read, 50).encode()) if read in sample else NOT_FOUND

    five = [target for target in sample if not target.startswith(b"/last")]
    assert verdicts(probed(origin, five))["ring:2F"] == "same"
    report = probed(origin, sample)
    assert verdicts(report)["ring:2F"] == "different"
    assert "/" not in parse({"learned": report.profile})["learned"].settings["path"]["decode"]


WORDS = [b"plain", b"other", b"third", b"fourth", b"fifth", b"sixth", b"x,y", b"s;t", b"a(b)"]
PLAIN = [b"/wiki/" + word for word in WORDS]


def article(target):
    """A page for each word, however its octets are spelled, whatever the query says."""
    path = unquote_to_bytes(target.partition(b"?")[0])
    return Reply(200, HTML, text(path, 60).encode()) if path in PLAIN else NOT_FOUND


@pytest.mark.parametrize("allowed", [10, 30, 60, 100, 150, 200])
def test_a_suspected_robot_learns_nothing(allowed):
    """From some request on all targets are answered with one page, 200."""
    count = itertools.count()

    def origin(target):
        blocked = next(count) >= allowed
        return Reply(200, HTML, b"Are you a robot? Please wait.") if blocked else article(target)

    found = verdicts(probed(origin, PLAIN))
    same = {name for name, verdict in found.items() if verdict == "same"}
    assert same.isdisjoint({"merge-slashes", "dot-segments", "parameters", "trailing-slash", "case"})
    assert same.isdisjoint({"index-names"})


def test_redirects_one_after_the_other_lead_to_the_canonical_spelling():
    """Slashes first, then octets, then the slash at the end."""

    def origin(target):
        path = target.partition(b"?")[0]
        read = unquote_to_bytes(path).rstrip(b"/")
        if b"//" in path:
            return Reply(301, ((b"location", path.replace(b"//", b"/")),))
        if read not in PLAIN:
            return NOT_FOUND
        if path.rstrip(b"/") != read:
            return Reply(301, ((b"location", b"http://EN.example:80" + read),))
        if path != read + b"/":
            return Reply(301, ((b"location", read + b"/"),))
        return article(read)

    report = probed(origin, PLAIN)
    found = verdicts(report)
    asked = ["unreserved", "ring:28", "ring:2C", "merge-slashes", "trailing-slash"]
    assert [found[name] for name in asked] == ["same"] * 5
    assert parse({"learned": report.profile})["learned"].trailing_slash == "add"


def leading(spelled, names):
    """An origin server that leads from each spelling of its pages to the one that it likes."""

    def origin(target):
        path, _, query = target.partition(b"?")
        own = next((name for name in names if spelled(path) == spelled(name)), None)
        if own is None:
            return NOT_FOUND
        liked = spelled(own) + (b"?" + query if query else b"")
        page = b"<p>" + text(own, 300).encode()
        return Reply(200, HTML, page) if target == liked else Reply(301, ((b"location", liked),))

    return origin


def goes_in_circles(report, origin, targets):
    profile = parse({"learned": report.profile})["learned"]
    for target in targets:
        canonical = canonical_target(target, profile)
        assert isinstance(canonical, bytes)
        there = dict(origin(canonical).fields).get(b"location")
        if there is not None and canonical_target(there, profile) == canonical:
            return True
    return False


@pytest.mark.parametrize(
    "spelled",
    [
        lambda path: path.removesuffix(b"/").removesuffix(b"/index.html") + b"/index.html",
        lambda path: re.sub(rb"/+", b"/", path).replace(b"/page", b"//page"),
        lambda path: re.sub(rb"/+$", b"", path) + b"/",
        lambda path: path.rstrip(b"/") or b"/",
        lambda path: unquote_to_bytes(path).replace(b"(", b"%28"),
    ],
    ids=["index.html", "two slashes", "a slash", "no slash", "an escape"],
)
def test_a_learned_profile_leads_nobody_in_circles(spelled):
    names = [b"/a/page(%d" % number for number in range(6)]
    origin = leading(spelled, names)
    sample = [spelled(name) for name in names]
    report = probed(origin, sample)
    assert not goes_in_circles(report, origin, [*sample, *names])


def test_a_redirect_from_the_canonical_spelling_is_no_equality():
    names = [b"/wiki/%%d0%%bf%d" % number for number in range(6)]
    report = probed(leading(lambda path: re.sub(rb"%..", lambda e: e[0].lower(), path), names), names)
    assert verdicts(report)["escape-case"] == "different"
    assert "escape-case" in {risk.name for risk in report.risks}


@pytest.mark.parametrize("spelled", [b"?l=fr", b"?utm_campaign=spring"])
def test_a_parameter_that_few_pages_heed_is_not_unused(spelled):
    """Of sixteen pages with the parameter two are others with this value, of all pages 6 in 100."""
    sample = [b"/wiki/%d" % number for number in range(16)]
    name = spelled[1:].partition(b"=")[0]

    def origin(target):
        path, _, query = target.partition(b"?")
        heeds = path in sample[7:9] and b"?" + query == spelled
        return Reply(200, HTML, text((path, heeds), 60).encode()) if path in sample else NOT_FOUND

    asked = [*sample]
    asked += [path + (b"?%b=x" % name if number % 3 else spelled) for number, path in enumerate(sample)]
    found = verdicts(probed(origin, asked))
    assert found["unused:" + name.decode()] == "different"
    assert found["unused:gclid"] == "same"


def test_an_order_that_matters_to_some_parameters_is_kept():
    def origin(target):
        path, _, query = target.partition(b"?")
        parts = query.split(b"&")
        known = parts if {b"crop=1", b"turn=2"} <= set(parts) else sorted(parts)
        return Reply(200, HTML, text(known, 60).encode()) if path == b"/picture" else NOT_FOUND

    harmless = [b"/picture?turn=%d&size=%d" % (number, number) for number in range(9)]
    assert verdicts(probed(origin, harmless))["query-order"] == "same"
    assert verdicts(probed(origin, [*harmless, b"/picture?crop=1&turn=2"]))["query-order"] == "different"


def test_one_slash_at_the_end_is_not_two():
    """Express takes /a/ for /a, and knows no /a//."""
    profile = parse({"learned": probed(express_like, PLAIN).profile})["learned"]
    assert profile.trailing_slash == "add"
    assert folded(profile, b"/wiki/plain", b"/wiki/plain/")
    assert not folded(profile, b"/wiki/plain", b"/wiki/plain//")


def express_like(target):
    path = target.partition(b"?")[0]
    return article(path[:-1] if path.endswith(b"/") else path)


def test_a_semicolon_of_one_parameter_is_not_its_escape():
    """A session's identifier is cut off; what follows any other ";" is the page's name."""

    def origin(target):
        path, _, _ = target.partition(b"?")
        return article(path.partition(b";jsessionid=")[0])

    profile = parse({"learned": probed(origin, PLAIN).profile})["learned"]
    assert profile.parameters == "keep"
    assert folded(profile, b"/wiki/x,y", b"/wiki/x%2Cy")
    assert not folded(profile, b"/wiki/plain;jsessionid=1", b"/wiki/plain%3Bjsessionid=1")


def test_of_many_sections_the_last_one_counts():
    sections = [b"s%d" % number for number in range(14)]
    sample = [b"/%b/%b" % (section, word) for section in sections for word in (b"a,b", b"c", b"d,e")]

    def origin(target):
        path = target.partition(b"?")[0]
        read = path if path.startswith(b"/s13/") else unquote_to_bytes(path)
        return Reply(200, HTML, text(read, 50).encode()) if read in sample else NOT_FOUND

    assert verdicts(probed(origin, sample))["ring:2C"] == "different"
    assert verdicts(probed(origin, sample[:-3]))["ring:2C"] == "same"


def test_an_origin_that_has_moved_is_said_to_have():
    report = probed(lambda target: Reply(301, ((b"location", b"https://en.example" + target),)), PLAIN)
    assert not report.decided
    assert "status 301 to another origin or scheme" in report.profile


@pytest.mark.parametrize("reads_hosts", [True, False])
def test_dot_segments_stay_where_two_slashes_begin_a_host(*, reads_hosts):
    """`new URL(request.url, base)` reads //a/b as the path /b on the host a."""

    def origin(target):
        path = target.partition(b"?")[0]
        if reads_hosts and path.startswith(b"//"):
            path = b"/" + path[2:].partition(b"/")[2]
        return article(remove_dot_segments(path))

    report = probed(origin, [*PLAIN, b"/wiki/deep/../plain"])
    assert verdicts(report)["dot-segments"] == "same"
    profile = parse({"learned": report.profile})["learned"]
    assert folded(profile, b"/wiki/plain", b"/wiki/x/../plain") is not reads_hosts
    assert ("dot-segment" in profile.sequences) is reads_hosts
    assert folded(profile, b"/wiki/x,y", b"/wiki/x%2Cy")


def tomcat_like(pages):
    """Tomcat with files: it refuses %2F, and redirects a directory to what was written and a slash."""

    def origin(target):
        path = written = target.partition(b"?")[0]
        if b"%2F" in path.upper():
            return Reply(400, HTML, b"invalid")
        segments = []
        for segment in unquote_to_bytes(path)[1:].split(b"/"):
            if segment == b"..":
                if not segments:
                    return Reply(400, HTML, b"invalid")
                segments.pop()
            elif segment != b".":
                segments.append(segment)
        path = b"/" + b"/".join(segments)
        if path in pages:
            return Reply(200, HTML, text(path, 60).encode())
        return Reply(302, ((b"location", written + b"/"),)) if path + b"/" in pages else NOT_FOUND

    return origin


@pytest.mark.parametrize("pages", [[b"/docs/", b"/docs/a.html", b"/docs/b.html"], [b"/docs/", b"/shop/"]])
def test_a_rejected_form_hides_no_equal_ones(pages):
    """A ".." that is redirected to its directory led to where the slash is missing, as in servlets."""
    report = probed(tomcat_like(pages), pages)
    assert verdicts(report)["dot-segments"] == "same"
    profile = parse({"learned": report.profile})["learned"]
    assert profile.dot_segments == "servlet"
    assert folded(profile, b"/docs/x/./../y", b"/docs/y")
    assert not folded(profile, b"/docs/x%2F../y", b"/docs/y")


# Kinds of applications.


def page(name, noise=""):
    body = f"<html><h1>{name}</h1>\n<p>{text(name, 60)}\n<footer>{noise}</footer></html>"
    return Reply(200, HTML, body.encode())


def wiki(decoded, *more, noise=lambda: "", missing="no"):
    """An origin server of the sample's pages, whose names it makes of the target."""

    def origin(target):
        name = decoded(target.decode())
        known = name.startswith("/wiki/") and name[6:] in [*NAMES, *more]
        return page(name, noise()) if known else Reply(404, HTML, f"{missing} {noise()}".encode())

    return origin


def decodes(target):
    return unquote(target.partition("?")[0])


def test_a_router_like_mediawikis():
    """Titles are decoded once, `%2F` is a subpage's slash, blanks are underscores."""
    pages = wiki(lambda target: decodes(target).replace(" ", "_"), "AC/DC", "Two_words")

    def origin(target):
        answer = pages(target)
        return page(answer.body) if answer.status == 200 and b"action=history" in target else answer

    sample = [*SAMPLE, b"/wiki/AC/DC", b"/wiki/Two_words", b"/wiki/plain?action=history"]
    agrees(
        probed(origin, sample, least=0.15),
        [*ALWAYS, "ring:2F", "empty-query", "unused:utm_source"],
        ["merge-slashes", "dot-segments", "parameters", "trailing-slash", "unused:action", "case"],
    )


def test_one_that_splits_before_it_decodes():
    """RESTBase does so: %2F belongs to a title."""

    def split(target):
        parts = target.split("/")
        return "/".join(map(unquote, parts)) if len(parts) == 3 else ""

    report = probed(wiki(split, "AC/DC"), [*SAMPLE, b"/wiki/AC%2FDC"], least=0.01)
    agrees(report, ALWAYS, ["ring:2F", "merge-slashes", "dot-segments", "trailing-slash"])


def test_one_that_decodes_nothing():
    """No ring is learned, and the loader's own folding of unreserved octets is a risk that is named."""
    known = {target.decode(): f"/wiki/{name}" for target, name in zip(SAMPLE, NAMES, strict=True)}
    report = probed(wiki(lambda target: known.get(target, "")), SAMPLE)
    found = verdicts(report)
    assert not [name for name in [*RINGS, "ring:2F", "merge-slashes"] if found[name] == "same"]
    assert {risk.name for risk in report.risks} >= {"unreserved", "escape-case"}


def test_clocks_and_tokens_do_not_decide():
    count = itertools.count()

    def noise():
        return f"{time.time()} <input value=token{random.random()}> {' x' * (next(count) % 3)}"

    def origin(target):
        answer = wiki(decodes, noise=noise)(target)
        return replace(answer, fields=(*answer.fields, (b"etag", b'"%d"' % next(count))))

    report = probed(origin, SAMPLE)
    agrees(report, [*ALWAYS, "ring:2F", "empty-query"], ["merge-slashes", "dot-segments", "parameters"])


@pytest.mark.parametrize("repeats", [True, False], ids=["which repeat the name", "of one text"])
def test_soft_404s_decide_nothing(repeats):
    def origin(target):
        answer = wiki(decodes)(target)
        called = f" called {decodes(target.decode())}" if repeats else ""
        sorry = f"<html><h1>Sorry</h1><p>There is no page{called}. Have a look around.</html>"
        return answer if answer.status == 200 else Reply(200, HTML, sorry.encode())

    report = probed(origin, SAMPLE)
    assert set(verdicts(report).values()) == {"unknown"}
    assert not report.decided


def test_a_page_for_everything_decides_nothing():
    everything = Reply(200, HTML, b"<html><script src=app.js></script></html>")
    assert set(verdicts(probed(lambda _: everything, SAMPLE)).values()) == {"unknown"}


def test_one_that_tells_every_spelling_in_its_content():
    report = probed(lambda target: Reply(200, HTML, b"You asked for " + target.partition(b"?")[0]), SAMPLE)
    told = verdicts(report).items()
    assert not [name for name, said in told if said == "same" and not name.startswith(("unused", "empty"))]


def test_a_redirect_tells_which_spelling_is_canonical():
    def origin(target):
        path = target.decode().partition("?")[0]
        canonical = "/wiki/" + quote(unquote(path).removeprefix("/wiki/"), safe="!:@")
        answer = wiki(decodes)(target)
        known = answer.status == 200 and path != canonical
        return Reply(301, ((b"location", canonical.encode()),)) if known else answer

    profile = parse({"learned": probed(origin, SAMPLE).profile})["learned"]
    assert {0x28, 0x29, 0x2C, 0x27} <= {octet for octet in range(0x80) if profile.ring.forms[octet] == 0}
    assert {0x21, 0x3A, 0x40} <= {octet for octet in range(0x80) if profile.ring.forms[octet] == 1}


def test_decoding_twice_and_any_suffix_are_risks():
    """It decodes twice, and has a page for any suffix."""
    twice = wiki(lambda target: "/".join(unquote(decodes(target)).split("/")[:3]))
    assert {risk.name for risk in probed(twice, SAMPLE).risks} == {"double-decoding", "any-suffix"}


# Names.


def named(own, other, origin):
    pages = PLAIN[:4]
    return probe(
        origin,
        pages,
        lambda target, _: own(target),
        lambda: 0,
        lambda _: None,
        lambda target, _: other(target),
    )


def redirecting(origin):
    return lambda target: Reply(301, ((b"location", origin + target),))


def elsewhere(target):
    found = article(target)
    return Reply(found.status, HTML, text(b"another" + target, 60).encode())


@cases(
    "own, other, verdict, said",
    (article, redirecting(b"http://en.example"), "same", "www.en.example is en.example"),
    (article, redirecting(b"https://en.example"), "same", "www.en.example is en.example"),
    (redirecting(b"http://www.en.example"), article, "same", "en.example is www.en.example"),
    (article, article, "same", "www.en.example is en.example"),
    (article, elsewhere, "different", ""),
    (article, lambda _: NOT_FOUND, "different", ""),
    (article, redirecting(b""), "different", ""),
    (article, lambda _: Reply(0), "unknown", ""),
)
def test_the_alias_among_www_and_bare_host_is_found(own, other, verdict, said):
    report = named(own, other, "http://en.example")
    assert verdicts(report)["www"] == verdict
    assert re.findall(r"# Hosts: (.*): an entry of `aliases`\.", report.profile) == ([said] if said else [])


@cases(
    "origin, other",
    ("http://en.example", "http://www.en.example"),
    ("https://www.en.example:8443", "https://en.example:8443"),
    ("http://127.0.0.1:9000", None),
    ("http://[::1]:9000", None),
    ("http://localhost:9000", None),
)
def test_a_name_has_another_and_an_address_has_none(origin, other):
    assert namesake(origin) == other
