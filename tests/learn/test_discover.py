"""Discover on logs that were made: what was planted is found, and where nothing was, nothing is."""

import hashlib
import json
import random
from functools import cache

import pytest

from examples import LONG, cases
from univocal.uri.profile import parse
from univocal.uri.target import canonical_target
from univocal_app.observe.log_reader import LogEntry, entry_of_any, entry_of_count
from univocal_learn.corpus import Corpus, read
from univocal_learn.discover import BASE, discover, measured, validated
from univocal_learn.written import loaded

PAGES = 600
# Requests in a log in which nothing was planted.
CLEAN_REQUESTS = 4000 if LONG else 1000
# Pages in one in which they only look alike.
ALIKE_PAGES = 400 if LONG else 200
# Requests in one in which a rule was planted; that all are found together takes more.
PLANTED_REQUESTS = 3000 if LONG else 1000
MANY_REQUESTS = 3000 if LONG else 2000
HELD_OUT = range(PAGES, PAGES + 200)


@cache
def size_of(*what):
    return 2000 + int(hashlib.md5(repr(what).encode()).hexdigest()[:8], 16) % 60_000


def request(target, size):
    """The entry that is read from a log line; its size may be unknown."""
    return LogEntry(b"", target.encode(), b"GET", 200, -1 if size is None else size, b"", b"")


def session(chance, digits=24):
    return f"{chance.getrandbits(digits * 4):0{digits}x}a1"


# A page, and how else it may be spelled.
SECTIONS = ["story", "news", "blog", "film"]
PLANTED = {
    "an id in the path": (lambda i: f"/story?id={i}", lambda url, _: url.replace("?id=", "_")),
    "a tracker": (
        lambda i: f"/docs/p{i}.html",
        lambda url, r: f"{url}?utm_source=s{r.randrange(40)}&utm_medium=m",
    ),
    "a session": (lambda i: f"/shop?item={i}", lambda url, r: f"{url}&sid={session(r)}"),
    "an unused parameter": (lambda i: f"/blog/t{i}", lambda url, r: f"{url}?ref=from{r.randrange(30)}"),
    "an index": (lambda i: f"/dir{i}/", lambda url, _: url + "index.html"),
    "doubled slashes": (lambda i: f"/a/b{i}", lambda url, _: "/" + url),
    "the other order": (
        lambda i: f"/find?q=w{i}&colour=red",
        lambda url, _: "/find?colour=red&q=" + url.split("q=")[1].split("&")[0],
    ),
    "a default": (
        lambda i: f"/list?cat={i}" + ("" if i % 3 else "&page=2"),
        lambda url, _: url if "page=" in url else url + "&page=1",
    ),
    "a prefix in each section": (lambda i: f"/{SECTIONS[i % 4]}/{i}", lambda url, _: "/en" + url),
    "a front controller": (lambda i: f"/wiki/A_{i}", lambda url, _: "/index.php" + url),
    "a session as a segment": (lambda i: f"/board/topic{i}", lambda url, r: f"/s/{session(r)}{url}"),
    "a session as the first segment": (lambda i: f"/forum/topic{i}", lambda url, r: f"/{session(r)}{url}"),
    "a path parameter": (lambda i: f"/app/view{i}", lambda url, r: f"{url};jsessionid={session(r)}"),
    "another suffix": (lambda i: f"/old/p{i}.html", lambda url, _: url.replace(".html", ".htm")),
    "encoded parentheses": (
        lambda i: f"/wiki/A_(b{i})",
        lambda url, _: url.replace("(", "%28").replace(")", "%29"),
    ),
    "a front controller with a query": (
        lambda i: f"/article.php?id={i}",
        lambda url, _: url.replace(".php?id=", "/"),
    ),
    "an id in the path of what is printed": (
        lambda i: f"/tale?id={i}",
        lambda url, _: url.replace("?id=", "_") + "?print=1",
    ),
    "a suffix": (lambda i: f"/text/page{i}", lambda url, _: url + ".page"),
    "a suffix before a query": (lambda i: f"/part/p{i}?colour=red", lambda url, _: url.replace("?", ".php?")),
    "a last segment": (lambda i: f"/press/{i}-title", lambda url, _: url + "/amp"),
    "slashes at the end": (lambda i: f"/about/us{i}", lambda url, _: url + "/"),
}


