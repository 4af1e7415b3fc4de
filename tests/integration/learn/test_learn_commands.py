"""The four commands: what they print, how they end, and how they behave towards the origin they ask."""

import gzip
import itertools
import json
import time
from urllib.parse import unquote

import pytest
import zstandard
from starlette.responses import HTMLResponse, PlainTextResponse

from examples import cases
from univocal.uri.profile import parse

SAMPLE = "".join(
    f"/wiki/{name}\n" for name in ("A(b)", "C!d", "E:f", "plain", "other", "third?id=1", "docs/one")
)


@pytest.fixture
def site(hosted):
    """An origin that decodes, as Starlette does; it keeps what it was asked for."""
    asked = []

    async def app(scope, receive, send):
        asked.append((scope["method"], scope["raw_path"].decode(), dict(scope["headers"])))
        path = unquote(scope["raw_path"].decode())
        if path == "/robots.txt":
            response = PlainTextResponse("User-agent: *\nDisallow: /wiki/C\nDisallow: /private\n")
        elif path.startswith("/wiki/") and f"{path}\n" in SAMPLE.replace("?id=1", ""):
            response = HTMLResponse(f"<h1>{path}</h1> " + " ".join(str(len(path) * n) for n in range(40)))
        else:
            response = PlainTextResponse("no", 404)
        await response(scope, receive, send)

    app.asked = asked
    return hosted(app), asked


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "sample.txt"
    path.write_text(SAMPLE)
    return path


def test_probe_json_is_the_contract(univocal, site, sample, tmp_path):
    origin, asked = site
    out = tmp_path / "learned.toml"
    ended = univocal("probe", origin, "--sample", sample, "--json", "--rate", 5000, "--out", out)
    assert (ended.returncode, ended.stderr) == (0, "")
    told = json.loads(ended.stdout)
    assert list(told) == ["origin", "requests", "questions", "risks", "profile"]
    assert told["origin"] == origin
    assert told["requests"] == len(asked)
    questions = {question["question"]: question for question in told["questions"]}
    assert questions["ring:28"]["verdict"] == "same"
    assert questions["merge-slashes"]["verdict"] == "different"
    assert set(questions["ring:28"]["evidence"][0]) == {"a", "b", "verdict", "why"}
    assert questions["ring:28"]["pairs"] == len(questions["ring:28"]["evidence"])
    assert {f"ring:{octet:02X}" for octet in b":/[]@!$&'()*+,;="} <= set(questions)
    assert out.read_text() == told["profile"]
    parse({"learned": told["profile"]})
    assert {method for method, _, _ in asked} == {"GET"}
    assert {fields[b"host"].decode() for _, _, fields in asked} == {origin.removeprefix("http://")}


def test_probe_does_what_robots_txt_asks(univocal, site, sample):
    origin, asked = site
    sample.write_text("/wiki/C!d\n/wiki/plain\n")
    univocal("probe", origin, "--sample", sample, "--json", "--rate", 5000)
    assert len(asked) > 50
    paths = [path for _, path, _ in asked]
    assert paths[0] == "/robots.txt"
    assert not [path for path in paths if unquote(path).startswith("/wiki/C")]


def test_probe_asks_no_faster_than_it_is_told(univocal, site, tmp_path):
    origin, asked = site
    short = tmp_path / "short.txt"
    short.write_text("/wiki/plain\n")
    began = time.monotonic()
    univocal("probe", origin, "--sample", short, "--rate", 100)
    assert len(asked) > 60
    assert time.monotonic() - began > (len(asked) - 1) / 100


def test_probe_dry(univocal, site, sample):
    origin, asked = site
    ended = univocal("probe", origin, "--sample", sample, "--dry-run")
    assert (ended.returncode, asked) == (0, [])
    assert "ring:28" in ended.stdout
    told = json.loads(univocal("probe", origin, "--sample", sample, "--dry-run", "--json").stdout)
    assert told["requests"] == 0
    assert sum(question["pairs"] for question in told["questions"]) > 50


