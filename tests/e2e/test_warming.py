"""`univocal warm` and `purge --refetch`, at a plain `univocal serve`."""

import gzip
import json

import pytest

from support import until
from univocal_app.commands.pace import Pace
from univocal_app.commands.warm import variants_of

SITEMAP = "<urlset xmlns='s'>{}</urlset>"
ENTRY = "<url><loc> http://a.example/{} </loc><image:loc>http://a.example/no</image:loc></url>"


def via(plain):
    return ["--via", "http://{}:{}".format(*plain.proxy)]


def targets(origin):
    return sorted(line.split()[1] for line in origin.lines)


def answering(origin, pages):
    """Give the origin server these contents by target, and its own for all others."""
    own = origin.answer

    def answer(head):
        content = pages.get(head.split()[1])
        if content is None:
            return own(head)
        origin.seen.append(head)
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)

    origin.answer = answer


def test_warmed_urls_are_hits_for_clients(plain, univocal, ask, origin, tmp_path):
    (tmp_path / "urls").write_text("http://a.example/b\n# none\n")
    options = ["http://a.example/%61", "--file", str(tmp_path / "urls"), "--rate", "1000"]
    ended = univocal("warm", *options, *via(plain))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0].startswith(
        "http://a.example/%61\t200\tunivocal; fwd=uri-miss; stored"
    )
    assert ended.stderr == "2 requested, 2 stored, 0 failed\n"
    for target in ("/a", "/b"):
        assert "; hit" in ask(plain.proxy, target, "a.example").value("Cache-Status")
    assert len(origin.seen) == 2


def test_a_sitemap_and_an_index_of_them_name_the_urls(plain, univocal, origin):
    index = "<sitemapindex><sitemap><loc>http://a.example/1.xml.gz</loc></sitemap></sitemapindex>"
    packed = gzip.compress(SITEMAP.format(ENTRY.format("x?a=1&amp;b=2") + ENTRY.format("y")).encode())
    answering(origin, {b"/index.xml": index.encode(), b"/1.xml.gz": packed})
    ended = univocal("warm", "--sitemap", "http://a.example/index.xml", "--rate", "1000", *via(plain))
    assert ended.returncode == 0, ended.stderr
    assert targets(origin) == [b"/1.xml.gz", b"/index.xml", b"/x?a=1&b=2", b"/y"]


def test_each_value_of_a_header_is_a_variant(plain, univocal, ask, origin):
    origin.fields = "Cache-Control: max-age=60\r\nVary: Accept-Language"
    languages = ["--header", "Accept-Language: de", "--header", "Accept-Language: fr"]
    assert univocal("warm", "http://a.example/a", *languages, *via(plain)).returncode == 0
    for language in ("de", "fr"):
        answer = ask(plain.proxy, "/a", "a.example", fields=f"Accept-Language: {language}\r\n")
        assert "; hit" in answer.value("Cache-Status")


def test_https_urls_are_stored_for_clients_over_tls(plain, univocal, ask):
    assert univocal("warm", "https://a.example/a", *via(plain)).returncode == 0
    front = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.1\r\n"
    assert "; hit" in ask(plain.proxy, "/a", "a.example", fields=front).value("Cache-Status")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["http://a.example/%00"], 1),
        (["--sitemap", "http://a.example/none"], 2),
        (["--header", "none", "http://a.example/"], 2),
        (["/a"], 2),
        ([], 2),
    ],
)
def test_errors_have_their_exit_status(plain, univocal, arguments, status):
    ended = univocal("warm", *arguments, *via(plain))
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr


def test_a_cut_response_is_a_failure(plain, univocal, origin):
    def answer(_):
        yield b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 1000\r\n\r\nabc"
        raise ConnectionError

    origin.answer = answer
    ended = univocal("warm", "http://a.example/a", *via(plain))
    assert (ended.returncode, ended.stderr) == (1, "1 requested, 0 stored, 1 failed\n")
    assert ended.stdout == "http://a.example/a\tfailed\tthe response was cut: 997 bytes are missing\n"


def test_nobody_listening_is_a_failure(univocal):
    ended = univocal("warm", "http://a.example/a", "--via", "http://127.0.0.1:1")
    assert (ended.returncode, ended.stderr) == (1, "1 requested, 0 stored, 1 failed\n")


def test_the_pace_spreads_requests_evenly():
    now, waits = 0.0, list[float]()

    def sleep(seconds):
        nonlocal now
        waits.append(seconds)
        now += seconds

    pace = Pace(0.25, lambda: now, sleep)
    for _ in range(3):
        pace.wait()
    now += 10.0
    pace.wait()
    pace.wait()
    assert waits == [0.25, 0.25, 0.25]


def test_headers_are_combined_by_name():
    assert variants_of([]) == [{}]
    listed = variants_of(["a: 1", "A: 2", "b:3"])
    assert listed == [{"A": "1", "B": "3"}, {"A": "2", "B": "3"}]


@pytest.mark.parametrize("soft", [[], ["--soft"]])
def test_a_purge_stores_its_urls_anew(plain, univocal, ask, origin, soft):
    before = ask(plain.proxy, "/a", "a.example").body
    ended = univocal("purge", "http://a.example/a", "--refetch", *soft, *via(plain))
    assert ended.returncode == 0, ended.stderr
    after = ask(plain.proxy, "/a", "a.example")
    assert len(origin.seen) == 2
    assert (after.body != before, "; hit" in after.value("Cache-Status")) == (True, True)


def test_the_admin_listener_stores_purged_urls_anew(plain, univocal, ask, origin):
    for target in ("/a", "/b"):
        ask(plain.proxy, target, "a.example")
    admin = "http://{}:{}".format(*plain.admin)
    ended = univocal("purge", "http://a.example/%61", "--refetch", "--admin", admin)
    assert ended.returncode == 0, ended.stderr
    body = json.dumps({"urls": ["http://a.example/b"], "refetch": True})
    assert ask(plain.admin, "/-/purge", "127.0.0.1", "POST", body=body).status == 200
    until(lambda: len(origin.seen) >= 4)
    for target in ("/a", "/b"):
        assert "; hit" in ask(plain.proxy, target, "a.example").value("Cache-Status")
    assert targets(origin) == [b"/a", b"/a", b"/b", b"/b"]


@pytest.mark.parametrize("wrong", [{"tag": "a", "refetch": True}, {"url": "http://a.example/", "refetch": 1}])
def test_a_refetch_needs_urls(plain, ask, wrong):
    answer = ask(plain.admin, "/-/purge", "127.0.0.1", "POST", body=json.dumps(wrong))
    assert answer.status == 400
    assert b"refetch" in answer.body