def planted_log(kinds, seed=1, *, sizes=True, jitter=0, requests=PLANTED_REQUESTS):
    """Yield `requests` log entries for each of the kinds."""
    chance = random.Random(seed)
    for _ in range(requests * len(kinds)):
        kind = chance.choice(kinds)
        page, spell = PLANTED[kind]
        url = page(int(PAGES * chance.random() ** 2))
        size = size_of(url) + (chance.randrange(jitter) if jitter else 0)
        spelled = spell(url, chance) if chance.random() < 0.35 else url
        yield request(spelled, size if sizes else None)


def learned(entries):
    return discover(read(entries))


def effect(found, kind):
    """Of pairs that were not in the log, how many are one."""
    profile, chance = parse({"learned": found.toml()})["learned"], random.Random(9)
    page, spell = PLANTED[kind]
    folded = [
        canonical_target(spell(page(i), chance).encode(), profile)
        == canonical_target(page(i).encode(), profile)
        for i in HELD_OUT
    ]
    return sum(folded) / len(folded)


def false_folds(found, kinds):
    """Pages that became one with another page."""
    profile = parse({"learned": found.toml()})["learned"]
    seen = {}
    wrong = []
    for kind in kinds:
        for i in range(PAGES + 200):
            url = PLANTED[kind][0](i)
            key = canonical_target(url.encode(), profile)
            if seen.setdefault(key, url) != url:
                wrong.append(url)
    return wrong


@pytest.mark.parametrize("kind", PLANTED)
def test_one_planted_rule_is_found(kind):
    found = learned(planted_log([kind, "a tracker"]))
    assert effect(found, kind) >= 0.9, found.toml()
    assert false_folds(found, [kind, "a tracker"]) == []


TOGETHER = [kind for kind in PLANTED if kind not in {"slashes at the end", "a session as the first segment"}]


def test_many_planted_rules_are_found_together():
    found = learned(planted_log(TOGETHER, requests=MANY_REQUESTS))
    missed = {kind: share for kind in TOGETHER if (share := effect(found, kind)) < 0.9}
    assert len(missed) <= 0.1 * len(TOGETHER), (missed, found.toml())
    assert false_folds(found, TOGETHER) == []


def test_pages_whose_sizes_vary_a_little():
    kinds = ["an id in the path", "a tracker", "an unused parameter", "an index"]
    found = learned(planted_log(kinds, jitter=12))
    assert {kind: effect(found, kind) for kind in kinds} == dict.fromkeys(kinds, 1.0)
    assert false_folds(found, kinds) == []


WITHOUT_SIZES = [
    *("an id in the path", "a tracker", "a session", "an index", "doubled slashes", "the other order"),
    *("a path parameter", "encoded parentheses"),
]


def test_without_sizes_only_obvious_rules_are_found():
    found = learned(planted_log(WITHOUT_SIZES, sizes=False))
    assert {kind: effect(found, kind) for kind in WITHOUT_SIZES} == dict.fromkeys(WITHOUT_SIZES, 1.0)
    assert false_folds(found, WITHOUT_SIZES) == []


@pytest.mark.parametrize("size", [lambda _: 512, lambda chance: chance.randrange(100_000)])
def test_sizes_that_tell_nothing_are_as_good_as_none(size):
    chance = random.Random(6)
    log = planted_log(WITHOUT_SIZES, sizes=False)
    found = learned(entry._replace(size=size(chance)) for entry in log)
    assert {kind: effect(found, kind) for kind in WITHOUT_SIZES} == dict.fromkeys(WITHOUT_SIZES, 1.0)


# Logs in which nothing was planted