def test_probe_goes_on_where_it_was(univocal, site, sample, tmp_path):
    origin, asked = site
    kept = tmp_path / "answers"
    sample.write_text("/wiki/plain\n/wiki/other\n")
    whole = univocal("probe", origin, "--sample", sample, "--json", "--rate", 5000, "--resume", kept)
    first = len(asked)
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[: len(lines) // 2]) + b'{"target": "/torn')
    again = univocal("probe", origin, "--sample", sample, "--json", "--rate", 5000, "--resume", kept)
    assert len(asked) - first < 0.6 * first
    assert json.loads(again.stdout)["questions"] == json.loads(whole.stdout)["questions"]
    sample.write_text("/other\n")
    ended = univocal("probe", origin, "--sample", sample, "--resume", kept)
    assert ended.returncode == 2
    assert "belongs to another" in ended.stderr


@cases(
    "words, said",
    (["probe", "ftp://a/", "--sample", "-"], "ORIGIN"),
    (["probe", "http://127.0.0.1:1/x", "--sample", "-"], "must not have a path"),
    (["probe", "http://127.0.0.1:1"], "--sample"),
    (["probe", "http://127.0.0.1:1", "--sample", "/nowhere"], "No such file"),
    (["discover", "/nowhere"], "No such file"),
    (["discover", "-", "--format", "xml"], "there is no format"),
    (["replay", "-", "--profile", "asgi", "--format", "counted"], "the order of the requests is unknown"),
    (["replay", "-"], "--profile"),
    (["replay", "-", "--profile", "nope"], "nope"),
    (["replay", "-", "--profile", "nginx", "--max-bytes", "much"], "--max-bytes"),
    (["audit", "-"], "standard input"),
)
def test_usage(univocal, words, said):
    ended = univocal(*words, stdin="")
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.replace("│", " ").split())


@cases("log", "", "nonsense\n", '{"request_uri": "/a", "method": "POST", "status": 200}\n')
@cases(
    "words", ["discover", "-"], ["replay", "-", "--profile", "nginx"], ["audit", "-", "--profile", "nginx"]
)
def test_a_log_without_an_answered_get_decides_nothing(univocal, words, log):
    ended = univocal(*words, stdin=log)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no answered GET in this log" in ended.stderr
    told = univocal(*words, "--json", stdin=log)
    figures = json.loads(told.stdout)
    assert (told.returncode, (figures[0] if "discover" not in words else figures)["requests"]) == (1, 0)


def test_a_sample_without_a_url_decides_nothing(univocal):
    ended = univocal("probe", "http://127.0.0.1:1", "--sample", "-", stdin="nonsense\n")
    assert ended.returncode == 1
    assert "no URL of this origin server" in ended.stderr


def test_an_origin_that_is_not_there(univocal, sample):
    ended = univocal("probe", "http://127.0.0.1:9", "--sample", sample, "--rate", 1000)
    assert ended.returncode == 1
    assert "does not answer" in ended.stderr


def test_the_sample_may_be_a_sitemap_or_a_log(univocal, site, tmp_path, log):
    origin, _ = site
    sitemap = tmp_path / "sitemap.xml"
    sitemap.write_text(
        '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        "<url><loc>https://shop.example/wiki/A(b)?x=1&amp;y=2</loc></url><url><loc>https://cdn.example/x</loc></url>"
        "<url><loc> https://shop.example/wiki/plain </loc></url></urlset>"
    )
    told = json.loads(univocal("probe", origin, "--sample", sitemap, "--dry-run", "--json").stdout)
    assert {e["a"] for q in told["questions"] for e in q["evidence"]} == {"/wiki/A(b)?x=1&y=2", "/wiki/plain"}
    log.write_text('1.2.3.4 - - [22/Nov/2026:02:03:04 +0000] "GET /wiki/plain HTTP/1.1" 200 5\nnonsense\n')
    assert "/wiki/plain" in univocal("probe", origin, "--sample", log, "--dry-run").stdout


# Logs


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def line(target, size=100, host="1.2.3.4", second=4, status=200, method="GET"):
    time = f"22/Nov/2026:02:03:{second:02d} +0000"
    return f'{host} - - [{time}] "{method} {target} HTTP/1.1" {status} {size} "-" "x"\n'


def log_of_spellings():
    lines = []
    for number, again in itertools.product(range(60), range(3)):
        target = [f"/story?id={number}", f"/story_{number}", f"/story?id={number}&print=1"][again]
        lines.append(line(target, 1000 + 37 * number))
    return "".join(lines)


def test_discover_asks_the_origin(univocal, hosted, log):
    """The origin server refutes one default that the log suggests, and confirms the others."""

    async def app(scope, receive, send):
        path, query = scope["path"], scope["query_string"].decode()
        number = (
            path.removeprefix("/story_")
            if path.startswith("/story_")
            else query.removeprefix("id=").split("&")[0]
        )
        if path.startswith("/story") and number.isdigit() and int(number) < 60:
            shown = "printed" if "print" in query else "shown"
            response = HTMLResponse(f"<p>Story {int(number) * 7919} is {shown}</p>")
        else:
            response = PlainTextResponse("no", 404)
        await response(scope, receive, send)

    log.write_text(log_of_spellings())
    alone = json.loads(univocal("discover", log, "--json").stdout)
    assert list(alone) == [
        *("urls", "requests", "skipped", "sampled", "rules", "path", "query", "hosts", "folded", "hit_ratio"),
        "profile",
    ]
    assert alone["query"]["defaults"] == {"print": "1"}
    assert [(rule["from"], rule["to"], rule["validated"]) for rule in alone["rules"]] == [
        ("/story_", "/story?id=", None)
    ]
    assert alone["hit_ratio"]["after"] > alone["hit_ratio"]["before"]
    asked = json.loads(univocal("discover", log, "--json", "--origin", hosted(app), "--rate", 1000).stdout)
    assert asked["query"]["defaults"] == {}
    assert asked["rules"][0]["validated"] == {"same": 5, "different": 0}
    parse({"learned": asked["profile"]})


