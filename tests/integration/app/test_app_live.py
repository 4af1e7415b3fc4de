"""`univocal log` and `univocal top` choose lines, and write nothing that a terminal would obey."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from examples import cases
from univocal_app.commands.log import as_text, moment
from univocal_app.commands.top import MEASURES, chart, number, rates, screen, shared_out, size

HOSTILE = "\x1b]0;owned\x07\x9b31m\r\n\x7f\u202e\u0085\ud800"
ENTRY = json.loads("""{
  "time": "2026-11-22T08:00:00.123Z", "client": "192.0.2.7", "method": "GET",
  "target": "/wiki/A%28b%29", "url": "http://en.example/wiki/A(b)", "site": "en.example",
  "status": 200, "bytes": 1234, "seconds": 0.0123, "protocol": "HTTP/1.1", "user_agent": "curl/8",
  "referrer": null, "cache": "hit", "stored": false, "storable": null, "collapsed": false,
  "detail": null, "reasons": []
}""")
NAMES = (*list(ENTRY)[:6], "cache", "detail", "storable", "user_agent", "host")


def harmless(text):
    return all(letter.isprintable() for letter in text)


def test_a_line_tells_what_was_asked_and_what_it_became():
    assert as_text(ENTRY).plain == (
        "08:00:00.123  200 hit             12.3ms      1234  "
        'GET http://en.example/wiki/A(b) <- /wiki/A%28b%29  192.0.2.7  "curl/8"'
    )


@cases(
    "change, told",
    ({"target": "/wiki/A(b)"}, "GET http://en.example/wiki/A(b)  192.0.2.7"),
    ({"status": 0, "cache": "uri-miss"}, "left uri-miss"),
    ({"url": None, "host": "en.example", "status": 400}, "GET en.example /wiki/A%28b%29"),
    ({"seconds": 10**400}, "hit                  -      1234"),
    ({"detail": "control-character"}, "192.0.2.7 control-character"),
    ({"detail": "private", "storable": "private"}, '192.0.2.7 private  "'),
    (
        {"purge": {"by": "tag", "names": ["news", "de"], "soft": True, "count": 3}},
        "soft purge by tag news de: 3",
    ),
    ({"purge": {"by": "all", "names": [], "soft": False, "count": None}}, "purge by all : ?"),
    (
        {"origin": {"url": "http://o:1", "address": "", "reason": "refused", "error": "no"}},
        "origin http://o:1: refused: no",
    ),
)
def test_a_line_tells_what_is_out_of_the_ordinary(change, told):
    assert told in as_text(ENTRY | change).plain


def test_no_escape_sequence_reaches_the_terminal():
    entry = ENTRY | dict.fromkeys(NAMES, HOSTILE)
    entry["purge"] = {"by": HOSTILE, "names": [HOSTILE], "soft": True, "count": HOSTILE}
    entry["origin"] = dict.fromkeys(("url", "address", "reason", "error"), HOSTILE)
    text = as_text(entry)
    assert harmless(text.plain)
    assert r"\x1b]0;owned" in text.plain


TEXTS = st.text(st.sampled_from([*HOSTILE, "a", "é", "\\"]), max_size=4)
VALUES = st.none() | st.booleans() | st.integers(-1, 999) | TEXTS | st.lists(TEXTS, max_size=2)


@given(
    st.dictionaries(st.sampled_from([*ENTRY, "host", "purge", "origin"]), VALUES | st.just({"by": "\x1b"}))
)
def test_an_object_of_any_content_is_a_harmless_line(entry):
    assert harmless(as_text(entry).plain)


@cases("text, seconds", ("30s", 970.0), ("10m", 400.0), ("1.5s", 998.5), ("1970-01-01T00:00:07Z", 7.0))
def test_a_moment_is_a_time_or_so_long_ago(text, seconds):
    assert moment(text, 1000.0) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "yesterday", "10 m", "1e3s"])
def test_an_invalid_moment_is_refused(text):
    with pytest.raises(ValueError, match="is no time"):
        moment(text, 1000.0)


# ── univocal log FILE ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "access.log"
    entries = [
        ENTRY,
        ENTRY | {"status": 404, "cache": "uri-miss", "time": "2026-11-22T09:00:00.000Z"},
        ENTRY | {"status": 400, "cache": None, "site": "", "target": "/" + HOSTILE[:-1]},
    ]
    lines = [json.dumps(entry) for entry in entries]
    file.write_text("\n".join([*lines, "no object", "{}", ""]))
    return file


@cases(
    "arguments, statuses",
    ([], ["200", "404", "400"]),
    (["--status", "4xx"], ["404", "400"]),
    (["--status", "404", "--status", "200"], ["200", "404"]),
    (["--cache", "hit"], ["200"]),
    (["--cache", "null"], ["400"]),
    (["--site", "en.example"], ["200", "404"]),
    (["--since", "2026-11-22T08:30:00Z"], ["404"]),
)
def test_a_file_is_printed_as_far_as_it_is_wanted(univocal, log, arguments, statuses):
    ended = univocal("log", str(log), *arguments)
    assert (ended.returncode, "2 lines are not JSON" in ended.stderr) == (0, True)
    assert [line.split()[1] for line in ended.stdout.splitlines()] == statuses
    assert all(harmless(line) for line in ended.stdout.splitlines())
    again = univocal("log", str(log), *arguments, "--json")
    assert [str(json.loads(line)["status"]) for line in again.stdout.splitlines()] == statuses
    assert again.stdout.replace("\n", "").isascii()
    assert harmless(again.stdout.replace("\n", ""))


@cases(
    "arguments, code, told",
    (["log", "/nowhere/access.log"], 1, "No such file"),
    (["log", "--status", "abc"], 2, "status must be a number"),
    (["log", "--since", "lately"], 2, "is no time"),
    (["log", "--admin", "nowhere"], 2, "is not the address of an admin listener"),
    (["log", "--admin", "http://127.0.0.1:1"], 1, "does not answer: Connection refused"),
    (["top", "--admin", "http://127.0.0.1:1"], 1, "does not answer: Connection refused"),
    (["top", "--json", "--admin", "ftp://127.0.0.1"], 2, "is not the address of an admin listener"),
)
def test_failures_are_told_without_a_traceback(univocal, arguments, code, told):
    ended = univocal(*arguments)
    assert ended.returncode == code
    assert told in re.sub(r"[\s│]+", " ", ended.stderr)
    assert "Traceback" not in ended.stderr


# ── univocal top ────────────────────────────────────────────────────────────────────────────────────────────


def second(at, requests=0, hits=0, refused=0):
    numbers = dict.fromkeys(("stale", "collapsed", "bytes", "purges", "folded"), 0)
    reasons = {"refused": {"bad-host": refused}, "failed": {"origin-timeout": refused // 2}}
    answerable = requests - refused
    return {"at": at, "requests": requests, "answerable": answerable, "hits": hits, **reasons, **numbers}


def test_rates_are_the_mean_of_the_seconds_that_are_over():
    told = rates(
        [second(at, 1000) for at in range(20)] + [second(at, 30, 15, 2) for at in range(10)] + [second(0)]
    )
    assert (told["requests"], told["hits"], told["refused"], told["failed"]) == (30, 15, 2, 1)
    assert told["hit_ratio"] == round(15 / 28, 6)
    assert rates([second(1, 4)])["requests"] == 4
    assert rates([]) == dict.fromkeys(told, 0)


def seen_by(key):
    """Feed the page of `univocal top`, and return how it looks."""
    spelled = [{"target": HOSTILE, "count": 3}, {"target": "[bold]/wiki/A[/bold]", "count": 1}]
    totals = {
        **dict.fromkeys(("requests", "hits", "hit_ratio", "stale", "collapsed", "bytes", "purges"), 0),
        "folded": 0,
        "failed": {"origin-timeout": 1},
        "seconds": {"p50": 0.001, "p90": 0.002, "p99": 0.003},
        "stored": {"responses": 1, "bytes": 1000, "max_bytes": 1 << 28, "evictions": 0},
    }
    seen = {
        "rates": rates([]),
        "totals": totals,
        "series": [second(1, 4)],
        "top": {name: [{"key": key, "count": 4}] for name in MEASURES},
        "origins": [{"site": "en.example", "url": "http://o:1", "state": "down", "requests": 4}],
    }
    seen["top"]["spellings"] = [{"key": key, "count": 4, "spellings": spelled, "saved": 1}]
    seen["top"]["personal"] = [{"field": HOSTILE, "count": 2, "example": key, "setting": "keep_cookies"}]
    seen["top"]["refused"] = [{"reason": "bad-host", "count": 2, "host": HOSTILE, "example": HOSTILE}]
    return seen


def drawn(seen, width, rows, height=None, trouble=""):
    console = Console(width=width, height=50, color_system=None, markup=True, force_terminal=False)
    with console.capture() as written:
        console.print(screen(seen, "http://127.0.0.1:8081", rows, height, trouble))
    return written.get()


def test_the_screen_shows_what_clients_sent_as_text():
    text = drawn(seen_by("http://en.example/wiki/A"), 200, 8)
    assert all(harmless(line) for line in text.splitlines())
    assert "[bold]/wiki/A[/bold]" in text
    assert r"\x1b]0;owned" in text
    assert "down  en.example  http://o:1  4 requests" in text


def test_the_screen_has_the_last_failures_with_their_reasons():
    failure = {
        "at": 0.0, "status": 502, "site": "en.example", "method": "GET", "url": f"http://en.example/{HOSTILE}",
        "reason": "origin-unreachable", "origin": "http://o:1", "cause": "refused", "error": "",
    }  # fmt: skip
    quiet = drawn(seen_by("http://en.example/"), 200, 8)
    text = drawn({**seen_by("http://en.example/"), "failures": [failure]}, 200, 8)
    assert ["failed"] not in [line.split() for line in quiet.splitlines()]
    assert ["failed"] in [line.split() for line in text.splitlines()]
    (line,) = [line for line in text.splitlines() if "origin-unreachable" in line]
    assert line.split()[0] == "502"
    assert line.rstrip().endswith("http://o:1: refused")
    assert harmless(line)


@pytest.mark.parametrize(("width", "height"), [(150, 50), (80, 24), (80, 16), (40, 12), (20, 7), (10, 2)])
def test_the_screen_is_no_larger_than_the_terminal(width, height):
    seen = seen_by("http://en.example/wiki/" + "long" * 40)
    for table in ("requests", "misses", "refused"):
        seen["top"][table] *= 30
    lines = drawn(seen, width, 8, height).splitlines()
    assert len(lines) <= max(height, 6)  # the head and one table, at least
    assert max(map(len, lines)) <= width
    if height >= 14:
        assert [line.split() for line in lines].count(["origin", "servers"]) == 1
        assert len(lines) == height if height < 40 else len(lines) == 4 + 7 + 8 + 8 + 8 + 1 + 1 + 1 + 1


def test_the_lines_that_there_are_go_to_whoever_wants_them():
    assert shared_out(10, [8, 1, 8]) == [5, 1, 4]
    assert shared_out(99, [8, 1, 8]) == [8, 1, 8]
    assert shared_out(2, [8, 1, 8]) == [1, 1, 0]
    assert shared_out(-1, [8]) == [0]


def test_the_screen_says_why_it_is_no_newer():
    seen = seen_by("http://en.example/wiki/A")
    text = drawn(seen, 100, 8, 30, "since 08:00:00: the admin listener does not answer\x1b]0;owned")
    assert text.startswith("since 08:00:00: the admin listener does not answer")
    assert all(harmless(line) for line in text.splitlines())
    assert "requests/s" not in text
    assert "http://en.example/wiki/A" in text


@cases(
    "value, told",
    (0, "0"),
    (0.25, "0.25"),
    (950, "950"),
    (9999, "9999"),
    (12_345, "12.3k"),
    (4_560_000, "4.56M"),
)
def test_numbers_are_short(value, told):
    assert number(value) == told


def test_sizes_and_bars():
    assert [size(each) for each in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5 GiB"]
    assert chart([]) == ""
    assert chart([0, 1, 8]) == " ▁█"