CLEAN = {
    "pages of lists": lambda url, r: f"{url}?page={r.randrange(1, 9)}",
    "offsets": lambda url, r: f"{url}?start={r.randrange(9) * 20}&size=20",
    "ids": lambda url, r: f"{url}?id={r.randrange(500)}",
    "languages as a prefix": lambda url, r: f"/{r.choice(['en', 'de', 'fr', 'pt-BR'])}{url}",
    "languages as a parameter": lambda url, r: f"{url}?lang={r.choice(['en', 'de', 'fr'])}",
    "languages as a suffix": lambda url, r: f"{url}.{r.choice(['en', 'de'])}.html",
    "versions": lambda url, r: f"/v{r.randrange(1, 4)}{url}",
    "releases": lambda url, r: f"/docs/{r.choice(['stable', 'latest', '3.1', '3.2'])}{url}",
    "orders": lambda url, r: f"{url}?sort={r.choice(['asc', 'desc'])}",
    "formats": lambda url, r: f"{url}.{r.choice(['html', 'json', 'xml', 'pdf'])}",
    "parts": lambda url, r: url + r.choice(["", "/comments", "/edit", "/history"]),
    "thumbnails": lambda url, r: r.choice(["/thumb", "/large", ""]) + url + ".jpg",
    "words": lambda url, r: f"/{r.choice(['red', 'green', 'blue', 'black'])}{url}",
    "searches": lambda url, r: f"/search?q={url[1:].replace('/', '+')}" if r.random() < 0.5 else url,
    "dates": lambda url, r: f"/2026/{r.randrange(1, 13):02d}{url}",
    "hashes": lambda url, r: f"/files/{session(r, 32)}{url}",
}


# Parameters that change a page but hardly its size, and pages whose sizes nobody logged.
DECEPTIVE = {
    "five colours": lambda i, _: [
        (f"/p/{i}?finish={name}", size_of(i) + len(name))
        for name in ("red", "blue", "green", "black", "white")
    ],
    "thirty colours": lambda i, r: [
        (f"/p/{i}?finish={'x' * n}{n}", size_of(i) + n) for n in r.sample(range(30), 5)
    ],
    "free rooms": lambda i, _: [(f"/room/{i}?date=2026-11-{day:02d}", size_of(i)) for day in range(10, 29)],
    "accounts": lambda i, r: [(f"/report/{i}?account={session(r)}", size_of(i)) for _ in range(3)],
    "a version to print": lambda i, _: [(f"/p{i}", size_of(i)), (f"/print/p{i}", size_of(i) + 13)],
    "a parameter to print": lambda i, _: [(f"/p{i}", size_of(i)), (f"/p{i}?print=1", size_of(i) + 13)],
    "two printers": lambda i, _: [
        (f"/tale?id={i}", size_of(i)),
        (f"/tale_{i}?print=1", size_of(i) + 400),
        (f"/report_{i}?draft=1", size_of(i + 1)),
    ],
    "languages of pages that nobody has translated": lambda i, r: [
        (f"/n/{i}.html{query}", size_of(i)) for query in ("", "?lang=fr", "?lang=de")
    ],
    "representations": lambda i, _: [
        (f"/p/{i}{suffix}", size_of(i, suffix)) for suffix in ("", ".json", ".xml")
    ],
    "documents": lambda i, r: [(f"/view/{i % 20}?hash={session(r)}", None) for _ in range(3)],
    "matrix parameters": lambda i, r: [
        *((f"/p/{i};hue={hue}", None) for hue in ("red", "blue")),
        *((f"/app/{i};jsessionid={session(r)}", None) for _ in range(2)),
    ],
    "songs": lambda i, _: [(f"/play/{i % 30}?sid={i}", None), (f"/play/{i % 30}", None)],
}


@pytest.mark.parametrize("kind", DECEPTIVE)
def test_nothing_is_proposed_where_pages_only_look_alike(kind):
    chance = random.Random(8)
    found = learned(
        request(url, size) for i in range(ALIKE_PAGES) for url, size in DECEPTIVE[kind](i, chance)
    )
    assert not found.decided, found.toml()


def clean_log(kind, *, sizes, seed=2, requests=CLEAN_REQUESTS):
    chance = random.Random(seed)
    for _ in range(requests):
        url = CLEAN[kind](f"/item/t{int(400 * chance.random() ** 2)}", chance)
        size = size_of("by order alone", url.partition("?")[0]) if kind == "orders" else size_of(url)
        yield request(url, size if sizes else None)


@pytest.mark.parametrize("sizes", [True, False], ids=["with sizes", "without"])
@pytest.mark.parametrize("kind", CLEAN)
def test_nothing_is_proposed_where_nothing_is(kind, sizes):
    found = learned(clean_log(kind, sizes=sizes))
    assert not found.decided, found.toml()


def test_pages_of_one_size_say_nothing():
    lines = (
        request(f"/{lang}/item/t{i}?page={i % 7}", 4096)
        for i in range(5 * ALIKE_PAGES)
        for lang in ("en", "de", "all")
    )
    assert not learned(lines).decided