def test_discover_on_a_log_without_rules(univocal, log):
    log.write_text("".join(line(f"/p{number}", 1000 + 37 * number) for number in range(100)))
    ended = univocal("discover", log)
    assert ended.returncode == 1
    assert "supports no rule" in ended.stdout


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, bytes])
def test_logs_may_be_compressed(univocal, log, pack):
    log.write_bytes(pack(log_of_spellings().encode()))
    assert json.loads(univocal("discover", log, "--json").stdout)["requests"] == 180


def test_replay_compares_profiles(univocal, tmp_path, log):
    own = tmp_path / "own.toml"
    own.write_text('extends = "nginx"\n[query]\ndrop = ["utm_*"]\n')
    targets = ["/a", "/a", "//a", "/a?utm_source=x", "/%61", "/b/..;/c", "/../x"]
    text = "".join(map(line, targets)) + line("/a", method="HEAD") + line("/a", status=499) + "nonsense\n"
    log.write_text(text)
    ended = univocal("replay", log, "--profile", "nginx", "--profile", own, "--profile", "servlet", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    told = json.loads(ended.stdout)
    assert [list(row) for row in told] == 3 * [
        ["profile", "requests", "keys", "hits", "hit_ratio", "bytes", "evictions", "refused"]
    ]
    found = [(row["requests"], row["keys"], row["hits"], row["refused"]) for row in told]
    assert found == [
        (7, 3, 3, {"above-root": 1}),
        (7, 2, 4, {"above-root": 1}),
        (7, 2, 3, {"dot-segment-parameter": 1, "above-root": 1}),
    ]
    assert 0 < told[0]["bytes"] < 10_000
    text = univocal("replay", log, "--profile", "servlet").stdout
    assert "/b/..;/c  from 1.2.3.4" in text


def test_replay_with_a_lifetime_and_a_small_store(univocal, log):
    log.write_text(line("/a", second=1) + line("/a", second=5) + line("/a", second=20))

    def hits(*more):
        return json.loads(univocal("replay", log, "--profile", "rfc3986", "--json", *more).stdout)[0]["hits"]

    assert [hits(), hits("--ttl", 10), hits("--ttl", 1)] == [2, 1, 0]
    log.write_text("".join(line(f"/{number % 50}", 20_000) for number in range(500)))
    small = univocal("replay", log, "--profile", "rfc3986", "--json", "--max-bytes", "100 KiB")
    assert json.loads(small.stdout)[0]["evictions"] > 0


@cases(
    "targets, words",
    (["/a", "/%61"], "gains nothing: what became one was not asked for again in time"),
    (["/a", "/b"], "gains nothing: this site's clients spell its URLs one way"),
)
def test_audit_says_why_nothing_is_gained(univocal, log, targets, words):
    """A minute passes between two requests; what is stored is fresh for one second."""
    log.write_text("".join(line(target, second=59 * number) for number, target in enumerate(targets)))
    assert words in univocal("audit", log, "--profile", "rfc3986", "--ttl", 1).stdout


def test_audit_says_where_refusing_costs_hits(univocal, log):
    log.write_text((line("/x%00") + line("/a")) * 5)
    said = univocal("audit", log, "--profile", "rfc3986").stdout
    assert "there is 1 URL: no spelling became one with another" in said
    assert "loses 40.0 points: what would be refused had been asked for often" in said


def test_audit_says_it_in_plain_words(univocal, log):
    log.write_text(log_of_spellings() + line("/x#y", host="6.6.6.6"))
    said = univocal("audit", log).stdout
    assert "181 requests for 181 URLs" in said
    assert "there are 60 URLs: 120 spellings became one with another" in said
    assert "gains 66.3 points" in said
    assert "spared 120 more requests" in said
    assert "\n1 request that the origin server answered would have been refused" in said
    assert "reaches them all. 1 spelling would be refused.\n" in said
    assert "\n  1 as fragment, for example\n    /x#y  from 6.6.6.6" in said
    told = json.loads(univocal("audit", log, "--profile", "rfc3986", "--json").stdout)
    assert [row["keys"] for row in told] == [181, 180]