def test_all_the_clean_ones_in_one_log():
    chance = random.Random(4)
    logs = [clean_log(kind, sizes=True, requests=CLEAN_REQUESTS * 5 // 8) for kind in CLEAN]
    lines = [line for log in logs for line in log]
    chance.shuffle(lines)
    found = learned(iter(lines))
    assert not found.rules
    assert not found.decided, found.toml()


def test_another_order_is_not_taken_for_another_value():
    """No page was asked for in another colour: the log cannot tell that the colour goes unused."""
    sizes = {i: size_of(i) for i in range(300)}
    lines = [
        request(f"/product/{i}?{query}", sizes[i])
        for i in sizes
        for query in ("colour=red&fit=slim", "fit=slim&colour=red")
    ]
    found = learned(iter(lines))
    assert found.settings.sort
    assert found.settings.drop == ()


@pytest.mark.parametrize(
    ("name", "dropped"), [("ref", ("ref",)), ("f%5B0%5D", ("f[0]",)), ("*", ()), ("a%2A", ()), ("a+b", ())]
)
def test_names_are_proposed_as_a_profile_has_them(name, dropped):
    """In a profile a name is decoded, and a star is a glob: that rule would drop every parameter."""
    lines = [
        request(f"/p{i}{query}", size_of(i))
        for i in range(100)
        for query in ("", *(f"?{name}=x{each}" for each in range(9)))
    ]
    found = learned(iter(lines))
    assert found.settings.drop == dropped
    profile = parse({"learned": found.toml()})["learned"]
    assert canonical_target(b"/p1?other=1", profile) == b"/p1?other=1"
    if dropped:
        assert canonical_target(f"/p1?{name}=y".encode(), profile) == b"/p1"


# Hosts, JSON, bounds


def test_an_alias_is_a_host_with_the_same_pages():
    def lines():
        chance = random.Random(5)
        for _ in range(4000):
            i = chance.randrange(300)
            host = chance.choice(
                ["shop.example", "shop.example", "www.shop.example", "shop.test", "other.example"]
            )
            size = size_of(i, host if host == "other.example" else "")
            told = {"host": host, "request_uri": f"/p{i}", "status": 200, "body_bytes_sent": str(size)}
            yield json.dumps(told).encode()

    found = learned(map(entry_of_any, lines()))
    assert found.aliases == {"www.shop.example": "shop.example", "shop.test": "shop.example"}


def test_the_report_predicts_the_hit_ratio_by_replay():
    log = planted_log(["an id in the path", "a session"], requests=3000)
    corpus = read(log)
    found = discover(corpus)
    before, after = measured(corpus, found)
    assert after.hit_ratio > before.hit_ratio + 0.1
    told = json.loads(found.as_json(before, after))
    assert list(told) == [
        *("urls", "requests", "skipped", "sampled", "rules", "path", "query", "hosts", "folded", "hit_ratio"),
        "profile",
    ]
    assert told["rules"][0] | {"support": 0, "confidence": 0} == {
        "from": "/story_",
        "to": "/story?id=",
        "at": "path",
        "support": 0,
        "confidence": 0,
        "validated": None,
    }
    assert told["query"]["drop"] == ["sid"]
    assert told["folded"]["urls"] > 1000
    assert told["folded"]["requests"] > 1000
    parse({"learned": told["profile"]})


def test_an_origin_is_asked_about_its_own_host_alone():
    lines = (
        json.dumps({"host": host, "uri": uri, "status": 200, "bytes": size_of(host, i)}).encode()
        for i in range(40)
        for host in ("a.example", "b.example")
        for uri in (f"/{host[0]}{i}", f"/{host[0]}{i}?utm_source=x")
    )
    found, asked = learned(map(entry_of_any, lines)), list[bytes]()

    def ask(one, other):
        asked.extend((one, other))
        return "same"

    left = validated(found, ask, lambda _: None, b"b.example")
    assert left.settings.drop == found.settings.drop == ("utm_source",)
    assert len(asked) == 10
    assert all(target.startswith(b"/b") for target in asked)
    told = list[str]()
    assert validated(found, lambda *_: "unknown", told.append, b"b.example").settings.drop == ()
    assert told == ["drop utm_source: 0 same, 0 different, so it goes"]


def test_more_urls_than_fit_are_sampled_and_spellings_stay_together():
    kinds = ["an id in the path", "a session", "an index"]
    corpus = read(planted_log(kinds), most=1500)
    assert len(corpus.urls) <= 1500
    assert 0 < corpus.share <= 0.5
    found = discover(corpus)
    assert {kind: effect(found, kind) for kind in kinds} == dict.fromkeys(kinds, 1.0)


def test_only_answered_gets_count():
    corpus = Corpus()
    for method, status in (
        ("GET", 200),
        ("GET", 404),
        ("POST", 200),
        ("HEAD", 200),
        ("GET", 499),
        ("GET", 0),
    ):
        corpus.add(LogEntry(b"", b"/a", method.encode(), status, 10, b"", b""))
    corpus.add(None)
    assert (corpus.requests, corpus.skipped, len(corpus.urls)) == (2, 1, 1)


def test_counted_spellings_are_discovered_in_too():
    """The spellings that the admin listener counts suffice, without sizes."""
    counted = [f"  3 {target}\n" for i in range(40) for target in (f"/x{i}/", f"/x{i}/index.html")]
    corpus = read(entry_of_count(line.strip().encode()) for line in counted)
    found = discover(corpus)
    assert found.settings.index_names == ("index.html",)
    assert found.folded() == (40, 120)
    before, after = measured(corpus, found)
    assert (before.hits, after.hits) == (160, 200)
    assert canonical_target(b"/x1/index.html", loaded(BASE)) == b"/x1/index.html"


def test_a_path_that_becomes_a_query_keeps_its_parameters():
    """A page that is asked for by another spelling, and followed from a mail, is still that page."""
    kinds = ["a front controller with a query", "a tracker"]
    profile = parse({"learned": learned(planted_log(kinds)).toml()})["learned"]
    for target in (b"/article/7", b"/article/7?utm_source=x", b"/article.php?id=7&utm_source=x"):
        assert canonical_target(target, profile) == b"/article.php?id=7"


SLASHES_ALONE = [lambda i: f"/dir{i}/", lambda i: f"/tree/dir{i}/"]
NONE_ALONE = [lambda i: f"/api/item{i}"]


@pytest.mark.parametrize(
    ("others", "way"),
    [([], "remove"), (NONE_ALONE, "remove"), (SLASHES_ALONE, "add"), ([*NONE_ALONE, *SLASHES_ALONE], "keep")],
)
def test_slash_rules_follow_where_no_section_denies(others, way):
    """A server may redirect a directory without end if only its spelling with a slash is known."""
    lines = list(planted_log(["slashes at the end"]))
    lines += [request(other(i), size_of(other(i))) for other in others for i in range(300)]
    assert learned(iter(lines)).settings.trailing_slash == way


@cases("shared, are_one", (10, False), (30, True))
def test_two_sections_that_share_few_pages_are_not_one(shared, are_one):
    """Of 300 pages of each: a twentieth must be in the log under the other spelling, too."""
    old = [request(f"/early/p{i}", size_of(i)) for i in range(300)]
    new = [request(f"/archive/p{i}", size_of(i)) for i in range(300 - shared, 600 - shared)]
    assert bool(learned(iter([*old, *new])).rules) is are_one


def test_two_of_ten_sections_can_be_one():
    sections = ["ash", "birch", *(f"tree{number}" for number in range(8))]
    found = learned(
        request(f"/{section}/p{i}", size_of(i, max(1, sections.index(section))))
        for section in sections
        for i in range(100)
    )
    assert [rule.rule[:2] for rule in found.rules] in ([("/ash/", "/birch/")], [("/birch/", "/ash/")])


@cases("varying, are_one", (1, False), (4, True))
def test_similar_sizes_count_where_pages_change(varying, are_one):
    """Of ten pages, `varying` have another size when they are asked for again."""
    old = [
        request(f"/early/p{i}", size_of(i) + 3 * (again and i % 10 < varying))
        for again in (0, 1)
        for i in range(100)
    ]
    new = [request(f"/archive/p{i}", size_of(i) + 8) for i in range(100)]
    assert bool(learned(iter([*old, *new])).rules) is are_one


@cases("pages, way", (9, "remove"), (10, "add"))
def test_a_section_of_few_pages_denies_no_rule(pages, way):
    """All of them have a slash at the end, as ten would say."""
    lines = [
        *planted_log(["slashes at the end"]),
        *(request(f"/tree/dir{i}/", 100 * i) for i in range(pages)),
    ]
    assert learned(iter(lines)).settings.trailing_slash == way
